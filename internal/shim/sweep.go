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

// settled is the minimum age of a socket that may be removed. Its creation and first listen are
// microseconds apart, also where no lock is held.
const settled = time.Minute

// Sweep removes the sockets of ended daemons, which containerd or a killed gshim would have
// removed. It does not depend on the node that created them: a socket with a listener stays.
func Sweep() error { return sweep(SocketDir) }

func sweep(dir string) error {
	lock, err := lockSockets(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
		return nil // none exists yet, or one is being created: next time
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

// lockSockets keeps other processes from creating or removing sockets until fd is closed.
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

// deserted reports whether no process listens at a socket. A hung daemon counts as listening.
func deserted(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), unix.ECONNREFUSED)
}
