//go:build linux

package userfile

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemoveTree removes a file, or a directory with all that is in it, as os.RemoveAll does: it does not follow
// symbolic links. It keeps at most two directories open at any depth, because it moves nested directories
// up into path; os.RemoveAll keeps one open per level. O(files).
func RemoveTree(path string) error {
	top, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return os.RemoveAll(path) // absent, or no directory
	}
	t := tree{top: top, prefix: rand.Text()}
	err = errors.Join(t.clear(top), top.Close())
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil { // such as a move in a full file system
		return os.RemoveAll(path)
	}
	return nil
}

// tree is a directory that is being removed.
type tree struct {
	top    *os.File
	prefix string // of directories that were moved to the top
	moved  int
}

// clearBatch is the number of names that are read at once.
const clearBatch = 1024

// clear removes everything in a directory: the top, or one directly below it.
func (t *tree) clear(dir *os.File) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil { // names may be skipped while others are removed
			return err
		}
		names, err := dir.Readdirnames(clearBatch)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, name := range names {
			if err := t.remove(dir, name); err != nil {
				return err
			}
		}
	}
}

// remove removes an entry of a directory, or moves it to the top.
func (t *tree) remove(dir *os.File, name string) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if err == nil || !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if dir != t.top {
		t.moved++
		return unix.Renameat(at, name, int(t.top.Fd()), t.prefix+strconv.Itoa(t.moved))
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	inner := os.NewFile(uintptr(fd), name)
	if err := errors.Join(t.clear(inner), inner.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}
