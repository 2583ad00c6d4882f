//go:build linux

package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// settled is how old a socket must be before anybody may take it for left behind: between
// its making and its first listening are microseconds, also where no lock is held.
const settled = time.Minute

// Sweep removes the sockets of daemons that are no more, which containerd or a gshim that was
// killed as well would have removed. Whose they were is not asked: where somebody listens a
// socket stays, of this node's tasks as of those of another on the same machine.
func Sweep() error { return sweep(SocketDir) }

func sweep(dir string) error {
	lock, err := lockSockets(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
		return nil // there is none yet, or one is being made: next time
	}
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := entry.Info()
		if err != nil || info.Mode().Type() != fs.ModeSocket || time.Since(info.ModTime()) < settled || !deserted(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// lockSockets keeps others from making sockets, or from removing them, until the descriptor
// is closed.
func lockSockets(dir string, how int) (fd int, err error) {
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", dir, err)
	}
	if err := unix.Flock(fd, how); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("lock %s: %w", dir, err)
	}
	return fd, nil
}

// deserted tells whether nobody listens at a socket. A daemon that hangs does.
func deserted(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}
