package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/pkg/cluster"
)

// sweepSpacing is how often the archive is swept; sweepFirst is when it is first,
// after what a controller has to do when it starts.
const (
	sweepSpacing = time.Hour
	sweepFirst   = time.Minute
)

// Sweepable deletes scripts and environments that no job needs.
type Sweepable interface {
	Sweep(now cluster.Instant, keep archive.Keep, needed func(cluster.Digest) bool) (archive.Swept, error)
}

// Sweeper keeps the archive's scripts and environments within bounds. Each controller
// has one: what it deletes is of its own archive alone, and what an active job names,
// or one that is about to be submitted may name, stays.
type Sweeper struct {
	Replica *Replica
	Archive Sweepable
	Keep    archive.Keep
	Logger  *slog.Logger
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	timer := time.NewTimer(sweepFirst)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s.sweep()
		timer.Reset(sweepSpacing)
	}
}

// sweep asks the state as it is when each is deleted: whatever came since was in the
// state before it came to the archive.
func (s *Sweeper) sweep() {
	if s.Replica.View().Index() == 0 {
		return // nothing is known yet of what is needed
	}
	did, err := s.Archive.Sweep(s.Replica.View().Now(), s.Keep, func(d cluster.Digest) bool { return s.Replica.View().HasBlob(d) })
	switch {
	case err != nil:
		s.Logger.Warn("old scripts and environments are not deleted, trying again", "err", err, "again", sweepSpacing)
	case did.Deleted > 0:
		s.Logger.Info("old scripts and environments deleted", "deleted", did.Deleted, "bytes", did.DeletedBytes,
			"kept", did.Kept, "kept_bytes", did.KeptBytes)
	}
}
