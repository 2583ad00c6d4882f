package server_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// came is the usage of a period: GPU milliseconds, jobs, attempts that ended.
type came struct{ gpu, jobs, attempts int64 }

// recounted computes the usage of the jobs of feed in a period from their times alone.
func recounted(t *testing.T, from, to time.Time) (c came) {
	t.Helper()
	inside := func(at cluster.Instant) bool { return !at.Time().Before(from) && at.Time().Before(to) }
	run := func(started, ended cluster.Instant) {
		begin, end := started.Time(), ended.Time()
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		c.gpu += 4 * max(end.Sub(begin).Milliseconds(), 0)
		if inside(ended) {
			c.attempts++
		}
	}
	for seq := uint64(1); seq <= 2000; seq++ {
		j, err := command.DecodeJob(endedJob(seq).Data)
		must(t, err)
		for _, a := range j.Attempts {
			run(a.Started, a.Ended)
		}
		run(j.Started, j.Ended)
		if inside(j.Ended) {
			c.jobs++
		}
	}
	return c
}

// counted returns the report of each period.
func counted(t *testing.T, w *world, bounds []time.Time) []came {
	t.Helper()
	stream, err := w.as(olga).Reports().StreamUsage(context.Background(), &greylagv1.StreamUsageRequest{Periods: periods(bounds...)})
	must(t, err)
	defer stream.Close()
	out := make([]came, len(bounds)-1)
	for stream.Receive() {
		for _, r := range stream.Msg().Rows {
			c := &out[r.Period]
			c.gpu, c.attempts = c.gpu+r.Gpu, c.attempts+r.Attempts
			for _, n := range r.Ended {
				c.jobs += n
			}
		}
	}
	must(t, stream.Err())
	return out
}

// TestReportOfAnyInterval checks that periods that begin and end on any second equal the usage of
// their jobs, also several within half an hour.
func TestReportOfAnyInterval(t *testing.T) {
	w := newWorld(t, options{})
	feed(t, w, func() int { return 400 })
	r := rand.New(rand.NewPCG(5, 6))
	for range 12 {
		at := map[int64]bool{}
		base, spread := r.Int64N(3*86400), int64(1)<<(6+r.IntN(12))
		for range 2 + r.IntN(4) {
			at[base+r.Int64N(spread)] = true
			at[(base+r.Int64N(spread))/1800*1800] = r.IntN(2) == 0
		}
		var bounds []time.Time
		for _, s := range slices.Sorted(maps.Keys(at)) {
			bounds = append(bounds, reportDay.Add(time.Duration(s)*time.Second))
		}
		for i, got := range counted(t, w, bounds) {
			if want := recounted(t, bounds[i], bounds[i+1]); got != want {
				t.Errorf("from %s to %s: %+v, want %+v", bounds[i].Format(time.DateTime), bounds[i+1].Format(time.DateTime), got, want)
			}
		}
	}
}

// TestReportWithAGap checks that a controller that lacks history reports what it lacks, and that no
// report of its rows is ready.
func TestReportWithAGap(t *testing.T) {
	w := newWorld(t, options{})
	var before, gap, after []archive.Record
	for seq := uint64(1); seq <= 30; seq++ {
		list := []*[]archive.Record{&before, &gap, &after}[(seq-1)/10]
		*list = append(*list, endedJob(seq))
	}
	store := w.all[0].store
	must(t, store.Append(1, before, nil))
	must(t, store.Append(2, after, nil))
	p := periods(reportDay, reportDay.AddDate(0, 0, 1))
	heads := func() (list []*greylagv1.ReportHead) {
		_, head := usageOf(t, w, olga, p)
		ended, err := w.as(olga).Reports().StreamEndedJobs(context.Background(), &greylagv1.StreamEndedJobsRequest{Periods: p})
		must(t, err)
		defer ended.Close()
		ended.Receive()
		must(t, ended.Err())
		return append(list, head, ended.Msg().Head)
	}
	const want = "lacks records of finished jobs after number 10 and is fetching them from the others"
	for _, h := range heads() {
		if h.Ready || h.Incomplete != fmt.Sprintf("controller %s %s", h.AsOf.Controller, want) || h.Open != h.Incomplete {
			t.Errorf("with a gap: %v", h)
		}
	}
	must(t, store.Fill(gap, nil))
	for _, h := range heads() {
		if !h.Ready || h.Incomplete != "" || h.WatermarkSeq != 30 {
			t.Errorf("when it is filled: %v", h)
		}
	}
	must(t, store.AppendRows(3, archive.CreditJournal, []archive.Row{{Seq: 1, Data: []byte("no entry")}}))
	damaged, err := w.as(olga).Reports().StreamCredits(context.Background(), &greylagv1.StreamCreditsRequest{Periods: p})
	must(t, err)
	defer damaged.Close()
	if damaged.Receive() || connect.CodeOf(damaged.Err()) != connect.CodeDataLoss {
		t.Errorf("a journal that cannot be read: %v", damaged.Err())
	}
	must(t, store.ExpectRows(archive.CreditJournal, 0))
	must(t, store.ExpectRows(archive.CreditJournal, 5))
	if _, h := usageOf(t, w, olga, p); h.Ready || h.Incomplete == "" {
		t.Errorf("with a gap in the journal: %v", h)
	}
}

// TestReportWaitsForTheLogsClock checks that a period is over when the log's clock has passed it.
// This controller's clock may be ahead of the one that stamps the next entry.
func TestReportWaitsForTheLogsClock(t *testing.T) {
	w := newWorld(t, options{})
	ask := func(end time.Time) *greylagv1.ReportHead {
		_, head := usageOf(t, w, olga, periods(end.Add(-time.Hour), end))
		return head
	}
	var end time.Time
	w.until("a period after which nothing was logged yet", func() bool { // the leader logs some entries itself
		end = ask(reportDay).AsOf.Time.AsTime().Truncate(time.Second).Add(time.Second)
		w.until("the clock passes the period", func() bool { return time.Now().After(end) })
		h := ask(end)
		if later := h.AsOf.Time.AsTime().After(end); h.Ready != later {
			t.Errorf("the period ends at %s: %v", end, h)
		}
		return !h.Ready
	})
	w.submit(w.as(ann), job("moves the log's clock"))
	if h := ask(end); !h.Ready || h.Open != "" {
		t.Errorf("after an entry of %s: %v", h.AsOf.Time.AsTime(), h)
	}
}
