package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/gpu"
)

// inventoryTimeout is the timeout of a GPU inventory. A driver that initialises eight GPUs takes up
// to 20 s without its persistence daemon.
const inventoryTimeout = time.Minute

// readyTimeout is the timeout of a health check of the runtime.
const readyTimeout = 5 * time.Second

// readier is a runtime that can report whether it works.
type readier interface {
	Ready(context.Context) error
}

// setFault sets the reason of a fault by source; "" clears it.
func (a *Agent) setFault(source, reason string) {
	if a.faults[source] == reason {
		return
	}
	if reason == "" {
		delete(a.faults, source)
		a.log.Info("fault cleared", "source", source)
	} else {
		a.faults[source] = reason
		a.log.Error("node unhealthy: no new tasks", "source", source, "reason", reason)
	}
	nudge(a.reports)
}

// fault returns all reasons in a fixed order; "" if the node is fit.
func (s *state) fault() string {
	var reasons []string
	for _, source := range slices.Sorted(maps.Keys(s.faults)) {
		reasons = append(reasons, s.faults[source])
	}
	return strings.Join(reasons, "; ")
}

// checkRuntime checks whether the runtime works. It runs before the loop, or posted to it.
func (a *Agent) checkRuntime(ctx context.Context) { a.applyRuntimeStatus(a.runtimeReady(ctx)) }

// runtimeReady returns nil if the runtime works or cannot report it.
func (a *Agent) runtimeReady(ctx context.Context) error {
	r, ok := a.runtime.(readier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return r.Ready(ctx)
}

func (a *Agent) applyRuntimeStatus(err error) {
	if errors.Is(err, context.Canceled) { // the daemon is stopping; the state of the runtime is unknown
		return
	}
	if err != nil {
		a.setFault("runtime", err.Error())
		return
	}
	a.setFault("runtime", "")
}

// takeInventory takes an inventory of the GPUs and passes it to the runtime. It runs before the loop.
func (a *Agent) takeInventory(ctx context.Context) { a.applyInventory(a.askGPUs(ctx)) }

func (a *Agent) askGPUs(ctx context.Context) (gpu.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	return a.gpus.Inventory(ctx)
}

// runtimeSpacing is the interval between checks of a runtime that does not work.
const runtimeSpacing = 2 * time.Second

// watchRuntime checks the runtime periodically, and often while it does not work.
func (a *Agent) watchRuntime(ctx context.Context) {
	spacing := min(a.cfg.Health, runtimeSpacing)
	seldom := int(a.cfg.Health / spacing)
	ticker := time.NewTicker(spacing)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var works, listed bool
		if a.ask(ctx, func() { works, listed = a.faults["runtime"] == "", a.listed }) != nil {
			return
		}
		if works && listed && n%seldom != 0 {
			continue
		}
		ready := a.runtimeReady(ctx)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.applyRuntimeStatus(ready) })
		if !listed && ready == nil {
			if found, err := a.list(ctx); err == nil {
				a.post(func() { a.adopt(ctx, found) })
			}
		}
	}
}

// watchInventory takes an inventory of the GPUs, and checks the scratch space, periodically.
func (a *Agent) watchInventory(ctx context.Context) {
	ticker := time.NewTicker(a.cfg.Health)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.divideGPUs(ctx)
		inventory, err := a.probeGPUs(ctx)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.applyInventory(inventory, err); a.recheckBusyGPUs() })
		space, unusable := a.checkScratch()
		a.post(func() { a.applyScratch(space, unusable); a.deleteScratch() })
	}
}
