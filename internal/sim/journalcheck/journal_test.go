package journalcheck

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// written returns the rows of a grant, and of attempts that are charged and refunded.
func written(t *testing.T) (l *accounting.Ledger, rows [][]byte) {
	t.Helper()
	l = accounting.New()
	step := 0
	stamp := func() accounting.Stamp {
		step++
		return accounting.Stamp{At: cluster.Instant(step) * cluster.Instant(time.Minute), Key: fmt.Sprint(step)}
	}
	ok := func(_ accounting.Receipt, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	who := accounting.PayerPath{"ml/ada", "ml"}
	ok(l.Grant(stamp(), accounting.Grant{Owner: who[1:], Class: accounting.Purchase, Amount: 3_200_000}))
	for step, do := range []func(id accounting.LienID) (accounting.Receipt, error){
		func(id accounting.LienID) (accounting.Receipt, error) {
			return l.CreateLien(stamp(), accounting.Claim{ID: id, Chain: who, Rates: []accounting.Rate{{GPUType: "h100", Price: 60_000_000}}, Amount: 1_000_000})
		},
		func(id accounting.LienID) (accounting.Receipt, error) {
			return l.StartBilling(stamp(), id, accounting.GPUs{Type: "h100", Count: 1})
		},
		func(id accounting.LienID) (accounting.Receipt, error) {
			return l.Settle(stamp(), accounting.Settlement{Lien: id, Total: []int64{70_000, 70_000, 30_000}[id.Job-1]})
		},
	} {
		for job := range cluster.JobID(3) {
			r, err := do(accounting.LienID{Job: job + 1, Attempt: 1})
			if err != nil {
				t.Fatalf("step %d of job %d: %v, %v", step, job+1, r, err)
			}
		}
	}
	ok(l.Refund(stamp(), accounting.Refund{Lien: accounting.LienID{Job: 2, Attempt: 1}, Amount: 5}))
	for _, e := range l.Drain() {
		rows = append(rows, e.AppendRow(nil))
	}
	return l, rows
}

// TestBook: the sums are the ledger's, and any changed, missing or repeated row is found.
func TestBook(t *testing.T) {
	l, rows := written(t)
	read, err := Read(rows)
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range l.Payers() {
		if is := read.Payers[string(id)]; id == "ml/ada" && *is != (PayerSums{int64(n.Held), int64(n.Spent), int64(n.Debt)}) {
			t.Errorf("%s has %+v, the ledger says %+v", id, is, n)
		}
	}
	// 70 s at a credit a minute: the last 0.166666 is beyond what was reserved, and the second job
	// owes some of it. The third ran for half a minute.
	for job, want := range map[uint64]int64{1: 1_166_666, 2: 1_166_661, 3: 500_000} {
		if is := read.Bills[Attempt{job, 1}]; is.Charged() != want || is.Holds() != 0 {
			t.Errorf("job %d: %+v, want %d", job, is, want)
		}
	}
	for at := range rows {
		row := bytes.Clone(rows[at])
		row[len(row)/2] ^= 4
		for what, forged := range map[string][][]byte{
			"changed": slices.Concat(rows[:at], [][]byte{row}, rows[at+1:]),
			"twice":   slices.Concat(rows[:at+1], rows[at:]),
			"missing": slices.Concat(rows[:at], rows[at+1:]),
		} {
			last := what == "missing" && at == len(rows)-1 // which the balances show
			if _, err := Read(forged); (err == nil) != last {
				t.Errorf("entry %d %s: %v", at+1, what, err)
			}
		}
	}
}

// TestBookOfForgedEntries: an amount that is taken twice from a bucket or lien is found although
// the hashes are right.
func TestBookOfForgedEntries(t *testing.T) {
	_, rows := written(t)
	for at := range rows {
		e, err := accounting.ReadRow(rows[at])
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != accounting.Captured && e.Kind != accounting.Released {
			continue
		}
		forged := slices.Clone(rows[:at+1])
		for _, row := range rows[at:] {
			next, err := accounting.ReadRow(row)
			if err != nil {
				t.Fatal(err)
			}
			next.Seq, next.Prev = uint64(len(forged)+1), e.Hash
			next.Hash = next.Sum()
			forged, e = append(forged, next.AppendRow(nil)), next
		}
		if _, err := Read(forged); err == nil || !strings.Contains(err.Error(), "it leaves") && !strings.Contains(err.Error(), "was charged") {
			t.Errorf("entry %d was made twice: %v", at+1, err)
		}
	}
}

// TestBookOfWrongJustification: a bucket that may not pay, and a charge that is not interval times
// price, are found at their entry.
func TestBookOfWrongJustification(t *testing.T) {
	_, rows := written(t)
	for says, change := range map[string]func(*accounting.Entry) bool{
		"pays for x": func(e *accounting.Entry) bool {
			if e.For != nil {
				e.Node, e.For.Chain = "x", accounting.PayerPath{"x"}
			}
			return e.For != nil
		},
		"is good from": func(e *accounting.Entry) bool {
			if e.Terms != nil {
				e.Terms.Expires = e.At + 1
			}
			return e.Terms != nil
		},
		"pays beyond its scope": func(e *accounting.Entry) bool {
			if e.Terms != nil {
				e.Terms.Scope.Partitions = []string{"elsewhere"}
			}
			return e.Terms != nil
		},
		"was quoted": func(e *accounting.Entry) bool {
			if e.Bill != nil {
				e.Bill.Segments[0].Shares[0].Price /= 2
			}
			return e.Bill != nil
		},
		"it comes to": func(e *accounting.Entry) bool {
			if e.Bill != nil {
				e.Bill.Segments[0].Millis -= 1000
			}
			return e.Bill != nil
		},
		"GPU-milliseconds of": func(e *accounting.Entry) bool {
			if e.Bill != nil {
				e.Bill.Segments[0].Millis *= 100
			}
			return e.Bill != nil
		},
	} {
		var forged [][]byte
		var before accounting.Hash
		done := false
		for _, row := range rows {
			e, err := accounting.ReadRow(row)
			if err != nil {
				t.Fatal(err)
			}
			done = done || change(&e)
			e.Prev = before
			e.Hash = e.Sum()
			before, forged = e.Hash, append(forged, e.AppendRow(nil))
		}
		if _, err := Read(forged); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q was wanted, got %v", says, err)
		}
	}
}

// TestLostUnder: the credits that an attempt has of an expired bucket are reported at the expiry,
// also if the bucket is void by then.
func TestLostUnder(t *testing.T) {
	for _, void := range []bool{false, true} {
		l := accounting.New()
		step := 0
		stamp := func() accounting.Stamp {
			step++
			return accounting.Stamp{At: cluster.Instant(step), Key: fmt.Sprint(step)}
		}
		who := accounting.PayerPath{"ml/ada", "ml"}
		_, err := l.Grant(stamp(), accounting.Grant{Owner: who[1:], Class: accounting.Purchase, Amount: 7, Cutoff: true, Expires: 100})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.CreateLien(stamp(), accounting.Claim{ID: accounting.LienID{Job: 3, Attempt: 1}, Chain: who, Rates: []accounting.Rate{{Price: 1}}, Amount: 7}); err != nil {
			t.Fatal(err)
		}
		if void {
			if _, err := l.Void(stamp(), 1); err != nil {
				t.Fatal(err)
			}
		}
		l.Advance(200)
		b, lost := New(), map[Attempt]int64{}
		for _, row := range l.Drain() {
			e, err := b.Add(row.AppendRow(nil))
			if err != nil {
				t.Fatal(err)
			}
			if of, amount, is := e.LostUnder(); is {
				lost[of] += amount
			}
		}
		if len(lost) != 1 || lost[Attempt{3, 1}] != 7 {
			t.Errorf("void %t: lost %v", void, lost)
		}
	}
}
