package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// overOutput begins the reason of tasks that the node ended because of the size of their output.
const overOutput = "its output "

// maxOutputDoublings limits the levels of ReportedTask.output.
const maxOutputDoublings = 32

// watchOutput checks the sizes of the output files of the running tasks until ctx ends. A file system that does not
// respond delays only the checks of the tasks that write there.
func (a *Agent) watchOutput(ctx context.Context) {
	ticker := time.NewTicker(a.cfg.Meter)
	defer ticker.Stop()
	checking := probes{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		limited := map[*task]*greylagv1.WantedTask{}
		collect := func() {
			for _, t := range a.tasks {
				if w := a.specs[t.ID]; t.Phase == reconcile.Started && !t.spec.GetIdle() && (w.GetOutputWarn() > 0 || w.GetMaxOutput() > 0) {
					limited[t] = t.spec
				}
			}
		}
		if a.ask(ctx, collect) != nil {
			return
		}
		checking.collect()
		for t, w := range limited {
			checking.start(t, func() {
				path, size := a.largestOutput(t.ID, w)
				a.post(func() { a.checkOutput(t, path, size) })
			})
		}
	}
}

// largestOutput returns the larger one of the files of a task's standard output and error, as its processes have them open;
// "" if they have none open. What a script redirects elsewhere does not count. O(processes).
func (a *Agent) largestOutput(id reconcile.ID, w *greylagv1.WantedTask) (path string, size int64) {
	lister, able := a.runtime.(tasks.ProcessLister)
	if !able {
		return "", 0
	}
	pids, err := lister.Processes(taskID(id))
	if err != nil {
		return "", 0
	}
	_, stdout, stderr := files(w, a.cfg.Name)
	for _, pid := range pids[:min(len(pids), maxActivityPIDs)] {
		for fd := 1; fd <= 2; fd++ {
			name := fmt.Sprintf(processOutput, pid, fd)
			link, err := os.Readlink(name)
			if err != nil {
				continue
			}
			for _, own := range []string{stdout, stderr} {
				if own == "" || filepath.Base(strings.TrimSuffix(link, " (deleted)")) != filepath.Base(own) {
					continue
				}
				if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() > size {
					path, size = own, info.Size()
				}
			}
		}
	}
	return path, size
}

// checkOutput ends a task whose output is too large, and reports how large that of another one is. It runs in the loop.
func (a *Agent) checkOutput(t *task, path string, size int64) {
	if a.tasks[t.ID] != t || t.Phase != reconcile.Started {
		return
	}
	w := a.specs[t.ID]
	if most := w.GetMaxOutput(); most > 0 && size > most && t.Doomed == "" {
		t.Doomed = fmt.Sprintf("%s%s has %d bytes, more than max_output = %s", overOutput, path, size, cluster.Bytes(most))
		a.dirty[t.ID] = true
		t.flooded.Store(true)
		a.log.Warn("killing task: its output is too large", "job", t.ID.Job, "attempt", t.ID.Attempt, "file", path, "bytes", size, "max_output", most)
	}
	if level := outputLevel(size, w.GetOutputWarn()); level != t.output {
		t.output = level
		nudge(a.reports)
	}
}

// outputLevel returns how often warn has to be doubled to exceed a size; 0 without a warning.
func outputLevel(size, warn int64) (level uint32) {
	if warn <= 0 {
		return 0
	}
	for ; size >= warn && level < maxOutputDoublings; size /= 2 {
		level++
	}
	return level
}

// exceedsOutput reports whether the node ends the task because of the size of its output.
func (t *task) exceedsOutput() bool { return strings.HasPrefix(t.Doomed, overOutput) }
