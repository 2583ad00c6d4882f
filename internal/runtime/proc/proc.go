//go:build linux

// Package proc identifies one process of this host so that it cannot be confused with a later one
// with the same ID. It signals and waits for processes that are not its children.
//
// It decides from a process ID and the start time in the kernel. It never inspects what the process
// is.
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

// ErrGone means that the process has ended.
var ErrGone = errors.New("process has ended")

// ErrBadHandle means that a text is not the result of Handle.String.
var ErrBadHandle = errors.New("not a process handle")

// Handle identifies a process until the next boot of the host.
type Handle struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat: clock ticks after boot
}

// String returns "PID START", for a file.
func (h Handle) String() string {
	return strconv.Itoa(h.PID) + " " + strconv.FormatUint(h.Start, 10)
}

// Parse parses the result of String.
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

// Identify returns the handle of a process that is known to be alive and the right one: an unreaped
// child, or a containerd task. A zombie counts. ErrGone if it does not exist.
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

// Alive reports whether the process has not ended; a zombie has ended.
func (h Handle) Alive() bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(h.PID) + "/stat")
	if err != nil {
		return false
	}
	start, state, ok := parseStat(stat)
	return ok && start == h.Start && state != 'Z' && state != 'X'
}

// Signal sends sig. ErrGone if the process has ended.
func (h Handle) Signal(sig syscall.Signal) error {
	fd, err := h.open()
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3: the ID may be reused between check and kill
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

// Wait returns nil when the process has ended, or the error of ctx.
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
	file := os.NewFile(uintptr(fd), "pidfd") // Go's poller waits: no thread is blocked
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

// readable reports whether the process behind a pidfd has ended (pidfd_open(2)).
func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// poll checks every 50 ms: a compromise between latency and load on kernels without pidfds.
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

// open returns a pidfd that certainly refers to this process.
func (h Handle) open() (int, error) {
	fd, err := unix.PidfdOpen(h.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return -1, ErrGone
	case err != nil:
		return -1, err
	}
	if !h.Alive() { // checked after opening: the ID cannot be reused from here on
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

// parseStat returns fields 22 and 3 of /proc/PID/stat (proc(5)). The command, field 2, may hold any
// text, so fields are counted after its last parenthesis.
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
