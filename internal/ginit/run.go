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

// forwarded lists the signals that are forwarded to the program. It leaves out SIGKILL and SIGSTOP,
// which cannot be caught (the runtime sends them, and SIGCONT, to every process itself); SIGURG, which
// Go's scheduler sends to itself; and SIGCHLD, which ginit uses.
func forwarded() []os.Signal {
	list := []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGWINCH, syscall.SIGXCPU,
		syscall.SIGPWR, syscall.SIGIO, syscall.SIGVTALRM, syscall.SIGXFSZ,
	}
	for sig := 34; sig <= 64; sig++ { // real-time signals; libc uses 32 and 33
		list = append(list, syscall.Signal(sig))
	}
	return list
}

// Run executes the order in dir and returns the exit status: the program's own, 128 + signal, or
// one of the Exit constants. Call it from the main goroutine before any other is started.
func Run(dir string) int {
	signals := make(chan os.Signal, 128)
	signal.Notify(signals, append(forwarded(), syscall.SIGCHLD)...)
	// Only this thread becomes the user. The lock follows Notify, which uses a locked thread of its
	// own for each signal: two locked threads would communicate through the kernel.
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
	record := newSteps(dir, &order).supervise(pid, signals)
	// The difference uses the monotonic clock.
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

// claim ensures that an order is executed once, even if ginit is started again.
func claim(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, StartedFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// terminated reports whether SIGTERM has arrived before the program exists. Other signals stay queued for
// the program.
func terminated(signals chan os.Signal) bool {
	for range len(signals) {
		sig := <-signals
		if sig == syscall.SIGTERM {
			return true
		}
		select {
		case signals <- sig:
		default: // full of newer signals
		}
	}
	return false
}

// refuse records why the program was not executed.
func refuse(dir string, code int, message string) int {
	record := Record{Code: code, LaunchError: message, Ended: time.Now().UnixNano()}
	if code == exitTerminated {
		record.Signal = int(syscall.SIGTERM)
	}
	if err := writeRecord(dir, record); err != nil {
		return ExitOrder // only the status reports it
	}
	return code
}

// ending converts a wait status as a shell does.
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

// writeRecord writes the whole record or nothing. It does not sync: the directory is on a tmpfs,
// and a node that loses power loses the task as well.
func writeRecord(dir string, record Record) error { return writeRecordFile(dir, RecordFile, record) }

func writeRecordFile(dir, name string, record Record) error {
	data, err := EncodeRecord(record)
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, name+".new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, name))
}

// reason removes the operation and path that os puts before the cause.
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
