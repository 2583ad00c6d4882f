package accounting

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// rich returns a ledger with a project that can pay for everything here.
func rich() *Ledger {
	l := New()
	l.Grant(Stamp{At: base, Key: "g"}, Grant{Owner: chainOf("o/p"), Class: Purchase, Amount: MaxAmount})
	return l
}

// BenchmarkPlaceSettle places, dispatches and settles one lien, with its entries: with remembered
// keys, with a caller that prevents repeats, and with a clone after each command, which later
// writes must not change.
func BenchmarkPlaceSettle(b *testing.B) {
	for _, name := range []string{"keys", "natural", "cloned"} {
		natural := name != "keys"
		clone := func(l *Ledger) {
			if name == "cloned" {
				l.Clone()
			}
		}
		b.Run(name, func(b *testing.B) {
			l := rich()
			c := Claim{Chain: chainOf("o/p/ana"), Rates: []Rate{{"H100", 2 * One}}, Amount: 80 * One}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n := strconv.Itoa(i)
				c.ID = LienID{cluster.JobID(i + 1), 1}
				at := base.Add(time.Duration(i) * time.Millisecond)
				l.CreateLien(Stamp{At: at, Key: "p" + n, Natural: natural}, c)
				clone(l)
				l.StartBilling(Stamp{At: at, Key: "d" + n, Natural: natural}, c.ID, GPUs{"H100", 8})
				clone(l)
				l.Settle(Stamp{At: at, Key: "s" + n, Natural: natural}, Settlement{c.ID, 3000, false})
				l.Drain()
				clone(l)
				if i%1000 == 999 {
					l.Forget(at, 1000) // as the state does: settled liens are forgotten
				}
			}
		})
	}
}

// running returns a ledger with running jobs of 8 GPUs each.
func running(jobs int) *Ledger {
	l := rich()
	for i := range jobs {
		id := LienID{cluster.JobID(i + 1), 1}
		s := Stamp{At: base, Key: "job", Natural: true}
		l.CreateLien(s, Claim{ID: id, Chain: chainOf(fmt.Sprintf("o/p/u%d", i%2000)), Rates: []Rate{{"H100", 2 * One}}, Amount: 80 * One})
		l.StartBilling(s, id, GPUs{"H100", 8})
	}
	l.Drain()
	return l
}

// BenchmarkMeter50000 meters a sample of each of 50,000 jobs (one every 30 s), in batches of 5,000
// with a clone after each, as for a view.
func BenchmarkMeter50000(b *testing.B) {
	const jobs, batch = 50_000, 5_000
	l := running(jobs)
	samples := make([]Sample, batch)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		for from := 0; from < jobs; from += batch {
			for k := range samples {
				samples[k] = Sample{Lien: LienID{cluster.JobID(from + k + 1), 1}, Number: uint64(i + 1), Count: int64(i+1) * 240_000}
			}
			at := base.Add(time.Duration(i+1) * 30 * time.Second)
			if m := l.Meter(at, samples); m.Counted != batch {
				b.Fatal(m)
			}
			l.Clone()
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/30*100, "%core")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/jobs, "ns/sample")
}

// million returns a ledger with one budget and one bucket per user.
func million(users int) *Ledger {
	l := New()
	for i := range users {
		c := PayerPath{PayerID(fmt.Sprintf("org%d/project%d/user%d", i%10, i%10_000, i)), PayerID(fmt.Sprintf("org%d/project%d", i%10, i%10_000)), PayerID(fmt.Sprintf("org%d", i%10))}
		l.Grant(Stamp{At: base, Key: "g", Natural: true}, Grant{Owner: c, Class: Purchase, Amount: 100 * One, Expires: base.Add(1000 * time.Hour)})
	}
	l.Drain()
	return l
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkMillionAccounts measures 1,000,000 accounts with one bucket each.
func BenchmarkMillionAccounts(b *testing.B) {
	const users = 1_000_000
	for range b.N {
		before := heap()
		l := million(users)
		b.ReportMetric(float64(heap()-before)/users, "B/account")
		start, size := time.Now(), 0
		var d Decoder
		l.Encode(func(chunk []byte) error {
			size += len(chunk)
			return d.Add(chunk)
		})
		if _, err := d.Ledger(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s-encode+decode")
		b.ReportMetric(float64(size)/users, "B-encoded/account")
		runtime.KeepAlive(l)
	}
}

// BenchmarkBalance reads one of 100,000 accounts and its bucket.
func BenchmarkBalance(b *testing.B) {
	l := million(100_000)
	var ids []PayerID
	for i := range 100_000 {
		ids = append(ids, PayerID(fmt.Sprintf("org%d/project%d/user%d", i%10, i%10_000, i)))
	}
	var sum Credits
	for i := 0; b.Loop(); i++ {
		n := i % 100_000
		id := ids[n]
		sum += l.Payer(id).Held
		for x := range l.BucketsOf(id) {
			sum += x.Avail
		}
	}
	if sum == 0 {
		b.Fatal("nothing there")
	}
}

// BenchmarkOutlook computes, for a one-day job with floating prices and that many hourly price
// changes ahead, what it lacks (as for each sample) and until when it is funded.
func BenchmarkOutlook(b *testing.B) {
	for _, prices := range []int{0, 24, 168} {
		l := rich()
		s := Stamp{At: base, Key: "job", Natural: true}
		l.SetPrice(s, Rate{"H100", 2 * One}, 0)
		n := &Lien{}
		l.CreateLien(s, Claim{ID: LienID{1, 1}, Chain: chainOf("o/p/u"), Rates: []Rate{{"H100", 2 * One}}, Amount: 8 * 24 * 3 * One, Floating: true})
		l.StartBilling(s, LienID{1, 1}, GPUs{"H100", 8})
		for i := range prices {
			l.SetPrice(s, Rate{"H100", Credits(2+i%2) * One}, base.Add(time.Duration(i+1)*time.Hour))
		}
		*n, _ = l.Lien(LienID{1, 1})
		limit := base.Add(24 * time.Hour)
		b.Run(fmt.Sprintf("lacks/prices=%d", prices), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.MissingCredits(n, limit)
			}
		})
		b.Run(fmt.Sprintf("funded/prices=%d", prices), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.FundedUntil(n, limit)
			}
		})
	}
}
