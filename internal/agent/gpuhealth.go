package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

// healthRefresh is the interval at which reasons that end by themselves are reviewed.
const healthRefresh = time.Minute

// Causes of conditions that the agent sets.
const (
	causeDriver = "driver"
	causeGPUs   = "gpus"
	causeMIG    = "mig"
)

// probeGPUs takes an inventory. If the driver does not answer, it asks a second time: the provider has
// started a new child then, and one client that hangs says nothing about the driver.
func (a *Agent) probeGPUs(ctx context.Context) (gpu.Inventory, error) {
	inventory, err := a.askGPUs(ctx)
	if errors.Is(err, gpu.ErrUnanswered) && ctx.Err() == nil {
		return a.askGPUs(ctx)
	}
	return inventory, err
}

// applyInventory applies an inventory. Other GPUs make the node register again. An error keeps the last
// inventory: a driver that does not answer is a condition of the node; other errors take it out of service.
func (a *Agent) applyInventory(inventory gpu.Inventory, err error) {
	if errors.Is(err, gpu.ErrUnanswered) && len(a.inventory.Devices) > 0 {
		a.setCondition(causeDriver, cluster.Condition{Effect: cluster.Drains, Repair: cluster.RepairReboot,
			Message: fmt.Sprintf("the NVIDIA driver does not answer (%v): check nvidia-smi and dmesg on the node", err)})
		return
	}
	if err == nil && a.divided {
		a.health.Retain(inventory.Devices)
		a.inventory.Devices, a.divided = nil, false
	}
	if err == nil {
		inventory.Devices = keepLost(a.inventory.Devices, inventory.Devices)
	}
	same := slices.EqualFunc(a.inventory.Devices, inventory.Devices, func(x, y gpu.Device) bool {
		x.Fault = y.Fault // may change; every report has it
		return x.GPU == y.GPU && slices.Equal(x.Files, y.Files)
	}) && slices.Equal(a.inventory.Common, inventory.Common)
	if err == nil && !same && a.cfg.Describe != nil {
		err = a.cfg.Describe(inventory)
	}
	if err != nil {
		a.setFault(causeGPUs, fmt.Sprintf("cannot use the GPUs: %v", err))
		return
	}
	a.setFault(causeGPUs, "")
	a.setUndivided(inventory.Undivided)
	a.setCondition(causeDriver, cluster.Condition{})
	before := a.devices()
	a.inventory = inventory
	for uuid, outcome := range a.health.Inspect(inventory.Devices) {
		a.log.Error("GPU lost", "uuid", uuid, "message", outcome.Blame)
		a.applyOutcome(uuid, outcome)
	}
	if !same {
		nudge(a.reregister)
	}
	a.compareHealth(before)
}

// keepLost returns devices at the places that they had before. One that is no longer listed keeps its place.
func keepLost(before, now []gpu.Device) []gpu.Device {
	list := slices.Clone(before)
	for i := range list {
		list[i].Lost, list[i].Fault = true, cmp.Or(list[i].Fault, "GPU is no longer listed")
	}
	for _, d := range now {
		if i := slices.IndexFunc(before, func(x gpu.Device) bool { return x.UUID == d.UUID }); i >= 0 {
			d.Index = before[i].Index
			list[i] = d
			continue
		}
		d.Index = int32(len(list))
		list = append(list, d)
	}
	return list
}

// watchGPUs receives the events of the GPUs.
func (a *Agent) watchGPUs(ctx context.Context) {
	err := a.gpus.Watch(ctx, func(event gpu.Event) { a.post(func() { a.handleGPUEvent(event) }) })
	if err != nil && ctx.Err() == nil {
		a.post(func() { a.setFault("gpu events", "GPU events are not received: "+err.Error()) })
	}
}

// handleGPUEvent handles one event of a GPU, or of all. It runs in the loop.
func (a *Agent) handleGPUEvent(event gpu.Event) {
	before := a.devices()
	for i := range a.inventory.Devices {
		d := &a.inventory.Devices[i]
		if !event.Concerns(d) {
			continue
		}
		if event.XID != 0 && event.Bus == "" { // NVML reports those of the kernel log too
			a.xids[xid{d.UUID, event.XID, event.Action.Class()}] += uint64(max(event.Count, 1))
		}
		if event.XID != 0 {
			a.lastXID[d.UUID] = event.XID
		}
		outcome := a.health.Handle(time.Now(), d.UUID, event, a.holderOf(d.UUID))
		if outcome != (health.Outcome{}) {
			a.log.Warn("GPU event", "uuid", d.UUID, "xid", event.XID, "count", event.Count, "message", cmp.Or(outcome.Notice, outcome.Blame))
		}
		a.applyOutcome(d.UUID, outcome)
	}
	a.compareHealth(before)
	a.saveHealth()
}

// holderOf returns the job that has a GPU.
func (a *Agent) holderOf(uuid string) health.Holder {
	for _, t := range a.tasks {
		if t.Phase < reconcile.Ended && slices.Contains(a.uuidsOf(t), uuid) {
			return health.Holder{Job: t.ID.Job, Ref: t.spec.GetRef(), User: t.spec.GetUid()}
		}
	}
	return health.Holder{}
}

// applyOutcome applies the outcome of an event to the tasks on a GPU.
func (a *Agent) applyOutcome(uuid string, outcome health.Outcome) {
	for _, t := range a.tasks {
		if t.Phase >= reconcile.Ended || !slices.Contains(a.uuidsOf(t), uuid) {
			continue
		}
		if outcome.Notice != "" && t.Phase == reconcile.Started {
			w, line := t.spec, fmt.Sprintf("greylag: error: job %s on %s: %s\n", t.spec.GetRef(), a.cfg.Name, outcome.Notice)
			a.workers.Go(func() { a.notify(a.reading, w, line) })
		}
		if outcome.Blame == "" {
			continue
		}
		t.Blame = outcome.Blame
		if outcome.Doom {
			t.Doomed = outcome.Blame
		}
		a.dirty[t.ID] = true
	}
}

// compareHealth saves and reports the health of the GPUs if it changed since before.
func (a *Agent) compareHealth(before []*greylagv1.GPU) {
	same := func(x, y *greylagv1.GPU) bool {
		return x.GetFault() == y.GetFault() && x.GetDegraded() == y.GetDegraded() && x.GetRepair() == y.GetRepair()
	}
	if !slices.EqualFunc(before, a.devices(), same) {
		a.badSince++
		nudge(a.reports)
	}
	if list := a.conditionList(); !slices.Equal(a.shown, list) {
		a.shown = list
		nudge(a.reports)
		a.saveHealth()
	}
}

// setCondition sets the condition of a cause, or of another key; without an effect it clears it. It runs in
// the loop.
func (a *Agent) setCondition(cause string, c cluster.Condition) {
	c.Cause = cmp.Or(c.Cause, cause)
	if a.conditions[cause] == c || c.Effect == 0 && a.conditions[cause].Effect == 0 {
		return
	}
	if c.Effect == 0 {
		delete(a.conditions, cause)
		a.log.Info("condition ended", "cause", cause)
	} else {
		a.conditions[cause] = c
		a.log.Error("node condition", "cause", cause, "effect", c.Effect.String(), "message", c.Message)
	}
	a.saveHealth()
	nudge(a.reports)
}

// conditionList returns the conditions of the node, sorted.
func (s *state) conditionList() []cluster.Condition {
	list := s.health.Conditions(time.Now())
	for _, c := range slices.Sorted(maps.Keys(s.conditions)) {
		list = append(list, s.conditions[c])
	}
	return cluster.SortConditions(list)
}

// statusOf returns the health of a device with what its last inventory says.
func (s *state) statusOf(d *gpu.Device) health.Status {
	status := s.health.Status(time.Now(), d.UUID)
	use := s.users[d.UUID]
	status.Fault = cmp.Or(status.Fault, d.Fault, use.Why, s.untested[d.UUID])
	status.Repair = max(status.Repair, use.Repair)
	return status
}

// refreshHealth reviews reasons that end by themselves.
func (a *Agent) refreshHealth(ctx context.Context) {
	ticker := time.NewTicker(healthRefresh)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.post(func() { a.addHeat(time.Now()); a.badSince++; nudge(a.reports) })
		}
	}
}

// addHeat takes the times that GPUs were throttled. The limit of the power of a busy GPU does not count.
func (a *Agent) addHeat(now time.Time) {
	for uuid, load := range a.loads {
		seconds, known := 0.0, false
		for _, reason := range []string{"hw_thermal", "sw_thermal", "power_brake"} {
			if s, has := load.Values["throttled_seconds_total/"+reason]; has {
				seconds, known = max(seconds, s), true
			}
		}
		if known {
			a.health.Throttled(now, uuid, seconds)
		}
	}
}
