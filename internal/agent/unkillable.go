package agent

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// unkillableAfter is the default of Config.UnkillableAfter.
	unkillableAfter = 55 * time.Second
	// causeUnkillable is the cause of the condition of a task that cannot be removed.
	causeUnkillable = "unkillable"
	// mostNamed limits the processes that a condition names.
	mostNamed = 3
)

// unkillableKey returns the key of the condition of a job's task.
func unkillableKey(id cluster.JobID) string { return causeUnkillable + " " + id.String() }

// endUnkillable ends the record of a running task whose processes outlive SIGKILL, and drains the node. A
// process in an uninterruptible system call executes no more of its program, so that its job ends without
// it. The removal of the task continues until the processes are gone.
func (a *Agent) endUnkillable(t *task) {
	err := fmt.Errorf("its processes still exist %s after SIGKILL; reboot the node if they remain", time.Since(t.killing).Round(time.Second))
	a.log.Error("task cannot be killed", "job", t.ID.Job, "attempt", t.ID.Attempt, "err", err)
	a.setUnkillable(t, err)
	a.collectSteps(t)
	t.work, t.stuck = reconcile.NoWork, true
	a.end(t, classify(t, tasks.Exit{Signal: int(syscall.SIGKILL), Ended: time.Now()}))
}

// dropUnkillable ends the conditions of tasks that no longer exist. It runs in the loop.
func (a *Agent) dropUnkillable() {
	for key, c := range a.conditions {
		here := func(t *task) bool { return t.ID.Job == c.Job && t.Phase < reconcile.Clean }
		if c.Cause == causeUnkillable && !slices.ContainsFunc(slices.Collect(maps.Values(a.tasks)), here) {
			a.setCondition(key, cluster.Condition{})
		}
	}
}

// setUnkillable drains the node because of a task that cannot be removed, with its processes. The other
// tasks run on.
func (a *Agent) setUnkillable(t *task, err error) {
	message := fmt.Sprintf("the task of job %s cannot be removed: %v", cmp.Or(t.spec.GetRef(), t.ID.Job.String()), err)
	if lister, lists := a.runtime.(tasks.ProcessLister); lists {
		if pids, err := lister.Processes(taskID(t.ID)); err == nil {
			message += processText("/proc", pids)
		}
	}
	a.setCondition(unkillableKey(t.ID.Job), cluster.Condition{Cause: causeUnkillable, Effect: cluster.Drains, Repair: cluster.RepairReboot, Message: message, Job: t.ID.Job})
}

// processText lists processes after a separator; "" for none.
func processText(proc string, pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	return "; " + processNames(proc, pids)
}

// processNames lists processes with the function of the kernel in which each waits.
func processNames(proc string, pids []int) string {
	var list []string
	for _, pid := range pids[:min(len(pids), mostNamed)] {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		name, _ := os.ReadFile(filepath.Join(dir, "comm")) // it may end meanwhile
		channel, _ := os.ReadFile(filepath.Join(dir, "wchan"))
		text := fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
		if at := strings.TrimSpace(string(channel)); at != "" && at != "0" {
			text += " waits in " + at
		}
		list = append(list, text)
	}
	if more := len(pids) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
