//go:build linux

package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// nest creates pairs of directories inside each other.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			break
		}
		next := -1
		err = errors.Join(unix.Mkdirat(fd, "directory-inside", 0o755), unix.Mkdirat(fd, "empty", 0o755))
		if err == nil {
			next, err = unix.Openat(fd, "directory-inside", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		err = errors.Join(err, unix.Close(fd))
		fd = next
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveTreeOfAnyDepth removes more nested directories than the process may have open, where a path to
// the innermost would be too long.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	nest(t, dir, 500)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := RemoveTree(dir)
	if err := errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestRemoveTreeWithoutMoves checks how many levels are removed where directories cannot be moved to the top: to
// another file system here.
func TestRemoveTreeWithoutMoves(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "greylag")
	if err != nil {
		t.Skipf("needs /dev/shm: %v", err)
	}
	defer os.Remove(other)
	for depth, removed := range map[int]bool{maxOpen - 1: true, maxOpen + 1: false} {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		nest(t, dir, depth)
		top, errTop := os.Open(other)
		f, err := os.Open(dir)
		if err := errors.Join(errTop, err); err != nil {
			t.Fatal(err)
		}
		x := tree{top: top}
		err = errors.Join(x.removeDir(f, 1, func() error { return os.Remove(dir) }), f.Close(), top.Close())
		if removed && err != nil || !removed && !errors.Is(err, unix.EXDEV) {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

func TestRemoveTreeFollowsNoLink(t *testing.T) {
	parent := t.TempDir()
	dir, other := filepath.Join(parent, "tree"), filepath.Join(parent, "other")
	kept := filepath.Join(other, "kept")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755), os.Mkdir(other, 0o755), os.WriteFile(kept, nil, 0o600),
		os.Symlink(other, filepath.Join(dir, "link")), os.Symlink(other, filepath.Join(dir, "a/b/link")), os.Symlink(dir, filepath.Join(parent, "entry")))
	for i := range 3000 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "a/b", fmt.Sprint(i)), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(filepath.Join(parent, "entry")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); err != nil {
		t.Errorf("behind a link: %v", err)
	}
	if err := errors.Join(RemoveTree(dir), RemoveTree(dir), RemoveTree(filepath.Join(dir, "absent"))); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := RemoveTree(kept); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(other); err != nil || len(entries) > 0 {
		t.Errorf("a file is left: %v, %v", entries, err)
	}
}

// TestRemoveTreeTakesDirectories checks that a user whose files are being removed cannot add others.
func TestRemoveTreeTakesDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the owner of a directory")
	}
	dir := filepath.Join(t.TempDir(), "tree")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777), os.Chown(dir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := RemoveTree(dir); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil || stat.Uid != 0 || stat.Mode&0o777 != 0o700 {
		t.Errorf("UID %d, mode %o, %v", stat.Uid, stat.Mode, err)
	}
}
