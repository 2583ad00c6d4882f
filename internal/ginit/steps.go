//go:build linux

package ginit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// steps are the programs that run next to the task's own one.
type steps struct {
	dir     string
	order   *Order
	names   <-chan string // files that appeared in dir; never closed
	running map[int]stepProcess
}

// stepProcess is a step with a process.
type stepProcess struct {
	step    uint32
	started time.Time
	oom     uint64 // processes of the task that had been killed for memory
}

// newSteps begins to watch the directory of a task for the files of its steps. Files that exist
// already were left by an earlier gnoded that died in between, and count too.
func newSteps(dir string, order *Order) *steps {
	x := &steps{dir: dir, order: order, running: map[int]stepProcess{}}
	if order.Stepd == "" {
		return x
	}
	names := make(chan string, 64)
	x.names = names
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err == nil {
		_, err = syscall.InotifyAddWatch(watch, dir, syscall.IN_MOVED_TO)
	}
	if err != nil { // no step can start; gnoded reports it after a time
		return x
	}
	go follow(watch, dir, names)
	return x
}

// follow sends the names of the files in dir, and then of those that are moved there.
func follow(watch int, dir string, names chan<- string) {
	entries, _ := os.ReadDir(dir) // unreadable: none exists yet
	for _, entry := range entries {
		names <- entry.Name()
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := syscall.Read(watch, buffer)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || n <= 0:
			return
		}
		for data := buffer[:n]; len(data) >= syscall.SizeofInotifyEvent; {
			event := (*syscall.InotifyEvent)(unsafe.Pointer(&data[0]))
			end := syscall.SizeofInotifyEvent + int(event.Len)
			names <- strings.TrimRight(string(data[syscall.SizeofInotifyEvent:end]), "\x00")
			data = data[end:]
		}
	}
}

// supervise forwards signals to the program, starts steps and reaps, until the program has ended.
// Without a program (pid 0) it returns after SIGTERM, once the steps have ended.
func (x *steps) supervise(pid int, signals <-chan os.Signal) Record {
	stopping := false
	for {
		select {
		case name := <-x.names:
			x.handle(name)
			continue
		case sig := <-signals:
			if s, ok := sig.(syscall.Signal); ok && s != syscall.SIGCHLD {
				if pid == 0 && s == syscall.SIGTERM {
					stopping, x.order.Stepd = true, ""
					for step := range x.running { // they may have started after others got the signal
						_ = syscall.Kill(step, s)
					}
				}
				if pid != 0 { // only the program: a signal to the whole task is sent to each process
					_ = syscall.Kill(pid, s)
				}
			}
		}
		// Reap after every signal: a full channel may have dropped SIGCHLD.
		if status, ended := x.reap(pid); ended {
			x.endSteps()
			return ending(status)
		}
		if stopping && len(x.running) == 0 {
			return Record{Code: exitTerminated, Signal: int(syscall.SIGTERM)}
		}
	}
}

// reap waits for every ended child, records those of steps, and reports whether pid was one.
func (x *steps) reap(pid int) (status syscall.WaitStatus, ended bool) {
	for {
		var s syscall.WaitStatus
		var usage syscall.Rusage
		got, err := syscall.Wait4(-1, &s, syscall.WNOHANG, &usage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || got == 0:
			return status, ended
		case got == pid:
			status, ended = s, true
		default:
			if p, is := x.running[got]; is {
				delete(x.running, got)
				x.record(p, s, &usage)
			}
		}
	}
}

// endSteps kills steps that outlive the job's program and records those that already exited. The kernel closes
// the connections of a process before its parent can reap it: grun, and then the program, may end in between.
func (x *steps) endSteps() {
	for pid, p := range x.running {
		_ = syscall.Kill(pid, syscall.SIGKILL) // has no effect on a process that is exiting
		var s syscall.WaitStatus
		var usage syscall.Rusage
		err := error(syscall.EINTR)
		for errors.Is(err, syscall.EINTR) {
			_, err = syscall.Wait4(pid, &s, 0, &usage)
		}
		if err == nil && (!s.Signaled() || s.Signal() != syscall.SIGKILL) {
			x.record(p, s, &usage)
		}
		delete(x.running, pid)
	}
}

// handle acts on a file that appeared.
func (x *steps) handle(name string) {
	var step uint32
	var id uint64
	var signal int
	if n, _ := fmt.Sscanf(name, "step-%d.signal-%d-%d", &step, &id, &signal); n == 3 && name == StepSignalFile(step, id, int32(signal)) {
		x.signal(step, syscall.Signal(signal))
		return
	}
	if n, _ := fmt.Sscanf(name, "step-%d.order", &step); n == 1 && name == StepOrderFile(step) {
		x.start(step)
	}
}

// signal sends a signal to the program of a step, which may have ended.
func (x *steps) signal(step uint32, sig syscall.Signal) {
	for pid, p := range x.running {
		if p.step == step {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// start runs the program of a step, once. Another order is for the running program, which reads it after
// SIGWINCH.
func (x *steps) start(step uint32) {
	if x.order.Stepd == "" { // the task is ending
		return
	}
	claim := filepath.Join(x.dir, fmt.Sprintf("step-%d.started", step))
	f, err := os.OpenFile(claim, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		x.signal(step, syscall.SIGWINCH)
		return
	}
	_ = f.Close() // empty
	p := stepProcess{step: step, started: time.Now(), oom: x.oomKills()}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		x.refused(p, err)
		return
	}
	defer syscall.Close(null)
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null)}
	path := filepath.Join(x.dir, StepOrderFile(step))
	pid, err := syscall.ForkExec(x.order.Stepd, []string{x.order.Stepd, path}, attributes(x.order, files))
	if err != nil {
		x.refused(p, err)
		return
	}
	x.running[pid] = p
}

// refused records that the program of a step could not be executed.
func (x *steps) refused(p stepProcess, err error) {
	x.write(p, Record{Code: ExitExec, LaunchError: "cannot run " + x.order.Stepd + ": " + reason(err), Ended: time.Now().UnixNano()})
}

// record writes how a step ended, with the use of its processes.
func (x *steps) record(p stepProcess, status syscall.WaitStatus, usage *syscall.Rusage) {
	r := Record{Code: status.ExitStatus(), Started: p.started.UnixNano(), Ended: p.started.Add(time.Since(p.started)).UnixNano()}
	if status.Signaled() {
		r.Signal = int(status.Signal())
		r.Code = 128 + r.Signal
	}
	r.MaxRSS = uint64(usage.Maxrss) * 1024
	r.CPU, r.User = usage.Utime.Nano()+usage.Stime.Nano(), usage.Utime.Nano()
	r.OOMKills = x.oomKills() - p.oom
	x.write(p, r)
}

func (x *steps) write(p stepProcess, r Record) {
	_ = writeRecordFile(x.dir, StepRecordFile(p.step), r) // without space the step ends with its job
}

// oomKills returns the number of the task's processes that were killed for memory; 0 if unknown.
func (x *steps) oomKills() uint64 {
	if x.order.Group == "" {
		return 0
	}
	kills, _ := counted(filepath.Join(x.order.Group, "memory.events"), "oom_kill")
	return kills
}
