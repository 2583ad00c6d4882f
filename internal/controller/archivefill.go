package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ArchiveGaps is the part of the archive that a Filler needs.
type ArchiveGaps interface {
	Gaps() ([]archive.Gap, error)
	Missing([]cluster.Digest) ([]cluster.Digest, error)
	Fill([]archive.Record, []archive.Blob) error
	RowGaps(archive.Journal) ([]archive.Gap, error)
	FillRows(archive.Journal, []archive.Row) error
}

// Peers requests data of other controllers; package client implements it.
type Peers interface {
	Finished(ctx context.Context, addr string, from uint64, limit int) (records [][]byte, next uint64, err error)
	Blobs(ctx context.Context, addr string, digests []cluster.Digest) ([][]byte, error)
	Rows(ctx context.Context, addr string, journal uint32, from uint64, limit int) ([][]byte, error)
}

// Filler completes the archive of a controller that was away so long that it received a snapshot
// instead of the log. It requests from the others the jobs that ended meanwhile and the scripts of
// all jobs. All fields except Logger are required.
type Filler struct {
	Replica *Replica
	Archive ArchiveGaps
	Peers   Peers
	Others  func() []string // addresses of the other controllers
	Logger  *slog.Logger

	whole atomic.Bool
	lacks atomic.Pointer[string] // why the archive is incomplete; nil: it is complete, or Run has not checked yet

	mu     sync.Mutex
	absent map[cluster.Digest]bool // needed by jobs and on no controller
}

// Absent reports whether a script or an environment is on no controller: all of them answered, and
// none has it. If it appears later, the archive finds it first.
func (f *Filler) Absent(d cluster.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.absent[d]
}

// Complete reports whether the archive is complete as far as known.
func (f *Filler) Complete() bool { return f.whole.Load() }

// Missing returns why the archive is incomplete; "" if it is complete as far as known.
func (f *Filler) Missing() string {
	if why := f.lacks.Load(); why != nil {
		return *why
	}
	return ""
}

const (
	fillRecords = 1000 // records per request
	fillBlobs   = 32
	fillRetry   = 10 * time.Second
)

// errNobodyHas reports that no other controller has the missing data.
var errNobodyHas = errors.New("no other controller has it, or none answers")

// Run fills until ctx ends: at the start, and after every restore of the state.
func (f *Filler) Run(ctx context.Context) {
	log := f.Logger
	if log == nil {
		log = slog.Default()
	}
	f.logHistory(log)
	for {
		var again <-chan time.Time
		if err := f.try(ctx, log); err != nil && ctx.Err() == nil {
			again = time.After(fillRetry)
		}
		select {
		case <-again:
		case <-f.Replica.restored:
		case <-ctx.Done():
			return
		}
	}
}

// try fills once. It logs why the archive is incomplete only when the reason changes.
func (f *Filler) try(ctx context.Context, log *slog.Logger) error {
	err := f.fill(ctx)
	f.whole.Store(err == nil)
	before := f.Missing()
	switch {
	case err == nil:
		f.lacks.Store(nil)
	case ctx.Err() == nil && err.Error() != before:
		why := err.Error()
		f.lacks.Store(&why)
		log.Warn("the archive is not complete", "err", err, "retry_in", fillRetry)
	}
	return err
}

// logHistory logs once where the history of a restored cluster begins.
func (f *Filler) logHistory(log *slog.Logger) {
	h := f.Replica.View().History()
	if h.FirstJob > 0 || h.Credits > 0 || h.Audit > 0 {
		log.Info("the cluster was restored from a backup without history", "restored", h.Restored.Time(), "backup", h.Taken.Time(),
			"first_job", h.FirstJob, "credits_from", h.Credits+1, "audit_from", h.Audit+1)
	}
}

func (f *Filler) fill(ctx context.Context) error {
	digests := map[cluster.Digest]struct{}{}
	for job := range f.Replica.View().Jobs(0) {
		digests[job.Spec.Script], digests[job.Spec.Environment] = struct{}{}, struct{}{}
	}
	for record := range f.Replica.View().Tail(0) {
		digests[record.Job.Spec.Script], digests[record.Job.Spec.Environment] = struct{}{}, struct{}{}
	}
	if err := f.fillBlobs(ctx, digests); err != nil {
		return err
	}
	if err := f.fillJournals(ctx); err != nil {
		return err
	}
	for {
		gaps, err := f.Archive.Gaps()
		if err != nil || len(gaps) == 0 {
			return err
		}
		for _, g := range gaps {
			if err := f.fillGap(ctx, g); err != nil {
				return fmt.Errorf("finished jobs %d to %d: %w", g.First, g.Last, err)
			}
		}
	}
}

// fillGap gets one part of a gap from any controller that has it.
func (f *Filler) fillGap(ctx context.Context, g archive.Gap) error {
	limit := int(min(g.Last-g.First+1, fillRecords))
	err := errNobodyHas
	for _, addr := range f.Others() {
		data, next, e := f.Peers.Finished(ctx, addr, g.First, limit)
		if e != nil {
			err = e
			continue
		}
		if len(data) == 0 || next-g.First != uint64(len(data)) {
			continue // it has the same gap
		}
		records, digests, e := parseRecords(g.First, data)
		if e != nil {
			err = fmt.Errorf("%s: %w", addr, e)
			continue
		}
		if err := f.Archive.Fill(records, nil); err != nil {
			return err
		}
		return f.fillBlobs(ctx, digests)
	}
	return err
}

func parseRecords(first uint64, data [][]byte) ([]archive.Record, map[cluster.Digest]struct{}, error) {
	var records []archive.Record
	digests := map[cluster.Digest]struct{}{}
	for i, d := range data {
		job, err := command.DecodeJob(d)
		if err != nil {
			return nil, nil, fmt.Errorf("finished job %d: %w", first+uint64(i), err)
		}
		records = append(records, recordOf(first+uint64(i), job, d))
		digests[job.Spec.Script], digests[job.Spec.Environment] = struct{}{}, struct{}{}
	}
	return records, digests, nil
}

// fillBlobs gets missing blobs from any controller that has them.
func (f *Filler) fillBlobs(ctx context.Context, digests map[cluster.Digest]struct{}) error {
	list := make([]cluster.Digest, 0, len(digests))
	for d := range digests {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b cluster.Digest) int { return slices.Compare(a[:], b[:]) })
	missing, err := f.Archive.Missing(list)
	if err != nil {
		return err
	}
	var lost error
	for part := range slices.Chunk(missing, fillBlobs) {
		got, failure := f.askBlobs(ctx, part)
		if err := f.Archive.Fill(nil, got); err != nil {
			return err
		}
		if n := f.lost(part, got, failure); n > 0 {
			lost = fmt.Errorf("%d scripts or environments: %w", n, failure)
		}
	}
	return lost
}

// lost counts the blobs that may be on a controller that did not answer. It records those that none
// has: usually no job needs them any more ([Sweeper]), and jobs that do cannot run.
func (f *Filler) lost(wanted []cluster.Digest, got []archive.Blob, failure error) (n int) {
	have := map[cluster.Digest]bool{}
	for _, b := range got {
		have[b.Digest] = true
	}
	view := f.Replica.View()
	needed := 0
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range wanted {
		switch {
		case have[d]:
			delete(f.absent, d)
		case failure != nil:
			n++
		case view.Needs(d) && !f.absent[d]:
			if f.absent == nil {
				f.absent = map[cluster.Digest]bool{}
			}
			f.absent[d] = true
			needed++
		}
	}
	if needed > 0 && f.Logger != nil {
		f.Logger.Warn("no controller has some job scripts or environments: these jobs cannot start, resubmit them", "missing", needed)
	}
	return n
}

// askBlobs asks each controller for what the previous ones lacked. It discards content that does
// not match its digest.
func (f *Filler) askBlobs(ctx context.Context, wanted []cluster.Digest) (got []archive.Blob, err error) {
	for _, addr := range f.Others() {
		if len(wanted) == 0 {
			return got, nil
		}
		contents, e := f.Peers.Blobs(ctx, addr, wanted)
		if e != nil {
			err = e
			continue
		}
		var rest []cluster.Digest
		for i, d := range wanted {
			if i < len(contents) && sha256.Sum256(contents[i]) == d {
				got = append(got, archive.Blob{Digest: d, Content: contents[i]})
			} else {
				rest = append(rest, d)
			}
		}
		wanted = rest
	}
	return got, err
}
