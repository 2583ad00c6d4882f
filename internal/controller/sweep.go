package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/pkg/cluster"
)

// sweepSpacing is the interval between sweeps of the archive. sweepFirst is the delay of the first
// one after the start.
const (
	sweepSpacing = time.Hour
	sweepFirst   = time.Minute
)

// Sweepable deletes blobs that no job needs.
type Sweepable interface {
	Sweep(now cluster.Instant, keep archive.Keep, needed func(cluster.Digest) bool) (archive.Swept, error)
}

// Sweeper limits the scripts and environments in the archive. Each controller has one for its own
// archive. Blobs that an active job or a pending submission may name stay.
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

// sweep checks each deletion against the current state: new blobs are in the state before they
// reach the archive.
func (s *Sweeper) sweep() {
	if s.Replica.View().Index() == 0 {
		return // the needed blobs are unknown
	}
	did, err := s.Archive.Sweep(s.Replica.View().Now(), s.Keep, func(d cluster.Digest) bool { return s.Replica.View().HasBlob(d) })
	switch {
	case err != nil:
		s.Logger.Warn("cannot delete old scripts and environments, trying again", "err", err, "retry_in", sweepSpacing)
	case did.Deleted > 0:
		s.Logger.Info("deleted old scripts and environments", "deleted", did.Deleted, "bytes", did.DeletedBytes,
			"kept", did.Kept, "kept_bytes", did.KeptBytes)
	}
}
