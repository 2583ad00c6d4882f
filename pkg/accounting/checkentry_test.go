package accounting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// judged returns a journal whose entries all have a justification: buckets with a scope and an
// expiry, a job on GPUs of two types that is charged hourly and at its end, and a debt that is
// repaid.
func judged(t *testing.T) []Entry {
	t.Helper()
	p := newPlay(t)
	p.run(`
price H100 2
price A100 1.2
grant P 10 to=o/p class=promo types=H100,A100 partitions=main perjob=6 expires=10h
grant Q 20 to=o
grant R 5 to=o/q
place 1.1 by=o/p/ana types=H100,A100 gpus=4 limit=1h partition=main
dispatch 1.1 A100 2 H100 2
at 30m
meter 1.1 n=1 ran=30m
roll 1.1
at 1h
settle 1.1 ran=1h
place 2.1 by=o/p/ana types=H100 gpus=10 limit=1h partition=main
dispatch 2.1 H100 10
at 3h
settle 2.1 ran=2h
refund 1.1 1
grant S 100 to=o
`)
	return p.journal
}

// forged returns the journal with one entry changed and the chain after it recomputed.
func forged(journal []Entry, at int, change func(*Entry)) []Entry {
	all := slices.Clone(journal)
	for i := at; i < len(all); i++ {
		e := &all[i]
		if i == at {
			row := e.AppendRow(nil)
			*e, _ = ReadRow(row) // nothing shared with the original
			change(e)
		}
		if i > 0 {
			e.Prev = all[i-1].Hash
		}
		e.Hash = e.Sum()
	}
	return all
}

// TestJudged checks that an entry that its justification does not allow is reported as the first
// wrong one, by number.
func TestJudged(t *testing.T) {
	journal := judged(t)
	first := func(kind EntryKind, also func(*Entry) bool) int {
		at := slices.IndexFunc(journal, func(e Entry) bool { return e.Kind == kind && (also == nil || also(&e)) })
		if at < 0 {
			t.Fatalf("no %s in the journal", kind)
		}
		return at
	}
	scoped := first(SetAside, func(e *Entry) bool { return e.Debit.Bucket == 1 })
	charge := first(Captured, nil)
	debt := first(Overshoot, func(e *Entry) bool { return e.Debit.Kind == Owed })
	last := first(Granted, func(e *Entry) bool { return e.Terms.Amount == 100*One })
	repaid := first(Repaid, func(e *Entry) bool { return e.Debit.Bucket == journal[last].Credit.Bucket })
	for _, x := range []struct {
		says   string
		at     int
		change func(*Entry)
		wrong  int // the entry that reveals it; 0: the changed one
	}{
		{"does not pay for partition spot", scoped, func(e *Entry) { e.For.Partitions = []string{"main", "spot"} }, 0},
		{"does not pay for GPU type b200", scoped, func(e *Entry) { e.For.On = []string{"b200"} }, 0},
		{"does not pay for o/q/bob", scoped, func(e *Entry) { e.Node, e.For.Chain = "o/q/bob", PayerPath{"o/q/bob", "o/q", "o"} }, 0},
		{"it is not o/p/ana who pays", scoped, func(e *Entry) { e.For.Chain = PayerPath{"o/p", "o"} }, 0},
		{"more than it may", scoped, func(e *Entry) { e.Amount++ }, 0},
		{"pays after it expired", 0, func(e *Entry) { e.Terms.Expires = journal[scoped].At }, scoped},
		{"pays before it begins", 0, func(e *Entry) { e.Terms.Effective = journal[scoped].At.Add(time.Hour) }, scoped},
		{"pays a debt, and pays for some jobs only", last, func(e *Entry) { e.Terms.Scope.PerJob = 1 }, repaid},
		{"what a bucket pays for stands", scoped, func(e *Entry) { e.For = nil }, 0},
		{"the terms of a bucket stand", 0, func(e *Entry) { e.Terms = nil }, 0},
		{"terms are another's", 0, func(e *Entry) { e.Terms.Amount++ }, 0},
		{"comes from outside", 0, func(e *Entry) { e.Terms.Class = Purchase }, 0},
		{"a bill stands", charge, func(e *Entry) { e.Bill = nil }, 0},
		{"is charged", charge, func(e *Entry) { e.Amount-- }, 0},
		{"longer than they were had", charge, func(e *Entry) { e.Bill.Segments[0].Millis *= 2 }, 0},
		{"was quoted", charge, func(e *Entry) { e.Bill.Segments[0].Shares[0].Price++ }, 0},
		{"is charged", charge, func(e *Entry) { e.Bill.Left++ }, 0},
		{"are not charged", debt, func(e *Entry) { e.Amount, e.Bill.Left = e.Amount-1, 1 }, 0},
	} {
		wrong := cmp.Or(x.wrong, x.at) + 1
		if got := firstWrong(forged(journal, x.at, x.change)); !strings.Contains(got, fmt.Sprintf("entry %d: ", wrong)) || !strings.Contains(got, x.says) {
			t.Errorf("%q was wanted of entry %d, got %q", x.says, wrong, got)
		}
	}
	if got := firstWrong(journal); got != "" {
		t.Errorf("whole, and yet: %s", got)
	}
}

// firstWrong returns the error of an audit of a journal.
func firstWrong(journal []Entry) string {
	var a Audit
	for i := range journal {
		if err := a.Add(&journal[i]); err != nil {
			return err.Error()
		}
	}
	return ""
}

// TestJudgedPrices checks that an audit with the price list finds a price that was not in force, in
// a quote or in a floating bill.
func TestJudgedPrices(t *testing.T) {
	p := newPlay(t)
	p.run(`
price H100 2
price A100 1
price H100 3 from=2h
grant Q 500 to=o
place 1.1 by=o/ana types=H100 gpus=8 limit=5h
dispatch 1.1 H100 8
place 2.1 by=o/ana types=H100,A100 gpus=8 limit=5h floating=yes
dispatch 2.1 H100 8
at 3h
meter 2.1 n=1 ran=3h
roll 2.1
at 5h
settle 1.1 ran=5h
settle 2.1 ran=5h
`)
	first := func(job cluster.JobID, kind EntryKind) int {
		return slices.IndexFunc(p.journal, func(e Entry) bool { return e.Lien.Job == job && e.Kind == kind })
	}
	says := func(journal []Entry) string {
		a := NewAudit(p.l)
		for i := range journal {
			if err := a.Add(&journal[i]); err != nil {
				return err.Error()
			}
		}
		return ""
	}
	if got := says(p.journal); got != "" {
		t.Fatalf("whole, and yet: %s", got)
	}
	for _, x := range []struct {
		says   string
		at     int
		change func(*Entry)
	}{
		{"quoted at 2.500000, and cost 2.000000", first(1, SetAside), func(e *Entry) { e.For.Rates[0].Price = One * 5 / 2 }},
		{"quoted at 1.000001, and cost 1.000000", first(2, SetAside), func(e *Entry) { e.For.Rates[1].Price++ }},
		{"quoted at 2.000000, and cost 3.000000", first(1, SetAside), func(e *Entry) { e.For.Since = base.Add(3 * time.Hour) }},
		{"charged at 2.000001, and cost 2.000000", first(2, Captured), func(e *Entry) {
			e.Bill.Segments[0].Shares[0].Price++
			e.Amount = e.Bill.Due()
		}},
		{"charged at 2.000000, and cost 3.000000 at 2026-06-01T02:00:00Z", first(2, Captured), func(e *Entry) {
			e.Bill.Segments[0].Millis += e.Bill.Segments[1].Millis
			e.Bill.Segments = e.Bill.Segments[:1]
			e.Amount = e.Bill.Due()
		}},
	} {
		if got := says(forged(p.journal, x.at, x.change)); !strings.Contains(got, fmt.Sprintf("entry %d: ", x.at+1)) || !strings.Contains(got, x.says) {
			t.Errorf("%q was wanted of entry %d, got %q", x.says, x.at+1, got)
		}
	}
}
