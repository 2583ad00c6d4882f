package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/pkg/cluster"
)

// causeValidation is the cause of the condition of a node that failed its validation, and the source of the
// fault of one that is being validated.
const causeValidation = "validation"

// loadValidation has the node validated after a boot, or if an earlier daemon did not see the program succeed.
// After a boot the node reports no conditions until there is a result, so that no drain ends.
func (a *Agent) loadValidation(saved health.Saved, found bool) {
	if a.cfg.Checks.Validate == "" {
		delete(a.conditions, causeValidation)
		return
	}
	for _, c := range saved.Repaired {
		a.repaired[c.Cause] = c
	}
	_, failed := a.conditions[causeValidation]
	switch {
	case !found || saved.Validating:
		a.unchecked[causeValidation] = true
		a.requireValidation("a boot")
	case failed:
		a.requireValidation("a failed one")
	case len(a.repaired) > 0:
		a.requireValidation("a repair")
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

// watchValidation runs the validation program on the idle node when it is required, and again every Period
// while it fails.
func (a *Agent) watchValidation(ctx context.Context) {
	checks := &a.cfg.Checks
	if checks.Validate == "" {
		return
	}
	ticker := time.NewTicker(checks.Period)
	defer ticker.Stop()
	for {
		due := false
		if a.ask(ctx, func() {
			due = a.isIdle() && a.faults[causeValidation] != ""
		}) != nil {
			return
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
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		line = fmt.Sprintf("killed after %s", a.cfg.Checks.ValidateTimeout)
	case err != nil && line == "":
		line = err.Error()
	}
	if err != nil {
		condition = cluster.Condition{Effect: cluster.Drains, Message: fmt.Sprintf("validation failed: %s: %s", a.cfg.Checks.Validate, line)}
	} else {
		a.log.Info("validation succeeded", "program", a.cfg.Checks.Validate)
		a.setFault(causeValidation, "")
	}
	a.setCondition(causeValidation, condition)
	clear(a.repaired)
	delete(a.unchecked, causeValidation)
	a.saveHealth()
	nudge(a.reports)
}
