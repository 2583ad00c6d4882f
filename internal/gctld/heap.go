package gctld

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// spare is what the heap may grow between two collections: memory that a
	// controller has, for processor time that those who submit want. In percent of
	// what lives it is at most mostGrowth, which is enough for a small heap, and at
	// least Go's own choice.
	spare                  = 512 << 20
	mostGrowth, goesGrowth = 400, 100
	// heapSpacing is between two looks at the heap.
	heapSpacing = time.Second
)

// growth is the percentage by which a heap of so many living bytes may grow.
func growth(live uint64) int {
	return int(min(max(100*spare/max(live, 1), goesGrowth), mostGrowth))
}

// heap keeps the collector's setting right while the state grows and shrinks, until
// ctx ends. Whoever has set GOGC has chosen.
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
			debug.SetGCPercent(set) // stops the world for a moment: not without need
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
