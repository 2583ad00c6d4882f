package agent

import (
	"context"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// How busy a task's GPUs are is looked at every Config.Meter, of all tasks at once, and
// counts for the time since the last look. What nobody could tell for longer than
// gapLooks of them is not known: nothing is guessed.
const gapLooks = 3

// watchUse looks at the GPUs of running tasks until ctx ends. A look that takes too
// long is given up and keeps nothing else waiting.
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
		var held []gpu.Held
		var whose []*task
		if a.ask(ctx, func() { held, whose = a.held() }) != nil {
			return
		}
		if len(held) == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, a.cfg.Meter)
		loads, err := a.gpus.Loads(limited, held)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			a.log.Warn("it is not known how busy the GPUs are", "error", err, "again", a.cfg.Meter)
		case err == nil && failing:
			a.log.Info("it is known again how busy the GPUs are")
		}
		failing = err != nil
		if at := time.Now(); err == nil {
			a.post(func() { a.addSample(whose, loads, at) })
		}
	}
}

// held lists the GPUs of the tasks that run, and the tasks, in the loop.
func (a *Agent) held() (held []gpu.Held, whose []*task) {
	lister, lists := a.runtime.(tasks.ProcessLister)
	for _, t := range a.tasks {
		h := gpu.Held{UUIDs: a.uuidsOf(t)}
		if t.Phase != reconcile.Started || len(h.UUIDs) == 0 {
			continue
		}
		if lists {
			id := taskID(t.ID)
			h.PIDs = func() ([]int, error) { return lister.Processes(id) }
		}
		held, whose = append(held, h), append(whose, t)
	}
	return held, whose
}

// addSample adds what was seen at one moment to the counters of the tasks that were looked
// at, in the loop.
func (a *Agent) addSample(whose []*task, loads []gpu.Load, at time.Time) {
	of := make(map[string]gpu.Load, len(loads))
	for _, l := range loads {
		of[l.UUID] = l
	}
	for _, t := range whose {
		if a.tasks[t.ID] != t || t.Phase != reconcile.Started {
			continue
		}
		passed := at.Sub(t.gauged).Milliseconds()
		switch {
		case passed <= 0:
			continue
		case passed > gapLooks*a.cfg.Meter.Milliseconds():
			passed, t.gauged = 0, at
		default: // what is less than a millisecond is counted next time
			t.gauged = t.gauged.Add(time.Duration(passed) * time.Millisecond)
		}
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

// useOf is what a load means for so many milliseconds.
func useOf(l gpu.Load, ms int64) (u cluster.GPUUse) {
	if l.Busy != nil {
		u.BusyMs, u.KnownMs = *l.Busy*ms/100, ms
	}
	if l.Memory != nil {
		u.MemoryPeak, u.MemoryKnown = cluster.Bytes(*l.Memory), true
	}
	return u
}
