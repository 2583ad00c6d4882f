package agent

import (
	"context"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxGapIntervals: the agent samples the use of all tasks' GPUs every Config.Meter. A sample counts for the time
// since the previous one, up to maxGapIntervals intervals; a longer gap is unknown, not estimated.
const maxGapIntervals = 3

// watchUse samples the node's GPUs until ctx ends. It gives up a sample that takes too
// long, and delays nothing else.
func (a *Agent) watchUse(ctx context.Context) {
	ticker := time.NewTicker(a.cfg.Meter)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var held []gpu.DeviceSet
		var whose []*task
		if a.ask(ctx, func() { held, whose = a.held() }) != nil {
			return
		}
		if len(held) == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, a.cfg.Meter)
		began := time.Now()
		loads, err := a.gpus.Loads(limited, held)
		cancel()
		a.cfg.Observer.Polled(time.Since(began), err != nil)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			a.log.Warn("cannot sample the utilization of GPUs", "err", err, "retry_in", a.cfg.Meter)
		case err == nil && failing:
			a.log.Info("the utilization of GPUs is sampled again")
		}
		failing = err != nil
		at := time.Now()
		a.post(func() {
			if err != nil {
				a.loads = nil
				return
			}
			a.addSample(whose, loads, at)
		})
	}
}

// held lists the GPUs of running tasks, and the tasks, and last the other GPUs. It runs in the loop.
func (a *Agent) held() (held []gpu.DeviceSet, whose []*task) {
	lister, lists := a.runtime.(tasks.ProcessLister)
	running := map[string]bool{}
	for _, t := range a.tasks {
		h := gpu.DeviceSet{UUIDs: a.uuidsOf(t)}
		if t.Phase != reconcile.Started || len(h.UUIDs) == 0 {
			continue
		}
		if lists {
			id := taskID(t.ID)
			h.PIDs = func() ([]int, error) { return lister.Processes(id) }
		}
		held, whose = append(held, h), append(whose, t)
		for _, uuid := range h.UUIDs {
			running[uuid] = true
		}
	}
	others := gpu.DeviceSet{PIDs: func() ([]int, error) { return nil, nil }}
	for _, d := range a.inventory.Devices {
		if !running[d.UUID] {
			others.UUIDs = append(others.UUIDs, d.UUID)
		}
	}
	if len(others.UUIDs) > 0 {
		held = append(held, others)
	}
	return held, whose
}

// addSample adds one sample to the counters of the sampled tasks. It runs in the loop.
func (a *Agent) addSample(whose []*task, loads []gpu.Load, at time.Time) {
	of := make(map[string]gpu.Load, len(loads))
	for _, l := range loads {
		of[l.UUID] = l
	}
	a.loads = of
	for _, t := range whose {
		if a.tasks[t.ID] != t || t.Phase != reconcile.Started {
			continue
		}
		passed := at.Sub(t.sampledAt).Milliseconds()
		switch {
		case passed <= 0:
			continue
		case passed > maxGapIntervals*a.cfg.Meter.Milliseconds():
			passed, t.sampledAt = 0, at
		default: // less than a millisecond counts with the next sample
			t.sampledAt = t.sampledAt.Add(time.Duration(passed) * time.Millisecond)
		}
		t.inactivity.addLoads(a.uuidsOf(t), of)
		use := t.GPU
		for _, uuid := range a.uuidsOf(t) {
			use = use.Plus(useOf(of[uuid], passed))
		}
		if use != t.GPU {
			t.GPU = use
			a.dirty[t.ID] = true
		}
	}
}

// useOf returns the use that a load means over ms milliseconds.
func useOf(l gpu.Load, ms int64) (u cluster.GPUUse) {
	if l.Busy != nil {
		u.BusyMs, u.KnownMs = *l.Busy*ms/100, ms
	}
	if l.Memory != nil {
		u.MemoryPeak, u.MemoryKnown = cluster.Bytes(*l.Memory), true
	}
	return u
}
