package daemon

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper starts processes and waits for them. If it adopts, it also reaps orphaned descendants.
//
// All processes are started by one thread that lives as long as the reaper: the kernel ends them
// with that thread, and therefore with this process.
type reaper struct {
	adopt  bool
	starts chan func()

	mu      sync.Mutex // held while a process starts, so that it is known before it is reaped
	waiting map[int]func(syscall.WaitStatus)
	more    chan struct{} // has an element after a start
}

func newReaper(adopt bool) *reaper {
	r := &reaper{adopt: adopt, starts: make(chan func()), waiting: map[int]func(syscall.WaitStatus){}, more: make(chan struct{}, 1)}
	go func() {
		runtime.LockOSThread() // without unlocking: the thread ends with this goroutine
		for start := range r.starts {
			start()
		}
	}()
	if adopt {
		// Without it (kernels before 3.4) orphans go to init.
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		go r.reapAll()
	}
	return r
}

// close ends the thread of the processes; all must have ended.
func (r *reaper) close() {
	close(r.starts)
	close(r.more)
}

// start runs a program on the given CPUs and calls ended when it was reaped.
func (r *reaper) start(path string, args []string, attr *syscall.ProcAttr, cpus []int, ended func(syscall.WaitStatus)) (pid int, err error) {
	done := make(chan struct{})
	r.starts <- func() {
		defer close(done)
		r.mu.Lock()
		defer r.mu.Unlock()
		restore, failed := setCPUs(cpus)
		if failed != nil {
			err = failed
			return
		}
		defer restore()
		if pid, err = syscall.ForkExec(path, args, attr); err != nil {
			return
		}
		if !r.adopt {
			started := pid
			go func() { ended(waitFor(started)) }()
			return
		}
		r.waiting[pid] = ended
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
	<-done
	return pid, err
}

// setCPUs restricts this thread and the processes that it starts.
func setCPUs(cpus []int) (restore func(), err error) {
	if len(cpus) == 0 {
		return func() {}, nil
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_setaffinity", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil // it was valid before
}

func waitFor(pid int) syscall.WaitStatus {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return status
		}
	}
}

// reapAll waits for all children until the reaper is closed.
func (r *reaper) reapAll() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children
			if _, open := <-r.more; !open {
				return
			}
		default:
			r.mu.Lock()
			ended := r.waiting[pid]
			delete(r.waiting, pid)
			r.mu.Unlock()
			if ended != nil {
				ended(status)
			}
		}
	}
}

// killDescendants kills children until none is left; their children become ours and follow.
func killDescendants() {
	for {
		found := children(os.Getpid())
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			// It may have ended meanwhile.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond) // for the kernel to end them
	}
}

// children lists the processes whose parent is pid and that are not ending. O(processes of the
// container).
func children(pid int) []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := proc.Readdirnames(-1) // the next round completes a partial list
	_ = proc.Close()
	var found []int
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile("/proc/" + name + "/stat"); err == nil && isChild(stat, pid) {
			found = append(found, id)
		}
	}
	return found
}

// isChild reads the state and the parent of /proc/PID/stat (proc(5)). The command, field 2, may hold
// spaces and parentheses, so fields are counted after the last parenthesis.
func isChild(stat []byte, parent int) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 1 && string(fields[0]) != "Z" && string(fields[1]) == strconv.Itoa(parent)
}
