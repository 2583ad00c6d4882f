package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
)

// fenceInterval is the interval at which the node checks when it last reached a controller.
const fenceInterval = time.Second

// fencedBy begins the reason of tasks that the node ended because it reached no controller.
const fencedBy = "the node reached no controller for "

// recordContact records that a controller has answered a call that was sent at a time. The controllers wait for
// node_timeout from when they received it, which is later.
func (a *Agent) recordContact(sent time.Time) { a.reachedAt.Store(sent.Sub(a.began).Nanoseconds()) }

// watchFence kills all tasks when no controller has answered for SelfFenceAfter: the controllers may be about
// to start the next attempts elsewhere. The time is that of a monotonic clock, and begins with the daemon.
func (a *Agent) watchFence(ctx context.Context) {
	if a.cfg.SelfFenceAfter <= 0 {
		return
	}
	ticker := time.NewTicker(min(fenceInterval, a.cfg.SelfFenceAfter/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if silent := time.Since(a.began) - time.Duration(a.reachedAt.Load()); silent >= a.cfg.SelfFenceAfter {
			a.post(a.fenceTasks)
		}
	}
}

// fenceTasks marks all tasks that have not ended to be killed. It runs in the loop.
func (a *Agent) fenceTasks() {
	for _, t := range a.tasks {
		if t.Phase >= reconcile.Ended || t.Doomed != "" {
			continue
		}
		t.Doomed = fmt.Sprintf("%s%s (self_fence_after)", fencedBy, a.cfg.SelfFenceAfter)
		a.dirty[t.ID] = true
		a.log.Error("killing task: no controller answers", "job", t.ID.Job, "attempt", t.ID.Attempt, "self_fence_after", a.cfg.SelfFenceAfter)
	}
}

// isFenced reports whether the node ended the task because it reached no controller, or powers off.
func (t *task) isFenced() bool {
	return strings.HasPrefix(t.Doomed, fencedBy) || strings.HasPrefix(t.Doomed, poweringOff)
}
