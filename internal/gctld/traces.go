package gctld

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/archive"
	commands "github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/spans"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// traceSpacing is the polling interval of the archive, and the pause after a failure.
	traceSpacing = 5 * time.Second
	// traceOverlap is how far back a new leader begins. It does not know what the last one sent, so spans
	// of this time are sent twice, with the same identifiers.
	traceOverlap = time.Hour
	// traceFirst is how many of the jobs that ended first in that time are checked to find the first
	// record: a job can end long before its last node is clean, which decides the order of records.
	traceFirst = 1000
	traceRead  = 50 // records read at once
)

// traces sends the spans of finished jobs to a collector while this controller leads.
type traces struct {
	archive   *archive.Archive
	leading   func() (context.Context, bool)
	clusterID string
	percent   int // share of the jobs
	clock     func() time.Time
	sender    *spans.Sender // nil: no traces
	count     func(accepted, rejected int)
	log       *slog.Logger
}

// newTraces returns what sends to the configured endpoint.
func (d *Daemon) newTraces() *traces {
	t := &traces{
		archive: d.store.archive, leading: d.loops.Leading, clusterID: d.trust.ClusterID(),
		percent: d.cfg.Traces.SamplePercent, clock: clock, count: d.observed.SpansSent, log: d.log,
	}
	if d.cfg.Traces.Endpoint != "" {
		t.sender = spans.NewSender(d.cfg.Traces.Endpoint, t.clusterID, version.Version)
	}
	return t
}

// traceID returns what names the traces of jobs in the log; nil without an endpoint.
func (d *Daemon) traceID() func(cluster.JobID) string {
	if d.cfg.Traces.Endpoint == "" {
		return nil
	}
	return func(id cluster.JobID) string {
		trace := spans.TraceOf(d.trust.ClusterID(), id)
		if !trace.Sampled(d.cfg.Traces.SamplePercent) {
			return ""
		}
		return hex.EncodeToString(trace[:])
	}
}

// run sends until ctx ends. With no endpoint it returns at once.
func (t *traces) run(ctx context.Context) {
	if t.sender == nil {
		return
	}
	ticker := time.NewTicker(traceSpacing)
	defer ticker.Stop()
	for {
		if term, leads := t.leading(); leads {
			t.follow(ctx, term, ticker.C)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// follow sends what has ended since an hour before a term, until the term ends.
func (t *traces) follow(ctx, term context.Context, tick <-chan time.Time) {
	begins := cluster.Instant(t.clock().Add(-traceOverlap).UnixNano())
	var next uint64
	failed := ""
	for ctx.Err() == nil && term.Err() == nil {
		more, err := t.step(ctx, begins, &next)
		switch {
		case err == nil:
			failed = ""
		case err.Error() != failed && ctx.Err() == nil:
			failed = err.Error()
			t.log.Warn("cannot send traces, retrying", "err", err, "retry_in", traceSpacing)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-term.Done():
		case <-tick:
		}
	}
}

// step sends jobs from a record on; 0 is the first one that ended after begins. It moves next behind
// each record whose spans were sent or rejected. more reports that further jobs may have ended.
func (t *traces) step(ctx context.Context, begins cluster.Instant, next *uint64) (more bool, err error) {
	if *next == 0 {
		first, _, err := t.archive.Ended(begins, cluster.Never, archive.Position{}, traceFirst)
		if err != nil || len(first) == 0 {
			return false, err
		}
		*next = slices.MinFunc(first, func(a, b archive.Record) int { return cmp.Compare(a.Seq, b.Seq) }).Seq
	}
	records, err := t.archive.Between(*next, traceRead)
	if err != nil || len(records) == 0 {
		return false, err
	}
	var list []spans.Span
	for i := range records {
		list = append(list, t.spansOf(&records[i])...)
		if len(list) < spans.MaxSpans && i < len(records)-1 {
			continue
		}
		if err := t.send(ctx, list); err != nil {
			return false, err
		}
		list, *next = nil, records[i].Seq+1
	}
	return len(records) == traceRead, nil
}

// spansOf returns the spans of a record; none if the job is not sampled, or was archived by a newer
// version that this one cannot read.
func (t *traces) spansOf(r *archive.Record) []spans.Span {
	if !spans.TraceOf(t.clusterID, r.ID).Sampled(t.percent) {
		return nil
	}
	job, err := commands.DecodeJob(r.Data)
	if err != nil {
		t.log.Warn("a job has no trace", "job", r.ID, "err", err)
		return nil
	}
	return spans.Of(t.clusterID, job)
}

// send sends spans in requests of bounded size. What the collector rejects is counted, and lost.
func (t *traces) send(ctx context.Context, list []spans.Span) error {
	for part := range slices.Chunk(list, spans.MaxSpans) {
		rejected, err := t.sender.Send(ctx, part)
		if err != nil && !errors.Is(err, spans.ErrRejected) {
			return err
		}
		if err != nil {
			t.log.Warn("collector rejected spans", "err", err, "spans", rejected)
		}
		t.count(len(part)-rejected, rejected)
	}
	return nil
}
