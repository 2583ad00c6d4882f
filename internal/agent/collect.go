package agent

import (
	"context"
	"time"

	tasks "github.com/greylag/greylag/internal/runtime"
)

const (
	// collectFirst is when images are first looked at, after what a node has to do
	// when it starts; collectSpacing how often then.
	collectFirst   = 10 * time.Minute
	collectSpacing = time.Hour
	collectLimit   = 10 * time.Minute
)

// collectImages keeps the node's images within bounds, until ctx ends.
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
			a.log.Warn("unused images are not deleted, trying again", "err", err, "again", collectSpacing)
		}
		if len(did.Deleted) > 0 {
			a.log.Info("unused images deleted", "images", did.Deleted, "bytes", did.DeletedBytes, "kept", did.Kept, "kept_bytes", did.KeptBytes)
		}
		timer.Reset(collectSpacing)
	}
}
