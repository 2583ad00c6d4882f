package agent

import (
	"context"
	"time"

	tasks "github.com/greylag/greylag/internal/runtime"
)

const (
	// collectFirst is the delay of the first image collection after the start of the node, and
	// collectSpacing the interval after that.
	collectFirst   = 10 * time.Minute
	collectSpacing = time.Hour
	collectLimit   = 10 * time.Minute
)

// collectImages deletes unused images above the limits, until ctx ends.
func (a *Agent) collectImages(ctx context.Context) {
	collector, ok := a.runtime.(tasks.Collector)
	if !ok {
		return
	}
	timer := time.NewTimer(collectFirst)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, collectLimit)
		did, err := collector.Collect(limited, a.cfg.Images)
		cancel()
		if err != nil && ctx.Err() == nil {
			a.log.Warn("cannot delete unused images, trying again", "err", err, "retry_in", collectSpacing)
		}
		if len(did.Deleted) > 0 {
			a.log.Info("deleted unused images", "images", did.Deleted, "bytes", did.DeletedBytes, "kept", did.Kept, "kept_bytes", did.KeptBytes)
		}
		timer.Reset(collectSpacing)
	}
}
