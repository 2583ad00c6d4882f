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

// inventoryTimeout bounds finding out which GPUs there are; a driver that
// initialises eight of them takes up to 20 s without its persistence daemon.
const inventoryTimeout = time.Minute

// readyTimeout bounds asking the runtime whether it works.
const readyTimeout = 5 * time.Second

// readier is a runtime that can say whether it works.
type readier interface {
	Ready(context.Context) error
}

// setFault notes why the node is not fit for work, or with "" that this is no
// longer so.
func (a *Agent) setFault(source, reason string) {
	if a.faults[source] == reason {
		return
	}
	if reason == "" {
		delete(a.faults, source)
		a.log.Info("fault is over", "source", source)
	} else {
		a.faults[source] = reason
		a.log.Error("the node takes no more work", "source", source, "reason", reason)
	}
	nudge(a.reports)
}

// fault is all reasons, in a fixed order; "" when the node is fit.
func (s *state) fault() string {
	var reasons []string
	for _, source := range slices.Sorted(maps.Keys(s.faults)) {
		reasons = append(reasons, s.faults[source])
	}
	return strings.Join(reasons, "; ")
}

// lookAtRuntime asks the runtime whether it works. Before the loop, or posted.
func (a *Agent) lookAtRuntime(ctx context.Context) { a.runtimeIs(a.runtimeReady(ctx)) }

// runtimeReady is nil for a runtime that works, or cannot tell.
func (a *Agent) runtimeReady(ctx context.Context) error {
	r, ok := a.runtime.(readier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return r.Ready(ctx)
}

func (a *Agent) runtimeIs(err error) {
	if errors.Is(err, context.Canceled) { // the daemon ends, and knows nothing of the runtime
		return
	}
	if err != nil {
		a.setFault("runtime", err.Error())
		return
	}
	a.setFault("runtime", "")
}

// lookAtGPUs finds out which GPUs there are, and tells the runtime. Before the
// loop, or with what inventory returned, in it.
func (a *Agent) lookAtGPUs(ctx context.Context) { a.gpusAre(a.askGPUs(ctx)) }

func (a *Agent) askGPUs(ctx context.Context) (gpu.Inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	return a.gpus.Inventory(ctx)
}

// gpusAre takes an inventory. GPUs that are not there any more, or different
// ones, mean registering again; an error takes the node out of service and
// leaves the last inventory.
func (a *Agent) gpusAre(inventory gpu.Inventory, err error) {
	same := slices.EqualFunc(a.inventory.Devices, inventory.Devices, func(x, y gpu.Device) bool {
		x.Fault = y.Fault // that may change, and is told with any report
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
		nudge(a.anew)
	} else if !slices.EqualFunc(before, a.devices(), func(x, y *greylagv1.GPU) bool { return x.GetBad() == y.GetBad() }) {
		a.badSince++
		nudge(a.reports)
	}
}

// runtimeSpacing is how often a runtime that does not work is looked at.
const runtimeSpacing = 2 * time.Second

// watchRuntime looks at the runtime now and then, and often while it does not work.
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
		a.post(func() { a.runtimeIs(ready) })
		if !listed && ready == nil {
			if found, err := a.list(ctx); err == nil {
				a.post(func() { a.adopt(ctx, found) })
			}
		}
	}
}

// watchInventory looks at the GPUs now and then.
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
		a.post(func() { a.gpusAre(inventory, err); a.recheckLeftovers() })
	}
}

// watchGPUs takes the GPUs' events.
func (a *Agent) watchGPUs(ctx context.Context) {
	err := a.gpus.Watch(ctx, func(event gpu.Event) { a.post(func() { a.happened(event) }) })
	if err != nil && ctx.Err() == nil {
		a.post(func() { a.setFault("gpu events", "the GPUs are not watched any more: "+err.Error()) })
	}
}

// happened is one event of a GPU, in the loop.
func (a *Agent) happened(event gpu.Event) {
	a.log.Warn("GPU event", "uuid", event.UUID, "xid", event.XID, "message", event.Message)
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
		// An application's own error is told to it, and is its own fault.
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

// setBad notes why a device may not be used; "" that it may.
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
