package server_test

import (
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// endedLease returns the row of a lease whose end was recorded at an instant.
func endedLease(seq uint64, booked time.Time, account string) archive.Row {
	at := cluster.InstantOf(booked)
	x := cluster.EndedLease{Seq: seq, Partition: "cloud", Lease: cluster.Lease{
		ID: cluster.LeaseID(seq), Job: 7, Account: account, Offer: cluster.Offer{Name: "p5/a", Market: cluster.Spot, Region: "us", Type: "p5"},
		State: cluster.LeaseGone, Since: at, Created: at.Add(-3 * time.Hour), Launched: at.Add(-2 * time.Hour), Ended: at.Add(-time.Minute), Lifetime: time.Hour,
		Cost: int64(seq), Currency: "USD", Instance: "i-1",
	}}
	return archive.Row{Seq: seq, Data: command.EncodeEndedLease(&x)}
}

// leasesOf returns the leases of periods, and the first message.
func leasesOf(t *testing.T, w *world, p *greylagv1.Periods) (list []*greylagv1.EndedLease, first *greylagv1.StreamEndedLeasesResponse) {
	t.Helper()
	stream, err := w.as(olga).Reports().StreamEndedLeases(t.Context(), &greylagv1.StreamEndedLeasesRequest{Periods: p})
	must(t, err)
	defer stream.Close()
	for stream.Receive() {
		if list = append(list, stream.Msg().Leases...); first == nil {
			first = stream.Msg()
		}
	}
	must(t, stream.Err())
	return list, first
}

// TestReportLeases checks that each lease counts once, in the period in which its end was recorded, also over the end of a
// month, and that a controller that lacks some says so.
func TestReportLeases(t *testing.T) {
	w := newWorld(t, options{})
	store, month := w.all[0].store, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const count = 1300 // more than a page of the journal, and of the answer
	for seq := uint64(1); seq <= count; seq++ {
		must(t, store.AppendRows(seq, archive.LeaseJournal, []archive.Row{endedLease(seq, month.Add(time.Duration(seq-700)*time.Hour), "physics")}))
	}
	p := periods(month.AddDate(0, -2, 0), month, month.AddDate(0, 2, 0))
	list, first := leasesOf(t, w, p)
	sums := map[uint32]int64{}
	for i, x := range list {
		if sums[x.Period] += x.Cost; x.Lease != uint64(i+1) || x.Ran.AsDuration() != time.Hour || x.Partition != "cloud" || x.Currency != "USD" {
			t.Fatalf("lease %d: %v", i, x)
		}
	}
	if len(list) != count || sums[0] != 699*700/2 || sums[0]+sums[1] != count*(count+1)/2 || !first.Head.Ready || len(first.Partitions) != 1 {
		t.Errorf("%d leases, sums %v, %v", len(list), sums, first.Head)
	}
	if list, _ := leasesOf(t, w, periods(month, month.Add(time.Hour))); len(list) != 1 || list[0].Lease != 700 {
		t.Errorf("the first hour of the month: %v", list)
	}
	must(t, store.AppendRows(2000, archive.LeaseJournal, []archive.Row{endedLease(count+5, month.AddDate(0, 3, 0), "physics")}))
	if _, first := leasesOf(t, w, p); first.Head.Ready || first.Head.Incomplete == "" {
		t.Errorf("with a gap: %v", first.Head)
	}
}
