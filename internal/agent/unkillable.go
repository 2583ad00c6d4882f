package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

// onlyKilled reports whether a task has processes, and each of them has received SIGKILL. It is false if the runtime
// cannot list them.
func (a *Agent) onlyKilled(t *task) bool {
	lister, lists := a.runtime.(tasks.ProcessLister)
	if !lists {
		return false
	}
	pids, err := lister.Processes(taskID(t.ID))
	runs := func(pid int) bool { return !isKilled("/proc", pid) }
	return err == nil && len(pids) > 0 && !slices.ContainsFunc(pids, runs)
}

// hasEnded reports whether a task has no processes. It is false if the runtime cannot list them.
func (a *Agent) hasEnded(t *task) bool {
	lister, lists := a.runtime.(tasks.ProcessLister)
	if !lists {
		return false
	}
	pids, err := lister.Processes(taskID(t.ID))
	return len(pids) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist))
}

// isBusy reports whether a removal failed at a busy mount. Errors of containerd come as text only.
func isBusy(err error) bool {
	return errors.Is(err, syscall.EBUSY) || strings.Contains(err.Error(), syscall.EBUSY.Error())
}

// isKilled reports whether no thread of a process executes more of its program: SIGKILL is pending, or it is ending or
// has ended.
func isKilled(proc string, pid int) bool {
	dir := filepath.Join(proc, strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !slices.ContainsFunc(threads, func(thread fs.DirEntry) bool {
		status, errStatus := os.ReadFile(filepath.Join(dir, thread.Name(), "status"))
		stat, errStat := os.ReadFile(filepath.Join(dir, thread.Name(), "stat"))
		if err := errors.Join(errStatus, errStat); err != nil {
			return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
		}
		return !hasSIGKILL(string(status)) && !isExiting(string(stat))
	})
}

// hasSIGKILL reports whether SIGKILL is pending for a thread with a status, see proc_pid_status(5).
func hasSIGKILL(status string) bool {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&(1<<(syscall.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

// isExiting reports whether a thread has ended, or is ending (PF_EXITING), see proc_pid_stat(5). No signal is pending
// for such a thread any more.
func isExiting(stat string) bool {
	const exiting = 0x4
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // from the state on, field 3
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return fields[0] == "Z" || fields[0] == "X" || err == nil && flags&exiting != 0
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
