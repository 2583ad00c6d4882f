package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrRunning marks a socket on which another daemon answers.
var ErrRunning = errors.New("gauthd is running already")

// Listen opens the Unix socket that any user of the host may connect to (mode 0666), creating its
// folder (0755). It replaces the socket of a dead daemon; one that answers is ErrRunning.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create socket directory: %w", err)
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		listener.Close()
		return nil, fmt.Errorf("open socket to all users: %w", err)
	}
	return listener, nil
}

func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("open socket: %s is there and is not a socket; remove it or set another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%w: it answers on %s", ErrRunning, path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket of an ended daemon: %w", err)
	}
	return nil
}

// peerCredentials asks the kernel for the peer: effective uid and gid at the time of connecting, in
// the user namespace of this process (unix(7), SO_PEERCRED).
func peerCredentials(conn *net.UnixConn) (*syscall.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// overflowUID is the uid that stands for all those that are not mapped here, 65534 unless the
// kernel is configured otherwise.
func overflowUID() uint32 {
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			return uint32(n)
		}
	}
	return 65534
}
