package agent

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

// Checks are the checks that a node makes of itself, apart from its runtime and its GPUs.
type Checks struct {
	// Program is run as root when the node becomes idle and every Period while it is; "": none. It is
	// killed after Timeout. WhileBusy runs it every Period in any case.
	Program         string
	Period, Timeout time.Duration
	WhileBusy       bool
	// Validate is run as root on the idle node after a boot, and when a condition has ended that drained it
	// until a repair, before it takes jobs; and for a GPU that was reset, before it takes jobs. "": none. It is
	// killed after ValidateTimeout.
	Validate        string
	ValidateTimeout time.Duration
	// InfiniBand is the directory of the ports, /sys/class/infiniband, and Ports the number of them that
	// must be active; 0: those that were.
	InfiniBand string
	Ports      int
	// KernelLog is the log of the kernel, /dev/kmsg; "": not read.
	KernelLog string
	// Dirs must be writable.
	Dirs []string
}

// Causes of conditions that these checks set.
const (
	causeProgram    = "health_program"
	causeInfiniBand = "infiniband"
	causeDisk       = "disk"
	causeClock      = "clock"
)

const (
	portInterval = 5 * time.Second
	diskInterval = 30 * time.Second
	// portsStart is how long the ports may take to become active after the node has booted.
	portsStart = 2 * time.Minute
)

// healthFile is the file with the health of the node since its boot.
const healthFile = "health.json"

func (a *Agent) healthPath() string { return filepath.Join(a.cfg.StateDir, healthFile) }

// loadHealth reads what an earlier daemon knew. After a boot the node reports no conditions before each
// check has a result: else a drain would end too soon.
func (a *Agent) loadHealth() {
	saved, found := health.Load(a.healthPath(), a.boot())
	a.health, a.ports = saved.GPUs, saved.Ports
	maps.Copy(a.users, saved.Users)
	for _, c := range saved.Conditions {
		if c.Cause == causeUnkillable {
			a.conditions[unkillableKey(c.Job)] = c
			continue
		}
		a.conditions[c.Cause] = c
	}
	if a.loadValidation(saved); found {
		return
	}
	for cause, enabled := range map[string]bool{
		causeProgram: a.cfg.Checks.Program != "", causeInfiniBand: a.cfg.Checks.Ports > 0, causeDisk: len(a.cfg.Checks.Dirs) > 0,
	} {
		if enabled {
			a.unchecked[cause] = true
		}
	}
}

// saveHealth writes the health of the node for the next daemon. That runs the prolog and the epilog again.
func (a *Agent) saveHealth() {
	saved := health.Saved{Boot: a.boot(), GPUs: a.health, Ports: a.ports, Users: a.users, Repaired: slices.Collect(maps.Values(a.repaired)), Untested: a.untested}
	for _, cause := range []string{causeProgram, causeInfiniBand, causeDisk, causeDriver, causeValidation} {
		if c, is := a.conditions[cause]; is {
			saved.Conditions = append(saved.Conditions, c)
		}
	}
	for _, c := range a.conditionList() {
		if c.Cause == causeUnkillable {
			saved.Conditions = append(saved.Conditions, c)
		}
	}
	if err := saved.Save(a.healthPath()); err != nil {
		a.log.Warn("the health of this node is lost when gnoded restarts", "err", err)
	}
}

// checked takes the result of a check. It runs in the loop.
func (a *Agent) checked(cause string, c cluster.Condition) {
	a.setCondition(cause, c)
	if a.unchecked[cause] {
		delete(a.unchecked, cause)
		nudge(a.reports)
	}
}

// watchProgram runs the health program.
func (a *Agent) watchProgram(ctx context.Context) {
	checks := &a.cfg.Checks
	if checks.Program == "" {
		return
	}
	ticker := time.NewTicker(checks.Period)
	defer ticker.Stop()
	var result health.Program
	for {
		idle := false
		if a.ask(ctx, func() { idle = a.isIdle() }) != nil {
			return
		}
		if idle || checks.WhileBusy {
			line, err := health.Run(ctx, checks.Program, a.cfg.Name, checks.Timeout)
			if ctx.Err() != nil {
				return
			}
			result = result.Ran(checks.Program, checks.Timeout, line, err)
			a.programTimeouts.Store(result.Timeouts)
			condition := programCondition(result)
			a.post(func() { a.checked(causeProgram, condition) })
		} else {
			a.post(func() { delete(a.unchecked, causeProgram) })
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.idle:
		}
	}
}

// programCondition returns the condition of a result; without an effect if nothing is wrong.
func programCondition(result health.Program) cluster.Condition {
	switch {
	case result.Failed != "":
		return cluster.Condition{Effect: cluster.Drains, Message: result.Failed}
	case result.Notice != "":
		return cluster.Condition{Effect: cluster.Notice, Message: result.Notice}
	}
	return cluster.Condition{}
}

// isIdle reports whether no task is on the node.
func (s *state) isIdle() bool {
	for _, t := range s.tasks {
		if t.Phase < reconcile.Clean {
			return false
		}
	}
	return true
}

// watchPorts polls the InfiniBand ports.
func (a *Agent) watchPorts(ctx context.Context) {
	checks := &a.cfg.Checks
	if checks.InfiniBand == "" {
		return
	}
	var known []string
	if a.ask(ctx, func() { known = a.ports }) != nil {
		return
	}
	ib, began := health.NewInfiniBand(checks.InfiniBand, known), time.Now()
	ticker := time.NewTicker(portInterval)
	defer ticker.Stop()
	for {
		list := ib.Poll(time.Now())
		if ports := ib.Ports(); len(ports) < checks.Ports {
			list = append(list, health.MissingPorts(len(ports), checks.Ports))
		}
		if names := ib.Ports(); !slices.Equal(names, known) {
			known = names
			a.post(func() { a.ports = names; a.saveHealth() })
		}
		if len(ib.Ports()) >= checks.Ports || time.Since(began) > portsStart {
			a.post(func() { a.checked(causeInfiniBand, merge(list)) })
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// merge returns one condition for all of a list with the same effect.
func merge(list []cluster.Condition) (all cluster.Condition) {
	var words []string
	for _, c := range list {
		all.Effect = max(all.Effect, c.Effect)
		words = append(words, c.Message)
	}
	all.Message = strings.Join(words, "; ")
	return all
}

// watchDisks checks the directories of the node.
func (a *Agent) watchDisks(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		var found []cluster.Condition
		for _, dir := range a.cfg.Checks.Dirs {
			if why := health.Disk(dir); why != "" {
				found = append(found, cluster.Condition{Effect: cluster.Drains, Message: "cannot write: " + why})
			}
		}
		a.post(func() { a.checked(causeDisk, merge(found)) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchKernel receives errors of GPUs from the kernel log. A host without one, such as a container, has
// those of NVML.
func (a *Agent) watchKernel(ctx context.Context) {
	if a.cfg.Checks.KernelLog == "" {
		return
	}
	var merged gpu.Coalescer
	err := health.WatchKernel(ctx, a.cfg.Checks.KernelLog, func(e gpu.Event) {
		if merged.AddEvent(time.Now(), e) {
			a.post(func() { a.handleGPUEvent(e) })
		}
	})
	if err != nil && ctx.Err() == nil {
		a.log.Info("errors of GPUs are not read from the kernel log", "err", err)
	}
}

// clockCondition returns the condition of a clock that is off by some time.
func clockCondition(off time.Duration) cluster.Condition {
	if off.Abs() <= clockTolerance {
		return cluster.Condition{}
	}
	return cluster.Condition{Effect: cluster.Notice, Message: "the clock differs from the controllers' by " + off.Round(time.Millisecond).String() + ": check chronyc tracking"}
}
