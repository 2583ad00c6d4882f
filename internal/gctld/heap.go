package gctld

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// spare is how much the heap may grow between two collections: it trades a controller's memory
	// for processor time. As a percentage of live bytes it is at most mostGrowth, which is enough
	// for a small heap, and at least Go's default.
	spare                  = 512 << 20
	mostGrowth, goesGrowth = 400, 100
	// heapSpacing is the time between two checks of the heap.
	heapSpacing = time.Second
)

// growth returns the percentage by which a heap with that many live bytes may grow.
func growth(live uint64) int {
	return int(min(max(100*spare/max(live, 1), goesGrowth), mostGrowth))
}

// heap adjusts the collector's setting as the state grows and shrinks, until ctx ends. It does
// nothing if GOGC is set.
func (d *Daemon) heap(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	ticker := time.NewTicker(heapSpacing)
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := goesGrowth; ; {
		metrics.Read(live)
		if percent := growth(live[0].Value.Uint64()); percent/10 != set/10 {
			set = percent
			debug.SetGCPercent(set) // stops the world for a moment: only when necessary
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
