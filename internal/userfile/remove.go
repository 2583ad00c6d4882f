//go:build linux

package userfile

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemoveTree removes a file, or a directory with all that is in it. It does not follow symbolic links. Before
// root empties a directory, root takes it from its owner, whose processes can then add nothing to it.
//
// It keeps two directories open at any depth, because it moves nested directories up into path; os.RemoveAll
// keeps one open per level. Where a move fails, such as in a full file system, it keeps at most maxOpen open,
// and fails at more levels. After an error some of the files are left. O(files).
func RemoveTree(path string) error {
	top, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return unlessAbsent(os.Remove(path)) // absent, or no directory
	}
	defer top.Close()
	t := tree{top: top, prefix: rand.Text()}
	return t.removeDir(top, 0, func() error { return os.Remove(path) })
}

// tree is a directory that is being removed.
type tree struct {
	top    *os.File
	prefix string // of directories that were moved to the top
	moved  int
}

const (
	clearBatch = 1024 // names that are read at once
	clearTries = 8    // times that a directory is emptied while other processes write to it
	maxOpen    = 32   // levels of directories that are open at once
)

// removeDir empties an open directory, depth levels below the top, and calls rmdir.
func (t *tree) removeDir(dir *os.File, depth int, rmdir func() error) error {
	if os.Geteuid() == 0 { // if that fails, so does the removal, whose error says more
		_ = dir.Chown(0, 0)
		_ = dir.Chmod(0o700)
	}
	for try := 1; ; try++ {
		if err := t.clear(dir, depth); err != nil {
			return err
		}
		if err := rmdir(); !isNotEmpty(err) || try == clearTries {
			return unlessAbsent(err)
		}
	}
}

// clear removes everything in a directory. If it cannot remove an entry, it removes the others of the batch.
func (t *tree) clear(dir *os.File, depth int) error {
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
		var failed error
		for _, name := range names {
			if err := t.remove(dir, name, depth); err != nil && failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return failed
		}
	}
}

// remove removes an entry of a directory, or moves it to the top.
func (t *tree) remove(dir *os.File, name string, depth int) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return unlessAbsent(err)
	}
	rmdir := func() error { return unix.Unlinkat(at, name, unix.AT_REMOVEDIR) }
	if err := rmdir(); !isNotEmpty(err) {
		return unlessAbsent(err)
	}
	if depth > 0 {
		t.moved++
		err := unix.Renameat(at, name, int(t.top.Fd()), t.prefix+strconv.Itoa(t.moved))
		if err == nil || depth == maxOpen {
			return unlessAbsent(err)
		}
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return unlessAbsent(err)
	}
	inner := os.NewFile(uintptr(fd), name)
	defer inner.Close()
	return t.removeDir(inner, depth+1, rmdir)
}

// isNotEmpty reports whether a directory was not removed since it has entries.
func isNotEmpty(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
}

// unlessAbsent returns an error, but nil if a file does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
