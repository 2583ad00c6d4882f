//go:build linux

// Package scratch makes and removes the directories of the local scratch space that jobs request.
//
// It decides their names, owners and limits, and whether a directory is safe to hold them. It never
// decides which of them should exist.
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/userfile"
)

// ErrUnusable means that a directory cannot hold scratch space.
var ErrUnusable = errors.New("unusable as a scratch directory")

// Attempt identifies the directory of one attempt of a job.
type Attempt struct {
	Job    uint64
	Number uint32
}

// name returns the name of the attempt's directory.
func (a Attempt) name() string { return fmt.Sprintf("%d-%d", a.Job, a.Number) }

// parseName is the reverse of name.
func parseName(name string) (Attempt, bool) {
	job, number, _ := strings.Cut(name, "-")
	j, errJob := strconv.ParseUint(job, 10, 64)
	n, errNumber := strconv.ParseUint(number, 10, 32)
	a := Attempt{Job: j, Number: uint32(n)}
	return a, errJob == nil && errNumber == nil && a.name() == name
}

// Path returns the path of an attempt's directory in dir.
func Path(dir string, a Attempt) string { return filepath.Join(dir, a.name()) }

// Space describes the file system of a directory.
type Space struct {
	Total uint64 // bytes
	// Limited reports whether the file system enforces the limits of directories.
	Limited bool
}

// Check returns the space of dir. It refuses a directory whose entries users could replace, or that they
// could not enter.
func Check(dir string) (Space, error) {
	f, err := open(dir)
	if err != nil {
		return Space{}, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer f.Close()
	var stat unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &stat), unix.Fstatfs(int(f.Fd()), &system)); err != nil {
		return Space{}, fmt.Errorf("%w: %s: %w", ErrUnusable, dir, err)
	}
	switch mode := stat.Mode & 0o777; {
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return Space{}, fmt.Errorf("%w: %s belongs to UID %d: run chown root %s", ErrUnusable, dir, stat.Uid, dir)
	case mode&0o022 != 0 || mode&0o001 == 0:
		return Space{}, fmt.Errorf("%w: %s has mode %04o: run chmod 755 %s", ErrUnusable, dir, mode, dir)
	}
	return Space{Total: system.Blocks * uint64(system.Bsize), Limited: enforcesQuotas(f)}, nil
}

// open opens a directory, and no symbolic link.
func open(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// Create makes the directory of an attempt for its user alone, with a limit in bytes where the file
// system enforces one, and returns its path. If the directory of an earlier start of the same attempt
// exists, Create keeps its files.
func Create(dir string, a Attempt, uid, gid uint32, bytes uint64) (string, error) {
	path := Path(dir, a)
	if err := removeForeign(path, uid); err != nil {
		return "", err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if enforcesQuotas(f) {
		if err := setLimit(f, project(a), bytes); err != nil {
			return "", fmt.Errorf("%s: set its limit: %w", path, err)
		}
	}
	if os.Geteuid() == 0 {
		err = f.Chown(int(uid), int(gid)) // last: until then its user cannot change anything in it
	}
	return path, err
}

// removeForeign removes path unless uid or the daemon owns it: a restored cluster reuses job IDs.
func removeForeign(path string, uid uint32) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if info.IsDir() && (owner == uid || int(owner) == os.Geteuid()) {
		return nil
	}
	return userfile.RemoveTree(path)
}

// Remove removes the directory of an attempt with its files, if it exists, and its limit. Symbolic links
// are not followed.
func Remove(dir string, a Attempt) error {
	path := Path(dir, a)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := userfile.RemoveTree(path); err != nil {
		return err
	}
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if !enforcesQuotas(f) {
		return nil
	}
	if err := clearLimit(f, project(a)); err != nil {
		return fmt.Errorf("%s: clear its limit: %w", path, err)
	}
	return nil
}

// RemoveOthers removes the directories of attempts for which keep returns false. Other entries stay.
func RemoveOthers(dir string, keep func(Attempt) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var failed error
	for _, entry := range entries {
		if a, ok := parseName(entry.Name()); ok && !keep(a) {
			failed = errors.Join(failed, Remove(dir, a))
		}
	}
	return failed
}
