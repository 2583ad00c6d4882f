//go:build linux

// Package proc names one process of this host so that it cannot be mistaken for
// a later one with the same number, and waits for and signals it, although it
// is no child of ours.
//
// It decides from a process id and the instant the kernel started it. It never
// looks at what the process is.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process has ended.
var ErrGone = errors.New("process has ended")

// ErrBadHandle says that a text is not one that Handle.String wrote.
var ErrBadHandle = errors.New("not a process handle")

// Handle names a process for as long as the host is up.
type Handle struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat: clock ticks after boot
}

// String is "PID START", for a file.
func (h Handle) String() string {
	return strconv.Itoa(h.PID) + " " + strconv.FormatUint(h.Start, 10)
}

// Parse reads what String wrote.
func Parse(text string) (Handle, error) {
	pid, start, ok := strings.Cut(text, " ")
	p, errPID := strconv.ParseInt(pid, 10, 32)
	s, errStart := strconv.ParseUint(start, 10, 64)
	h := Handle{PID: int(p), Start: s}
	if !ok || errPID != nil || errStart != nil || p <= 0 || h.String() != text {
		return Handle{}, fmt.Errorf("%.40q: %w", text, ErrBadHandle)
	}
	return h, nil
}

// Identify makes a handle for a process that is known to be alive and the
// right one now: a child not yet waited for, or a containerd task. A zombie
// still counts. ErrGone where there is none.
func Identify(pid int) (Handle, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Handle{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	start, _, ok := parseStat(stat)
	if !ok {
		return Handle{}, fmt.Errorf("process %d: unreadable stat: %w", pid, ErrGone)
	}
	return Handle{PID: pid, Start: start}, nil
}

// Alive tells whether the process has yet to end; a zombie has ended.
func (h Handle) Alive() bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(h.PID) + "/stat")
	if err != nil {
		return false
	}
	start, state, ok := parseStat(stat)
	return ok && start == h.Start && state != 'Z' && state != 'X'
}

// Signal sends sig. ErrGone where the process has ended.
func (h Handle) Signal(sig syscall.Signal) error {
	fd, err := h.open()
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3: the number may be reused between look and kill
		if !h.Alive() {
			return ErrGone
		}
		return noProcess(syscall.Kill(h.PID, sig))
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return noProcess(unix.PidfdSendSignal(fd, sig, nil, 0))
}

// Wait returns nil when the process has ended, or the context's error.
func (h Handle) Wait(ctx context.Context) error {
	fd, err := h.open()
	switch {
	case errors.Is(err, ErrGone):
		return nil
	case err != nil: // before Linux 5.3
		return h.poll(ctx)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return h.poll(ctx)
	}
	file := os.NewFile(uintptr(fd), "pidfd") // into Go's poller: no thread waits
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return h.poll(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.Read(func(fd uintptr) bool { return readable(int(fd)) }); err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.poll(ctx)
}

// readable tells whether the process behind a pidfd has ended (pidfd_open(2)).
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// poll looks every 50 ms: a compromise between latency and load on kernels
// that cannot tell.
func (h Handle) poll(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for h.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// open gives a pidfd that is certainly this process.
func (h Handle) open() (int, error) {
	fd, err := unix.PidfdOpen(h.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, ErrGone
	case err != nil:
		return -1, err
	}
	if !h.Alive() { // looked at after opening: the number cannot change hands any more
		_ = unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

func noProcess(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	return err
}

// parseStat reads fields 22 and 3 of /proc/PID/stat (proc(5)). The command,
// field 2, may hold anything, so counting starts behind its last parenthesis.
func parseStat(stat []byte) (start uint64, state byte, ok bool) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 20 {
		return 0, 0, false
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err == nil
}
