package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/greylag/greylag/internal/step"
)

// task is one task of this node.
type task struct {
	rank, local int
	pid         int
	reaped      bool
	// child are the descriptors that only the task keeps: standard streams, then PMI.
	child []int
}

// start starts all tasks. A task that cannot be started ends at once.
func (d *daemon) start() {
	d.mu.Lock()
	for i := range d.node.Tasks {
		d.tasks = append(d.tasks, &task{rank: d.first + i, local: i})
	}
	d.left = len(d.tasks)
	d.mu.Unlock()
	if d.node.Tasks == 0 {
		close(d.ended)
	}
	syscall.Umask(d.program.Umask)
	d.input = &broadcast{taken: d.taken}
	d.mpi = newMPI(d)
	files := &files{daemon: d, opened: map[string]int{}}
	for _, t := range d.tasks {
		err := d.launch(t, files)
		for _, fd := range t.child {
			_ = syscall.Close(fd) // the task has its own
		}
		if err != nil {
			d.exited(t, step.Exit{Rank: t.rank, Code: statusOf(err), Error: err.Error()})
		}
	}
	files.close()
	d.input.start()
}

// statusOf returns the exit status for a program that cannot be run: the error's number, as Slurm
// does.
func statusOf(err error) int {
	if number, is := errors.AsType[syscall.Errno](err); is && number > 0 && number < 126 {
		return int(number)
	}
	return 1
}

// startError is a sentence about a task that cannot run, for users.
type startError struct {
	what string
	err  error
}

func (e *startError) Error() string {
	number, is := errors.AsType[syscall.Errno](e.err)
	switch {
	case is && number == syscall.ENOEXEC:
		return e.what + ": not a program for this machine, and no #! line"
	case is:
		return e.what + ": " + number.Error()
	}
	return e.what + ": " + e.err.Error()
}

func (e *startError) Unwrap() error { return e.err }

func (d *daemon) launch(t *task, files *files) error {
	if info, err := os.Stat(d.program.Dir); err != nil || !info.IsDir() {
		if err == nil {
			err = syscall.ENOTDIR
		}
		return &startError{"cannot enter the working directory " + d.program.Dir, err}
	}
	terminal, err := d.connect(t, files)
	if err != nil {
		return err
	}
	env := d.environ(t.local)
	pmi, err := d.mpi.join(t)
	if err != nil {
		return &startError{"cannot offer PMI", err}
	}
	env = append(env, pmi...)
	args := d.program.Args[t.local]
	path, err := lookUp(args[0], d.program.Dir, env)
	if err != nil {
		return &startError{"cannot run " + args[0], err}
	}
	attr := &syscall.ProcAttr{Dir: d.program.Dir, Env: env, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	for _, fd := range t.child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if terminal {
		attr.Sys.Setsid, attr.Sys.Setctty = true, true
	} else {
		attr.Sys.Setpgid = true // no session: a task that opens a terminal must not control it
	}
	var cpus []int
	if n := len(d.program.CPUs); n > 0 {
		cpus = d.program.CPUs[t.local%n]
	}
	d.mu.Lock() // the end of the task waits until its ID is known
	defer d.mu.Unlock()
	t.pid, err = d.reaper.start(path, args, attr, cpus, func(status syscall.WaitStatus) {
		d.exited(t, d.ending(t, status))
	})
	if err != nil {
		return &startError{"cannot run " + args[0], err}
	}
	return nil
}

// usualPath is where programs are if the environment has no PATH.
const usualPath = "/usr/local/bin:/usr/bin:/bin"

// lookUp finds a program as execvp does, relative to the working directory of the task.
func lookUp(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := usualPath
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	var last error = syscall.ENOENT
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		candidate := filepath.Join(folder, name)
		info, err := os.Stat(candidate)
		switch {
		case err != nil || info.IsDir():
		case syscall.Access(candidate, 1) != nil:
			last = syscall.EACCES
		default:
			return candidate, nil
		}
	}
	return "", last
}

// ending describes how a process ended.
func (d *daemon) ending(t *task, status syscall.WaitStatus) step.Exit {
	e := step.Exit{Rank: t.rank}
	if status.Signaled() {
		e.Signal, e.Core = int(status.Signal()), status.CoreDump()
	} else {
		e.Code = status.ExitStatus()
	}
	if status.Signaled() && status.Signal() == syscall.SIGKILL {
		d.mu.Lock()
		if now := d.countOOM(); now > d.oom {
			d.oom, e.OOM = now, true
		}
		d.mu.Unlock()
	}
	e.Lost = d.mpi.lost(t.rank)
	return e
}

// exited reports the end of a task.
func (d *daemon) exited(t *task, e step.Exit) {
	d.mu.Lock()
	t.reaped = true
	d.tally.Add(e)
	d.mu.Unlock()
	d.sendExit(e)
	d.mu.Lock()
	d.left--
	last := d.left == 0
	d.mu.Unlock()
	if last {
		close(d.ended)
	}
}

// countOOM returns how many processes of the job were killed for memory on this node.
func (d *daemon) countOOM() uint64 {
	data, err := os.ReadFile(d.MemoryEvents)
	if err != nil {
		return 0 // the kernel does not count them
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64) // the kernel writes a number
			return n
		}
	}
	return 0
}
