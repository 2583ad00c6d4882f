package gctld

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/archive"
	commands "github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/spans"
	"github.com/greylag/greylag/internal/version"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// traceSpacing is the pause between two looks at the archive, and after a failure.
	traceSpacing = 5 * time.Second
	// traceOverlap is how far back a new leader begins. It does not know what the last one sent, so spans
	// of this time are sent twice, with the same identifiers.
	traceOverlap = time.Hour
	traceBatch   = 200 // jobs of one request
	traceTimeout = 10 * time.Second
)

// traces sends the spans of finished jobs to a collector while this controller leads.
type traces struct {
	archive *archive.Archive
	leading func() (context.Context, bool)
	percent int // share of the jobs
	clock   func() time.Time
	sender  spans.Sender
	count   func(accepted, rejected int)
	log     *slog.Logger
}

// newTraces returns what sends to an endpoint.
func (d *Daemon) newTraces() *traces {
	return &traces{
		archive: d.store.archive, leading: d.loops.Leading, percent: d.cfg.Traces.SamplePercent, clock: clock, log: d.log,
		sender: spans.Sender{
			Endpoint: d.cfg.Traces.Endpoint, ClusterID: d.trust.ClusterID(), Version: version.Version,
			Client: &http.Client{Timeout: traceTimeout},
		},
		count: d.observed.SpansSent,
	}
}

// traceID returns what names the traces of jobs in the log; nil without an endpoint.
func (d *Daemon) traceID() func(cluster.JobID) string {
	if d.cfg.Traces.Endpoint == "" {
		return nil
	}
	return func(id cluster.JobID) string {
		trace := spans.TraceOf(d.trust.ClusterID(), id)
		return hex.EncodeToString(trace[:])
	}
}

// run sends until ctx ends. With no endpoint it returns at once.
func (t *traces) run(ctx context.Context) {
	if t.sender.Endpoint == "" {
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
	for {
		more, err := t.step(ctx, begins, &next)
		switch {
		case err == nil:
			failed = ""
		case err.Error() != failed && ctx.Err() == nil:
			failed = err.Error()
			t.log.Warn("cannot send traces, retrying", "err", err, "endpoint", t.sender.Endpoint, "again", traceSpacing)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-term.Done():
			return
		case <-tick:
		}
	}
}

// step sends one batch of jobs from a number on; 0 is the first job that ended after begins. more
// reports that further jobs may have ended.
func (t *traces) step(ctx context.Context, begins cluster.Instant, next *uint64) (more bool, err error) {
	if *next == 0 {
		first, _, err := t.archive.Ended(begins, cluster.Never, archive.Position{}, 1)
		if err != nil || len(first) == 0 {
			return false, err
		}
		*next = first[0].Seq
	}
	records, err := t.archive.Between(*next, traceBatch)
	if err != nil || len(records) == 0 {
		return false, err
	}
	var list []spans.Span
	for i := range records {
		if !spans.TraceOf(t.sender.ClusterID, records[i].ID).Sampled(t.percent) {
			continue
		}
		job, err := commands.DecodeJob(records[i].Data)
		if err != nil {
			return false, err
		}
		list = append(list, spans.Of(t.sender.ClusterID, job)...)
	}
	if len(list) > 0 {
		rejected, err := t.sender.Send(ctx, list)
		if err != nil && !errors.Is(err, spans.ErrRejected) {
			return false, err
		}
		if err != nil {
			t.log.Warn("spans are lost", "err", err)
		}
		t.count(len(list)-rejected, rejected)
	}
	*next = records[len(records)-1].Seq + 1
	return len(records) == traceBatch, nil
}
