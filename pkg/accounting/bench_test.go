package accounting

import (
	"strconv"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

// BenchmarkReserveSettle is one lien placed, dispatched and settled.
func BenchmarkReserveSettle(b *testing.B) {
	l := New()
	l.Grant(Stamp{base, "g"}, Grant{Owner: chainOf("o/p"), Class: Purchase, Amount: MaxAmount})
	for i := 0; b.Loop(); i++ {
		n := strconv.Itoa(i)
		id := LienID{cluster.JobID(i + 1), 1}
		l.Place(Stamp{base, "p" + n}, Claim{ID: id, Chain: chainOf("o/p/ana"), Rates: []Rate{{"H100", 2 * One}}, Amount: 80})
		l.Dispatch(Stamp{base, "d" + n}, id, "H100", 8)
		l.Settle(Stamp{base, "s" + n}, Settlement{id, 1000, false})
		l.Drain()
	}
}

// BenchmarkMeter is one sample among 50,000 running jobs.
func BenchmarkMeter(b *testing.B) {
	l := New()
	l.Grant(Stamp{base, "g"}, Grant{Owner: chainOf("o/p"), Class: Purchase, Amount: MaxAmount})
	for i := range 50_000 {
		id := LienID{cluster.JobID(i + 1), 1}
		l.Place(Stamp{base, "p" + strconv.Itoa(i)}, Claim{ID: id, Chain: chainOf("o/p/ana"), Rates: []Rate{{"H100", 2}}, Amount: 80})
		l.Dispatch(Stamp{base, "d" + strconv.Itoa(i)}, id, "H100", 8)
	}
	var m Metered
	for i := 0; b.Loop(); i++ {
		x := Sample{Lien: LienID{cluster.JobID(i%50_000 + 1), 1}, Number: uint64(i + 1), Count: int64(i / 50_000)}
		l.meter(&x, &m)
	}
	if m.Stale+m.Regressed > 0 {
		b.Fatal(m)
	}
}
