//go:build linux

// Package process runs tasks as plain processes of the daemon's user: for tests without privileges,
// laptops, and simulated clusters. It isolates nothing and limits nothing.
//
// It decides nothing that package containerd does not decide as well. It keeps the same records
// with the same first process (ginit), so that a task outlives the daemon. It never runs a task as
// another user. It refuses images and mounts, which it cannot provide. GPUs are not pinned: a task
// gets the environment that names them and can open any.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/ginit"
	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/runtime/proc"
	"github.com/greylag/greylag/internal/runtime/taskdir"
)

var (
	_ runtime.Runtime = (*Runtime)(nil)
	_ runtime.Steps   = (*Runtime)(nil)
)

// ErrRoot means that the daemon runs as root, and so would every task.
var ErrRoot = errors.New("the process runtime does not run as root: every task would be root")

// Config configures the runtime. StateDir and GInit are required.
type Config struct {
	StateDir string // one directory per task
	GInit    string // path of the ginit program
	GStepd   string // path of the program that runs steps; "": tasks have none
	// AllowRoot allows root, and tasks as root.
	AllowRoot bool
}

// Runtime runs tasks as processes. Create it with New.
type Runtime struct {
	taskdir.Steps
	config Config
	tasks  taskdir.Root
	// marker is in the environment of every process of a task, followed by the name of the task.
	// Only it identifies a process that left its parents, its group and its session.
	marker string
	mu     sync.Mutex // one Start or Remove at a time; both are short
}

// New creates the directory. ErrRoot if the daemon is root without AllowRoot.
func New(config Config) (*Runtime, error) {
	if os.Geteuid() == 0 && !config.AllowRoot {
		return nil, ErrRoot
	}
	state, err := filepath.Abs(config.StateDir)
	if err != nil {
		return nil, fmt.Errorf("task directories: %w", err)
	}
	tasks, err := taskdir.Open(filepath.Join(state, "jobs"))
	if err != nil {
		return nil, err
	}
	if config.GInit, err = exec.LookPath(config.GInit); err != nil {
		return nil, fmt.Errorf("first process of tasks: %w", err)
	}
	if config.GStepd != "" {
		if config.GStepd, err = exec.LookPath(config.GStepd); err != nil {
			return nil, fmt.Errorf("program for steps: %w", err)
		}
	}
	return &Runtime{Steps: taskdir.Steps{Root: tasks}, config: config, tasks: tasks, marker: "GREYLAG_TASK_DIR=" + state + "/"}, nil
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(_ context.Context, spec runtime.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if spec.Image != "" || len(spec.Mounts) > 0 || spec.UID != uint32(os.Getuid()) {
		return fmt.Errorf("task %s: images, mounts and other users need containers: %w", spec.ID, runtime.ErrUnsupported)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, created, err := r.tasks.Create(spec.ID)
	if err != nil {
		return err
	}
	if !created {
		if _, known, _ := dir.Process(); known || dir.Started() {
			return nil
		}
		if err := r.remove(spec.ID, dir); err != nil { // left by a daemon that was killed during a start
			return err
		}
		if _, _, err := r.tasks.Create(spec.ID); err != nil {
			return err
		}
	}
	if err := r.launch(&spec, dir); err != nil {
		return errors.Join(fmt.Errorf("start task %s: %w", spec.ID, err), r.remove(spec.ID, dir))
	}
	return nil
}

// launch writes the order and starts ginit with it.
func (r *Runtime) launch(spec *runtime.Spec, dir taskdir.Dir) error {
	order := ginit.Order{
		Args: spec.Args, Env: append(append([]string(nil), spec.Env...), r.marker+spec.ID.String()), WorkDir: spec.WorkDir,
		Stdin: spec.Stdin, Stdout: spec.Stdout, Stderr: spec.Stderr, Append: spec.Append, Umask: spec.Umask, Subreap: true, Hold: spec.Hold, Stepd: r.config.GStepd,
	}
	if order.Umask == 0 {
		order.Umask = 0o022
	}
	if len(spec.Script) > 0 {
		order.Args = append([]string{filepath.Join(string(dir), ginit.ScriptFile)}, spec.ScriptArgs...)
		order.ScriptIs = "the script"
		if err := dir.WriteScript(spec.Script, spec.UID, spec.GID); err != nil {
			return err
		}
	}
	if err := dir.WriteNotes(taskdir.Notes{Labels: spec.Labels}); err != nil {
		return err
	}
	if err := dir.WriteOrder(order); err != nil {
		return err
	}
	first := exec.Command(r.config.GInit, string(dir))
	first.Dir = "/"
	first.Env = []string{"PATH=/usr/bin:/bin", r.marker + spec.ID.String()}
	first.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals for the daemon do not reach it
	if err := first.Start(); err != nil {
		return err
	}
	handle, err := proc.Identify(first.Process.Pid) // our child, not reaped: certainly the right one
	if err == nil {
		err = dir.WriteProcess(handle)
	}
	if err != nil {
		err = errors.Join(err, first.Process.Kill())
	}
	go func() { _ = first.Wait() }() // reaps it; its record has its exit status
	return err
}

// Wait implements runtime.Runtime.
func (r *Runtime) Wait(ctx context.Context, id runtime.TaskID) (runtime.Exit, error) {
	r.mu.Lock() // a Start in progress has not recorded the process
	dir := r.tasks.Dir(id)
	exists := dir.Exists()
	r.mu.Unlock()
	if !exists {
		return runtime.Exit{}, fmt.Errorf("wait for task %s: %w", id, runtime.ErrNotFound)
	}
	handle, known, err := dir.Process()
	if err != nil {
		return runtime.Exit{}, err
	}
	if known {
		if err := handle.Wait(ctx); err != nil {
			return runtime.Exit{}, err
		}
	}
	record, recorded, err := dir.Record()
	switch {
	case err != nil:
		return runtime.Exit{}, err
	case !recorded && !dir.Exists():
		return runtime.Exit{}, fmt.Errorf("wait for task %s: %w", id, runtime.ErrNotFound)
	case !recorded: // ginit was killed
		return runtime.Exit{Lost: true, Ended: time.Now()}, nil
	}
	exit := runtime.Exit{
		Code: record.Code, Signal: record.Signal, LaunchError: record.LaunchError,
		Ended: time.Unix(0, record.Ended), PeakMemory: record.MaxRSS, CPUTime: time.Duration(record.CPU), UserTime: time.Duration(record.User),
	}
	if record.Started != 0 {
		exit.Started = time.Unix(0, record.Started)
	}
	return exit, nil
}

// Signal implements runtime.Runtime.
func (r *Runtime) Signal(ctx context.Context, id runtime.TaskID, sig syscall.Signal, all bool) error {
	dir := r.tasks.Dir(id)
	if !dir.Exists() {
		return fmt.Errorf("signal task %s: %w", id, runtime.ErrNotFound)
	}
	handle, known, err := dir.Process()
	if err != nil || !known || !handle.Alive() {
		return err
	}
	if all || sig == syscall.SIGKILL || sig == syscall.SIGSTOP || sig == syscall.SIGCONT {
		return dir.Reach(ctx, handle, sig, func() (int, error) { return r.signalAll(id, sig, handle.PID) })
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("signal task %s: %w", id, err)
	}
	return nil
}

// signalAll signals every process with the task's marker except one, and returns their number.
func (r *Runtime) signalAll(id runtime.TaskID, sig syscall.Signal, except int) (reached int, failed error) {
	for _, handle := range r.processes(id) {
		if handle.PID == except {
			continue
		}
		reached++
		if err := handle.Signal(sig); err != nil && !errors.Is(err, proc.ErrGone) {
			failed = errors.Join(failed, fmt.Errorf("signal task %s: %w", id, err))
		}
	}
	return reached, failed
}

// processes lists the processes with the task's marker. O(processes of the host).
func (r *Runtime) processes(id runtime.TaskID) []proc.Handle {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	mark := []byte(r.marker + id.String())
	var found []proc.Handle
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		handle, err := proc.Identify(pid) // before reading: then the process that is read is the one that is signalled
		if err != nil || !handle.Alive() {
			continue
		}
		environment, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err != nil {
			continue // owned by another user
		}
		for variable := range bytes.SplitSeq(environment, []byte{0}) {
			if bytes.Equal(variable, mark) {
				found = append(found, handle)
				break
			}
		}
	}
	return found
}

// removeLimit limits how long Remove waits for killed processes.
const removeLimit = 10 * time.Second

// Remove implements runtime.Runtime.
func (r *Runtime) Remove(_ context.Context, id runtime.TaskID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(id, r.tasks.Dir(id))
}

func (r *Runtime) remove(id runtime.TaskID, dir taskdir.Dir) error {
	for end := time.Now().Add(removeLimit); ; {
		left := r.processes(id)
		if len(left) == 0 {
			return dir.Remove()
		}
		if time.Now().After(end) {
			return fmt.Errorf("remove task %s: %d processes do not end: %w", id, len(left), runtime.ErrUnavailable)
		}
		if _, err := r.signalAll(id, syscall.SIGKILL, 0); err != nil {
			return err
		}
		for _, handle := range left {
			ctx, cancel := context.WithDeadline(context.Background(), end)
			_ = handle.Wait(ctx) // after the deadline the next round reports it
			cancel()
		}
	}
}

// List implements runtime.Runtime.
func (r *Runtime) List(context.Context) ([]runtime.Found, error) {
	ids, err := r.tasks.List()
	if err != nil {
		return nil, err
	}
	found := make([]runtime.Found, 0, len(ids))
	for _, id := range ids {
		task, dir := runtime.Found{ID: id}, r.tasks.Dir(id)
		if notes, err := dir.Notes(); err == nil {
			task.Labels = notes.Labels
		}
		if handle, known, err := dir.Process(); err == nil && known {
			task.Running = handle.Alive()
		}
		found = append(found, task)
	}
	return found, nil
}

// Stats implements runtime.Runtime: the sum over the present processes; ended ones do not count.
func (r *Runtime) Stats(_ context.Context, id runtime.TaskID) (runtime.Stats, error) {
	if !r.tasks.Dir(id).Exists() {
		return runtime.Stats{}, fmt.Errorf("stats of task %s: %w", id, runtime.ErrNotFound)
	}
	var stats runtime.Stats
	for _, handle := range r.processes(id) {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(handle.PID) + "/statm")
		if err != nil {
			continue // ended since
		}
		if fields := strings.Fields(string(data)); len(fields) > 1 {
			pages, _ := strconv.ParseUint(fields[1], 10, 64) // a number from the kernel
			stats.Memory += pages * uint64(os.Getpagesize())
		}
		stats.Processes++
	}
	stats.PeakMemory = stats.Memory
	return stats, nil
}
