//go:build linux

package ginit

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// forwarded are the signals that reach the program's process group. Left out:
// SIGKILL and SIGSTOP, which cannot be caught (the runtime sends them to every
// process itself, and SIGCONT with them); SIGURG, which Go's scheduler sends
// to itself; SIGCHLD, which is ours.
func forwarded() []os.Signal {
	list := []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGWINCH, syscall.SIGXCPU,
		syscall.SIGPWR, syscall.SIGIO, syscall.SIGVTALRM, syscall.SIGXFSZ,
	}
	for sig := 34; sig <= 64; sig++ { // real-time signals; 32 and 33 are libc's own
		list = append(list, syscall.Signal(sig))
	}
	return list
}

// Run carries out the order in dir and returns the status to exit with: the
// program's own, 128 + signal, or one of the Exit constants. It must be called
// from the main goroutine before any other is started.
func Run(dir string) int {
	signals := make(chan os.Signal, 128)
	signal.Notify(signals, append(forwarded(), syscall.SIGCHLD)...)
	// Becoming the user is a matter of this one thread. Not before Notify, which
	// talks to a locked thread of its own once for each signal: two locked
	// threads would do so through the kernel.
	runtime.LockOSThread()
	data, err := os.ReadFile(filepath.Join(dir, OrderFile))
	if err != nil {
		return refuse(dir, ExitOrder, "the task's order cannot be read: "+reason(err))
	}
	order, err := DecodeOrder(data)
	if err != nil {
		return refuse(dir, ExitOrder, err.Error())
	}
	if !claim(dir) {
		return ExitOrder
	}
	if order.Subreap {
		gatherOrphans()
	}
	started := time.Now()
	pid, failure := launch(&order, signals)
	if failure != nil {
		return refuse(dir, failure.code, failure.message)
	}
	record := supervise(pid, signals)
	// By the clock that nobody sets: what lies between is how long it ran.
	record.Started, record.Ended = started.UnixNano(), started.Add(time.Since(started)).UnixNano()
	record.measure(order.Group)
	code := record.Code
	if err := writeRecord(dir, record); err != nil {
		code = ExitOrder
	}
	if order.Subreap {
		killOrphans()
	}
	return code
}

// claim makes sure that one order is carried out once, whoever starts ginit
// again.
func claim(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, StartedFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// told tells whether SIGTERM has come. It is asked before there is a program: what
// else has come stays, for the program.
func told(signals chan os.Signal) bool {
	for range len(signals) {
		sig := <-signals
		if sig == syscall.SIGTERM {
			return true
		}
		select {
		case signals <- sig:
		default: // full of newer ones
		}
	}
	return false
}

// refuse records that the program was never executed, and why.
func refuse(dir string, code int, message string) int {
	record := Record{Code: code, LaunchError: message, Ended: time.Now().UnixNano()}
	if code == exitTold {
		record.Signal = int(syscall.SIGTERM)
	}
	if err := writeRecord(dir, record); err != nil {
		return ExitOrder // the status alone has to tell
	}
	return code
}

// supervise passes signals on and reaps until the program has ended.
func supervise(pid int, signals <-chan os.Signal) Record {
	for sig := range signals {
		if s, ok := sig.(syscall.Signal); ok && s != syscall.SIGCHLD {
			// Nobody left in the group: it is about to be reaped.
			_ = syscall.Kill(-pid, s)
		}
		// Reap after every signal: a full channel may have dropped SIGCHLD.
		if status, ended := reap(pid); ended {
			return ending(status)
		}
	}
	return Record{}
}

// reap waits for every child that has ended and tells whether pid was one.
func reap(pid int) (status syscall.WaitStatus, ended bool) {
	for {
		var s syscall.WaitStatus
		got, err := syscall.Wait4(-1, &s, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || got == 0:
			return status, ended
		case got == pid:
			status, ended = s, true
		}
	}
}

// ending writes a wait status down the way a shell says it.
func ending(status syscall.WaitStatus) Record {
	record := Record{Code: status.ExitStatus()}
	if status.Signaled() {
		record.Signal = int(status.Signal())
		record.Code = 128 + record.Signal
	}
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage) == nil {
		record.MaxRSS = uint64(usage.Maxrss) * 1024
		record.CPU, record.User = usage.Utime.Nano()+usage.Stime.Nano(), usage.Utime.Nano()
	}
	return record
}

// writeRecord leaves the whole record or none. It is not synced: the folder is
// on a tmpfs, and a node that lost power has lost the task as well.
func writeRecord(dir string, record Record) error {
	data, err := EncodeRecord(record)
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, RecordFile+".new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, RecordFile))
}

// reason strips the operation and path that os puts before the cause.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
