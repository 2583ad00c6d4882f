package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// spendAtRandom makes random changes to a ledger for ten days.
func spendAtRandom(r *rand.Rand) *accounting.Ledger {
	l, at := accounting.New(), cluster.InstantOf(reportDay)
	owners := []accounting.PayerPath{{"law"}, {"physics"}, {"physics/ann", "physics"}, {"physics/bob", "physics"}}
	var liens []accounting.LienID
	some := func() accounting.LienID { return liens[r.IntN(len(liens))] }
	for i := range 3000 {
		at = at.Add(time.Duration(r.IntN(600)) * time.Second)
		s, amount := accounting.Stamp{At: at, Key: fmt.Sprint("k", i)}, accounting.Credits(r.Int64N(50_000_000))
		l.Advance(at)
		owner := owners[r.IntN(len(owners))]
		switch pick := r.IntN(12); { // most refusals are as good as any other outcome
		case pick < 2 || liens == nil:
			expires := cluster.Instant(0)
			if r.IntN(2) == 0 {
				expires = at.Add(time.Duration(1+r.IntN(100)) * time.Hour)
			}
			_, _ = l.Grant(s, accounting.Grant{Owner: owner, Class: accounting.BucketClass(1 + r.IntN(4)), Amount: 2 * amount, Expires: expires})
			liens = append(liens, accounting.LienID{Job: cluster.JobID(i + 1), Attempt: 1})
		case pick < 5:
			id := accounting.LienID{Job: cluster.JobID(i + 1), Attempt: 1}
			if _, err := l.CreateLien(s, accounting.Claim{ID: id, Chain: owner, Amount: amount, Rates: []accounting.Rate{{GPUType: "h100", Price: 3 * accounting.One}}}); err == nil {
				liens = append(liens, id)
			}
		case pick < 7:
			_, _ = l.StartBilling(s, some(), accounting.GPUs{Type: "a100", Count: 1 + r.Int64N(3)}, accounting.GPUs{Type: "h100", Count: 4})
		case pick < 8:
			l.Meter(at, []accounting.Sample{{Lien: some(), Epoch: 1, Number: uint64(i + 1), Count: r.Int64N(40_000_000)}})
		case pick < 10:
			_, _ = l.Settle(s, accounting.Settlement{Lien: some(), Total: r.Int64N(2_000_000_000)})
		case pick < 11:
			_, _ = l.Refund(s, accounting.Refund{Lien: some(), Amount: amount / 9})
		default:
			_, _ = l.Void(s, accounting.BucketID(1+r.Uint64N(40)))
		}
	}
	return l
}

// TestReportTotalsAreTheJournals checks that the credits report of any period equals the sum of the
// journal's entries of it, kind by kind, and that the report of all time equals the buckets:
// invariant I14.
func TestReportTotalsAreTheJournals(t *testing.T) {
	w, r := newWorld(t, options{}), rand.New(rand.NewPCG(8, 9))
	ledger := spendAtRandom(r)
	must(t, ledger.Check())
	entries := ledger.Drain()
	for _, e := range entries {
		must(t, w.all[0].store.AppendRows(3000, archive.CreditJournal, []archive.Row{{Seq: e.Seq, Data: e.AppendRow(nil)}}))
	}
	kinds := map[accounting.EntryKind]int{}
	bounds := []time.Time{reportDay}
	for end := entries[len(entries)-1].At.Time(); !bounds[len(bounds)-1].After(end); {
		bounds = append(bounds, bounds[len(bounds)-1].Add(time.Duration(1+r.IntN(3*86400))*time.Second))
	}
	for i := 1; i < len(bounds); i++ {
		var want [9]int64
		for _, e := range entries {
			if at := e.At.Time(); !at.Before(bounds[i-1]) && at.Before(bounds[i]) {
				kinds[e.Kind]++
				book(&want, &e)
			}
		}
		if got := creditTotals(t, w, bounds[i-1], bounds[i]); got != want {
			t.Errorf("from %s to %s the report has\n%v, the journal\n%v", bounds[i-1], bounds[i], got, want)
		}
	}
	if len(kinds) != 9 {
		t.Errorf("only these kinds of entries came about: %v", kinds)
	}
	var amount, spent, expired, void, owes int64
	granted := map[accounting.BucketID]bool{}
	for _, e := range entries { // a refund after the end of its bucket creates a new one
		if granted[e.Credit.Bucket] = granted[e.Credit.Bucket] || e.Kind == accounting.Granted; e.Kind == accounting.Refunded && e.Credit.Bucket != 0 && !granted[e.Credit.Bucket] {
			amount, spent = amount-int64(e.Amount), spent-int64(e.Amount)
		}
	}
	for b := range ledger.Buckets() {
		amount, spent, expired, void = amount+int64(b.Amount), spent+int64(b.Spent), expired+int64(b.Expired), void+int64(b.Void)
	}
	for _, n := range ledger.Payers() {
		owes += int64(n.Owes)
	}
	all := creditTotals(t, w, bounds[0], bounds[len(bounds)-1])
	if all[0] != amount || all[3] != spent+owes || all[5] != expired || all[6] != void {
		t.Errorf("the report has %v, the buckets %d granted, %d spent, %d expired, %d void, and %d is owed", all, amount, spent, expired, void, owes)
	}
}

// book adds an entry to the columns of the credits report: granted charged refunded net
// repaid expired voided set_aside released.
func book(sums *[9]int64, e *accounting.Entry) {
	n := int64(e.Amount)
	switch e.Kind {
	case accounting.Granted:
		sums[0] += n
	case accounting.Captured, accounting.Overshoot:
		sums[1], sums[3] = sums[1]+n, sums[3]+n
	case accounting.Refunded:
		sums[2], sums[3] = sums[2]+n, sums[3]-n
	case accounting.Repaid:
		sums[4] += n
	case accounting.Expired:
		sums[5] += n
	case accounting.Taken:
		sums[6] += n
	case accounting.SetAside:
		sums[7] += n
	case accounting.Released:
		sums[8] += n
	}
}

// creditTotals are the sums of the columns of a credits report.
func creditTotals(t *testing.T, w *world, from, to time.Time) (sums [9]int64) {
	t.Helper()
	stream, err := w.as(olga).Reports().StreamCredits(context.Background(), &greylagv1.StreamCreditsRequest{Periods: periods(from, to)})
	must(t, err)
	defer stream.Close()
	var rows []report.Credit
	for stream.Receive() {
		for _, x := range stream.Msg().Rows {
			rows = append(rows, creditOf(x))
		}
	}
	must(t, stream.Err())
	table := report.Credits(rows)
	for _, line := range table.Rows {
		for i := range sums {
			sums[i] += line[3+i].Number
		}
	}
	return sums
}

func creditOf(x *greylagv1.CreditRow) report.Credit {
	return report.Credit{Node: x.Payer, Kind: wire.Word(x.Kind), Class: wire.Word(x.Class), GPUType: x.GpuType, Bucket: x.Bucket, Amount: x.Amount, Entries: x.Entries, Late: x.Late}
}
