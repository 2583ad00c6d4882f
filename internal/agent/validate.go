package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/pkg/cluster"
)

// causeValidation is the cause of the condition of a node that failed its validation, and the source of the
// fault of one that is being validated.
const causeValidation = "validation"

// requireValidation has the node validated before it takes jobs: after a boot or a repair. Until there is a
// result it reports no conditions, so that no drain ends. It runs in the loop, or before it.
func (a *Agent) requireValidation(why string) {
	if a.cfg.Checks.Validate == "" || a.unchecked[causeValidation] {
		return
	}
	a.unchecked[causeValidation] = true
	a.setFault(causeValidation, fmt.Sprintf("validation after %s: %s must succeed first", why, a.cfg.Checks.Validate))
	nudge(a.validate)
}

// noteRepairs requires a validation when a condition has ended that drained the node until a repair. It runs
// in the loop, before each report.
func (a *Agent) noteRepairs() {
	if a.cfg.Checks.Validate == "" {
		return
	}
	now := map[string]bool{}
	for _, c := range a.conditionList() {
		if c.Effect == cluster.Drains && c.Repair != cluster.NoRepair {
			now[c.Cause] = true
		}
	}
	for cause := range a.repairing {
		if !now[cause] {
			a.requireValidation("a repair (" + cause + ")")
		}
	}
	a.repairing = maps.Clone(now)
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
			_, failed := a.conditions[causeValidation]
			due = a.isIdle() && (failed || a.unchecked[causeValidation])
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

// recordValidation takes the result of the validation program. It runs in the loop.
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
	}
	a.setCondition(causeValidation, condition)
	a.setFault(causeValidation, "")
	delete(a.unchecked, causeValidation)
	a.saveHealth()
	nudge(a.reports)
}
