package agent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// unkillableAfter is how long the removal of a task may fail before the node takes no new work.
	unkillableAfter = 55 * time.Second
	// causeUnkillable is the cause of the condition of a task that cannot be removed.
	causeUnkillable = "unkillable"
	// mostNamed limits the processes that a condition names.
	mostNamed = 3
)

// unkillableKey returns the key of the condition of a task.
func unkillableKey(t *task) string { return causeUnkillable + " " + taskID(t.ID).String() }

// setUnkillable drains the node because of a task that cannot be removed, with its processes. The other
// tasks run on.
func (a *Agent) setUnkillable(t *task, err error) {
	message := fmt.Sprintf("the task of job %s cannot be removed: %v", cmp.Or(t.spec.GetRef(), t.ID.Job.String()), err)
	if lister, lists := a.runtime.(tasks.ProcessLister); lists {
		if pids, err := lister.Processes(taskID(t.ID)); err == nil {
			message += processText("/proc", pids)
		}
	}
	a.setCondition(unkillableKey(t), cluster.Condition{Cause: causeUnkillable, Effect: cluster.Drains, Repair: cluster.RepairReboot, Message: message, Job: t.ID.Job})
}

// processText lists processes with the function of the kernel in which each waits; "" for none.
func processText(proc string, pids []int) string {
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
	if len(list) == 0 {
		return ""
	}
	return "; " + strings.Join(list, ", ")
}
