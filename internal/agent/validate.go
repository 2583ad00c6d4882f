package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/pkg/cluster"
)

// causeValidation is the cause of the condition of a node that failed its validation, and the source of the
// fault of one that is being validated.
const causeValidation = "validation"

// loadValidation has the node validated after a boot, or if an earlier daemon did not see the program succeed.
// After a boot the node reports no conditions until there is a result, so that no drain ends. If an earlier daemon
// has served this boot without a program, the boot counts as validated.
func (a *Agent) loadValidation(saved health.Saved) {
	if a.cfg.Checks.Validate == "" {
		delete(a.conditions, causeValidation)
		a.writeValidation("")
		return
	}
	state := a.readValidation()
	if state == "" {
		if state = validationRequired; a.servedBoot {
			state = validationAccepted
			a.log.Info("skipping validation: gnoded already served this boot without the program", "program", a.cfg.Checks.Validate)
		}
		a.writeValidation(state)
	}
	for _, c := range saved.Repaired {
		a.repaired[c.Cause] = c
	}
	maps.Copy(a.untested, saved.Untested)
	for _, uuid := range saved.GPUs.Faulty(time.Now(), cluster.RepairReset) {
		a.resetting[uuid] = true
	}
	failed, is := a.conditions[causeValidation]
	switch {
	case is:
		a.setFault(causeValidation, failed.Message)
		nudge(a.validate)
	case state == validationRequired:
		a.unchecked[causeValidation] = true
		a.requireValidation("a boot")
	case len(a.repaired) > 0:
		a.requireValidation("a repair")
	}
}

// The file validation of the state directory has "BOOT STATE": whether the program must still succeed after this boot.
const (
	validationFile     = "validation"
	validationRequired = "required"
	validationAccepted = "accepted"
)

// readValidation returns the state of the validation in this boot of the kernel; "" where it is not recorded.
func (a *Agent) readValidation() string {
	data, err := os.ReadFile(filepath.Join(a.cfg.StateDir, validationFile))
	boot, state, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	if err != nil || boot != a.boot() || state != validationRequired && state != validationAccepted {
		return ""
	}
	return state
}

// writeValidation writes the state of the validation in this boot; "" removes it.
func (a *Agent) writeValidation(state string) {
	path := filepath.Join(a.cfg.StateDir, validationFile)
	var err error
	if state == "" {
		err = os.Remove(path)
	} else if err = os.WriteFile(path+".new", []byte(a.boot()+" "+state+"\n"), 0o600); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("cannot save the state of the validation: a restart of gnoded loses it", "err", err)
	}
}

// requireValidation keeps the node from taking jobs until the program has succeeded. It runs in the loop, or
// before it.
func (a *Agent) requireValidation(why string) {
	a.setFault(causeValidation, fmt.Sprintf("validation after %s: %s must succeed first", why, a.cfg.Checks.Validate))
	nudge(a.validate)
}

// noteRepairs requires a validation when a condition has ended that drained the node until a repair. The node
// reports this condition until there is a result, so that the drain does not end. It runs in the loop, before each
// report.
func (a *Agent) noteRepairs() {
	if a.cfg.Checks.Validate == "" {
		return
	}
	now := map[string]cluster.Condition{}
	for _, c := range a.conditionList() {
		if c.Effect == cluster.Drains && c.Repair != cluster.NoRepair {
			now[c.Cause] = c
		}
	}
	for cause, c := range a.repairing {
		if _, is := now[cause]; !is {
			a.repaired[cause] = c
			a.requireValidation("a repair (" + cause + ")")
			a.saveHealth()
		}
	}
	a.repairing = now
}

// noteResets requires a validation of each GPU that was out of service until a reset and works again. It runs in the
// loop, before each report.
func (a *Agent) noteResets() {
	if a.cfg.Checks.Validate == "" {
		return
	}
	before := len(a.untested)
	for _, d := range a.inventory.Devices {
		status := a.health.Status(time.Now(), d.UUID)
		switch {
		case status.Fault != "" && status.Repair == cluster.RepairReset:
			a.resetting[d.UUID] = true
		case a.resetting[d.UUID]:
			delete(a.resetting, d.UUID)
			a.untested[d.UUID] = fmt.Sprintf("validation after a reset: %s must succeed first", a.cfg.Checks.Validate)
		}
	}
	if len(a.untested) != before {
		a.badSince++
		a.saveHealth()
		nudge(a.validate)
	}
}

// untestedGPU is a GPU that the validation program tests alone.
type untestedGPU struct {
	uuid, name string
	index      int32
}

// untestedGPUs returns the GPUs that were reset and work otherwise. It runs in the loop.
func (a *Agent) untestedGPUs() (list []untestedGPU) {
	for _, d := range a.inventory.Devices {
		if a.untested[d.UUID] != "" && a.health.Status(time.Now(), d.UUID).Fault == "" && d.Fault == "" {
			list = append(list, untestedGPU{d.UUID, fmt.Sprintf("GPU %d", d.Index), d.Index})
		}
	}
	return list
}

// validateGPUs runs the validation program for each GPU that was reset; jobs have the others meanwhile.
func (a *Agent) validateGPUs(ctx context.Context, list []untestedGPU) {
	checks := &a.cfg.Checks
	for _, g := range list {
		line, err := health.Run(ctx, checks.Validate, a.cfg.Name, checks.ValidateTimeout,
			fmt.Sprintf("GREYLAG_GPU=%d", g.index), "GREYLAG_GPU_UUID="+g.uuid, "CUDA_VISIBLE_DEVICES="+g.uuid)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.recordGPUValidation(g, line, err) })
	}
}

// recordGPUValidation takes the result for one GPU: one that failed stays out of service. It runs in the loop.
func (a *Agent) recordGPUValidation(g untestedGPU, line string, err error) {
	before := a.devices()
	if err != nil {
		a.untested[g.uuid] = a.validationFailure(line, err)
		a.log.Error("GPU validation failed", "gpu", g.name, "uuid", g.uuid, "message", a.untested[g.uuid])
	} else {
		a.log.Info("GPU validation succeeded", "gpu", g.name, "uuid", g.uuid, "program", a.cfg.Checks.Validate)
		delete(a.untested, g.uuid)
	}
	a.compareHealth(before)
	a.saveHealth()
}

// validationFailure returns why the validation program failed.
func (a *Agent) validationFailure(line string, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		line = fmt.Sprintf("killed after %s", a.cfg.Checks.ValidateTimeout)
	case line == "":
		line = err.Error()
	}
	return fmt.Sprintf("validation failed: %s: %s", a.cfg.Checks.Validate, line)
}

// drainingConditions returns the conditions of the node, and those that have ended without a validation yet, sorted.
func (s *state) drainingConditions() []cluster.Condition {
	list := s.conditionList()
	for cause, c := range s.repaired {
		if !slices.ContainsFunc(list, func(now cluster.Condition) bool { return now.Cause == cause }) {
			list = append(list, c)
		}
	}
	return cluster.SortConditions(list)
}

// watchValidation runs the validation program on the idle node when it is required, or for single GPUs, and again
// every Period while it fails.
func (a *Agent) watchValidation(ctx context.Context) {
	checks := &a.cfg.Checks
	if checks.Validate == "" {
		return
	}
	ticker := time.NewTicker(checks.Period)
	defer ticker.Stop()
	for {
		due, single := false, []untestedGPU(nil)
		if a.ask(ctx, func() {
			due = a.isIdle() && a.faults[causeValidation] != ""
			single = a.untestedGPUs()
		}) != nil {
			return
		}
		if !due {
			a.validateGPUs(ctx, single)
		}
		if due {
			line, err := health.Run(ctx, checks.Validate, a.cfg.Name, checks.ValidateTimeout)
			if ctx.Err() != nil {
				return
			}
			a.post(func() { a.recordValidation(line, err) })
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.validate:
		}
	}
}

// recordValidation takes the result of the validation program. A node that failed takes no jobs, also while the program
// runs again and whatever ends its drain. It runs in the loop.
func (a *Agent) recordValidation(line string, err error) {
	condition := cluster.Condition{}
	if err != nil {
		condition = cluster.Condition{Effect: cluster.Drains, Message: a.validationFailure(line, err)}
		a.setFault(causeValidation, condition.Message)
	} else {
		a.writeValidation(validationAccepted)
		a.log.Info("validation succeeded", "program", a.cfg.Checks.Validate)
		a.setFault(causeValidation, "")
		clear(a.untested) // all GPUs were tested
		a.badSince++
	}
	a.setCondition(causeValidation, condition)
	clear(a.repaired)
	delete(a.unchecked, causeValidation)
	a.saveHealth()
	nudge(a.reports)
}
