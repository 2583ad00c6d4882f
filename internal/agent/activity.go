package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// activityMeters is the number of samples of GPU use between two checks of whether tasks are active, and
// minActivityMeters that for tasks whose warning comes sooner than after activityChecks of them. By default checks
// they are a minute apart.
const (
	activityMeters    = 12
	minActivityMeters = 2
	activityChecks    = 4
)

// What counts as activity. Programs that wait still wake up now and then.
const (
	minCPUShare     = 10               // a task that uses this percentage of a CPU works, unless its GPUs are busy
	minWrittenBytes = 64 << 10 / 60    // bytes a second that its processes write
	minPowerShare   = 35               // a GPU that is always busy below this percentage of the most power in the attempt only waits
	alwaysBusy      = 95               // percentage of the time: less, and kernels begin and end
	maxActivityPIDs = 256              // of a task; more are not read
	powerOfGPU      = "power_watts"    // see gpu.Quantities
	processIO       = "/proc/%d/io"    // of a process; includes its dead children
	processOutput   = "/proc/%d/fd/%d" // leads to the file itself, past the permissions of its folders
	writtenOfIO     = "wchar: "
)

// activitySample is what a task has done until an instant.
type activitySample struct {
	cpu     time.Duration
	written uint64
	output  int64 // size of the files of its output
}

// inactivity is how long a task has been inactive. Only the loop changes it.
type inactivity struct {
	last      activitySample
	at, since time.Time            // of the last sample; of the last activity
	idle      map[string]time.Time // GPUs by UUID: since when their utilization is 0 %
	power     map[string]float64   // by UUID: the most in this attempt
	sampled   bool                 // its GPUs were sampled since the last check
	worked    bool                 // a GPU worked since then
	busy      map[string]bool      // GPUs that were busy since then, even if they only waited for others
	level     uint32               // 1: inactive for inactive_warning, 2: for inactive_limit
	idleGPUs  int32                // idle for inactive_warning
}

// addLoads records the use of a task's GPUs. A program that hangs in a collective operation of NCCL keeps its GPUs
// busy, but at a fraction of the power.
func (q *inactivity) addLoads(uuids []string, loads map[string]gpu.Load) {
	if q.power == nil {
		q.power, q.busy, q.idle = map[string]float64{}, map[string]bool{}, map[string]time.Time{}
	}
	for _, uuid := range uuids {
		l, known := loads[uuid]
		if !known || l.Busy == nil {
			continue
		}
		q.sampled = true
		if *l.Busy == 0 {
			continue
		}
		q.busy[uuid] = true
		watts, measured := l.Values[powerOfGPU]
		q.power[uuid] = max(q.power[uuid], watts)
		if !measured || *l.Busy < alwaysBusy || watts*100 >= q.power[uuid]*minPowerShare {
			q.worked = true
		}
	}
}

// errNoProcesses is returned for a runtime that cannot list processes.
var errNoProcesses = errors.New("the runtime lists no processes")

// errProbeHangs is returned for a task whose last check has not returned.
var errProbeHangs = errors.New("the file system of its output does not respond")

// probes are checks of tasks that may block on a file system that does not respond: at most one of each task at a time.
// Nothing waits for them, also when the daemon ends.
type probes map[*task]chan struct{}

// start begins a check of a task; false if its last one has not returned.
func (p probes) start(t *task, check func()) bool {
	if p[t] != nil {
		return false
	}
	done := make(chan struct{})
	p[t] = done
	go func() {
		defer close(done)
		check()
	}()
	return true
}

// collect forgets the checks that have returned.
func (p probes) collect() {
	for t, done := range p {
		select {
		case <-done:
			delete(p, t)
		default:
		}
	}
}

// watchActivity checks the activity of the running tasks until ctx ends. A task whose check hangs counts as active.
func (a *Agent) watchActivity(ctx context.Context) {
	timer := time.NewTimer(minActivityMeters * a.cfg.Meter)
	defer timer.Stop()
	sampling := probes{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		var running []*task
		pause := activityMeters * a.cfg.Meter
		collect := func() {
			for _, t := range a.tasks {
				if t.Phase == reconcile.Started {
					running = append(running, t)
					pause = min(pause, a.activityPause(t))
				}
			}
		}
		if a.ask(ctx, collect) != nil {
			return
		}
		sampling.collect()
		for _, t := range running {
			sample := func() {
				sample, err := a.sampleActivity(ctx, t.ID)
				at := time.Now()
				a.post(func() { a.checkActivity(t, sample, err, at) })
			}
			if !sampling.start(t, sample) {
				at := time.Now()
				a.post(func() { a.checkActivity(t, activitySample{}, errProbeHangs, at) })
			}
		}
		timer.Reset(pause)
	}
}

// activityPause returns the longest time between two checks of a task that suits the time until its warning.
func (a *Agent) activityPause(t *task) time.Duration {
	warn := a.specs[t.ID].GetInactiveWarning().AsDuration()
	if warn <= 0 {
		return activityMeters * a.cfg.Meter
	}
	return max(warn/activityChecks, minActivityMeters*a.cfg.Meter)
}

// sampleActivity measures a task. It blocks while the file system of its output does not respond. O(processes).
func (a *Agent) sampleActivity(ctx context.Context, id reconcile.ID) (activitySample, error) {
	stats, err := a.runtime.Stats(ctx, taskID(id))
	if err != nil {
		return activitySample{}, err
	}
	lister, able := a.runtime.(tasks.ProcessLister)
	if !able {
		return activitySample{}, errNoProcesses
	}
	pids, err := lister.Processes(taskID(id))
	if err != nil {
		return activitySample{}, err
	}
	s := activitySample{cpu: stats.CPUTime}
	files := map[[2]uint64]bool{}
	for _, pid := range pids[:min(len(pids), maxActivityPIDs)] {
		s.written += writtenBy(pid)
		for fd := 1; fd <= 2; fd++ {
			info, err := os.Stat(fmt.Sprintf(processOutput, pid, fd))
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || files[[2]uint64{uint64(st.Dev), st.Ino}] {
				continue
			}
			files[[2]uint64{uint64(st.Dev), st.Ino}] = true
			s.output += info.Size()
		}
	}
	return s, nil
}

// writtenBy returns the bytes that a process and its dead children passed to write calls; 0 if it has ended.
func writtenBy(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf(processIO, pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(writtenOfIO)); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return n
		}
	}
	return 0
}

// checkActivity compares a sample with the last one. It runs in the loop.
func (a *Agent) checkActivity(t *task, s activitySample, err error, at time.Time) {
	if a.tasks[t.ID] != t || t.Phase != reconcile.Started {
		return
	}
	q, uuids := &t.inactivity, a.uuidsOf(t)
	passed := at.Sub(q.at)
	if q.at.IsZero() || err != nil || passed > maxGapIntervals*activityMeters*a.cfg.Meter || q.active(s, passed, len(uuids) > 0) {
		q.since = at
	}
	for _, uuid := range uuids {
		if _, idle := q.idle[uuid]; q.sampled && !q.busy[uuid] && !idle {
			q.idle[uuid] = at
		} else if idle && (q.busy[uuid] || !q.sampled) {
			delete(q.idle, uuid)
		}
	}
	q.last, q.at, q.sampled, q.worked = s, at, false, false
	clear(q.busy)
	level, idle := q.levels(a.specs[t.ID].GetInactiveWarning().AsDuration(), a.specs[t.ID].GetInactiveLimit().AsDuration())
	if level != q.level || idle != q.idleGPUs {
		q.level, q.idleGPUs = level, idle
		nudge(a.reports)
	}
}

// active reports whether a task has done anything since the last sample. CPU time does not count while its GPUs are
// busy: a program that hangs there waits in a loop.
func (q *inactivity) active(s activitySample, passed time.Duration, hasGPUs bool) bool {
	written := uint64(passed.Seconds() * minWrittenBytes)
	switch {
	case s.output != q.last.output, s.written > q.last.written+written:
		return true
	case hasGPUs && (!q.sampled || q.worked):
		return true
	}
	return len(q.busy) == 0 && (s.cpu-q.last.cpu)*100 >= passed*minCPUShare
}

// levels returns how long the task has been inactive, and the number of GPUs that have been idle.
func (q *inactivity) levels(warn, limit time.Duration) (level uint32, idle int32) {
	if warn <= 0 {
		return 0, 0
	}
	still := q.at.Sub(q.since)
	switch {
	case limit > 0 && still >= limit:
		level = 2
	case still >= warn:
		level = 1
	}
	for _, since := range q.idle {
		if q.at.Sub(since) >= warn {
			idle++
		}
	}
	return level, idle
}
