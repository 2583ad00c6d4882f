package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
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

// applyInventory applies an inventory. Missing or different GPUs make the node register again. An error
// takes the node out of service and keeps the last inventory.
func (a *Agent) applyInventory(inventory gpu.Inventory, err error) {
	same := slices.EqualFunc(a.inventory.Devices, inventory.Devices, func(x, y gpu.Device) bool {
		x.Fault = y.Fault // may change; every report has it
		return x.GPU == y.GPU && slices.Equal(x.Files, y.Files)
	}) && slices.Equal(a.inventory.Common, inventory.Common)
	if err == nil && !same && a.cfg.Describe != nil {
		err = a.cfg.Describe(inventory)
	}
	if err != nil {
		a.setFault("gpus", fmt.Sprintf("cannot use the GPUs: %v", err))
		return
	}
	a.setFault("gpus", "")
	before := a.devices()
	a.inventory = inventory
	if !same {
		nudge(a.reregister)
	} else if !slices.EqualFunc(before, a.devices(), func(x, y *greylagv1.GPU) bool { return x.GetFault() == y.GetFault() }) {
		a.badSince++
		nudge(a.reports)
	}
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
		inventory, err := a.askGPUs(ctx)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.applyInventory(inventory, err); a.recheckBusyGPUs() })
		space, err := a.checkScratch()
		a.post(func() { a.applyScratch(space, err); a.deleteScratch() })
	}
}

// watchGPUs receives the events of the GPUs.
func (a *Agent) watchGPUs(ctx context.Context) {
	err := a.gpus.Watch(ctx, func(event gpu.Event) { a.post(func() { a.handleGPUEvent(event) }) })
	if err != nil && ctx.Err() == nil {
		a.post(func() { a.setFault("gpu events", "GPU events are not received: "+err.Error()) })
	}
}

// handleGPUEvent handles one event of a GPU. It runs in the loop.
func (a *Agent) handleGPUEvent(event gpu.Event) {
	a.log.Warn("GPU event", "uuid", event.UUID, "xid", event.XID, "message", event.Message)
	if event.XID != 0 {
		a.xids[xid{event.UUID, event.XID, event.Severity}]++
		a.lastXID[event.UUID] = event.XID
	}
	switch event.Severity {
	case gpu.Degraded, gpu.Broken:
		for _, device := range a.inventory.Devices {
			if event.UUID == "" || device.UUID == event.UUID {
				a.setBad(device.UUID, event.Message)
			}
		}
	case gpu.Healed:
		a.setBad(event.UUID, "")
	}
	if event.Severity == gpu.Healed {
		return
	}
	for _, t := range a.tasks {
		uuids := a.uuidsOf(t)
		if t.Phase >= reconcile.Ended || len(uuids) == 0 || event.UUID != "" && !slices.Contains(uuids, event.UUID) {
			continue
		}
		// An error of the application is its own fault; its task reports it.
		if event.Severity == gpu.Notice {
			continue
		}
		t.Blame = event.Message
		if event.Severity == gpu.Broken {
			t.Doomed = event.Message
		}
		a.dirty[t.ID] = true
	}
}

// setBad sets the reason why a device may not be used; "" clears it.
func (a *Agent) setBad(uuid, why string) {
	if a.bad[uuid] == why {
		return
	}
	a.bad[uuid] = why
	if why == "" {
		delete(a.bad, uuid)
	}
	a.badSince++
	nudge(a.reports)
}
