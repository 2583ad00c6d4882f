//go:build linux

// Package scratch makes and removes the directories of the local scratch space that jobs request.
//
// It decides their names, owners and limits, and whether a directory is safe to hold them. It never
// decides which of them should exist.
package scratch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// Area is the scratch directory of a node. Nodes with different names can share one.
type Area struct{ Dir, Node string }

// prefix returns how names of directories begin.
func (x Area) prefix() string { return "greylag-" + x.Node + "-" }

// discarded is in the names of directories that are to be removed, before a random text.
const discarded = ".removed-"

// Path returns the path of an attempt's directory.
func (x Area) Path(a Attempt) string {
	return filepath.Join(x.Dir, fmt.Sprintf("%s%d-%d", x.prefix(), a.Job, a.Number))
}

// parse returns the attempt of the name of a directory, and whether it is to be removed.
func (x Area) parse(name string) (a Attempt, removed, ok bool) {
	name, random, removed := strings.Cut(name, discarded)
	numbers, ok := strings.CutPrefix(name, x.prefix())
	job, number, _ := strings.Cut(numbers, "-")
	j, errJob := strconv.ParseUint(job, 10, 64)
	n, errNumber := strconv.ParseUint(number, 10, 32)
	a = Attempt{Job: j, Number: uint32(n)}
	ok = ok && errJob == nil && errNumber == nil && filepath.Base(x.Path(a)) == name && (!removed || len(random) == len(rand.Text()))
	return a, removed, ok
}

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
func (x Area) Create(a Attempt, uid, gid uint32, bytes uint64) (string, error) {
	path := x.Path(a)
	if err := x.removeForeign(a, uid); err != nil {
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
		inodes, err := inodeShare(x.Dir, bytes)
		if err == nil {
			err = setLimit(f, project(a), bytes, inodes)
		}
		if err != nil {
			return "", fmt.Errorf("%s: set its limit: %w", path, err)
		}
	}
	if os.Geteuid() == 0 {
		err = f.Chown(int(uid), int(gid)) // last: until then its user cannot change anything in it
	}
	return path, err
}

// removeForeign removes an attempt's directory unless uid or the daemon owns it: a restored cluster reuses job IDs.
func (x Area) removeForeign(a Attempt, uid uint32) error {
	info, err := os.Lstat(x.Path(a))
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
	if left, err := x.Remove(a); left == x.Path(a) {
		return err
	}
	return nil // what is left has another name, and is removed after the next start of the daemon
}

// Remove removes the directory of an attempt with its files, if it exists, and its limit. It does not follow
// symbolic links. After an error it returns the path of what is left, for [Area.Delete].
func (x Area) Remove(a Attempt) (left string, err error) {
	if left, err = x.discard(a); left == "" || err != nil {
		return left, err
	}
	return left, x.Delete(left)
}

// discard renames the directory of an attempt, which users then cannot find, and returns its new path; "" if
// it does not exist.
func (x Area) discard(a Attempt) (string, error) {
	path := x.Path(a)
	target := path + discarded + rand.Text()
	err := os.Rename(path, target)
	if errors.Is(err, unix.EBUSY) {
		unmountBelow(path)
		err = os.Rename(path, target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return path, err
	}
	return target, nil
}

// Discard renames the directories of the attempts for which keep returns false. It returns the paths of all
// renamed directories, also from earlier calls, for [Area.Delete]. Other entries stay.
func (x Area) Discard(keep func(Attempt) bool) (paths []string, err error) {
	entries, err := os.ReadDir(x.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		a, removed, ok := x.parse(entry.Name())
		if !ok || !entry.IsDir() || !removed && keep(a) {
			continue
		}
		path := filepath.Join(x.Dir, entry.Name())
		if !removed {
			path, _ = x.discard(a) // after an error it keeps its name, and Delete meets the same error
		}
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// deleteTries is the number of times that Delete tries to remove a directory.
const deleteTries = 3

// Delete removes a renamed directory with its files, and the limit of its attempt.
func (x Area) Delete(path string) error {
	var err error
	for try := 1; ; try++ {
		if f, err := open(path); err == nil {
			_ = clearInheritance(f) // fails on file systems without projects
			_ = f.Close()
		}
		if err = userfile.RemoveTree(path); err == nil || try == deleteTries {
			break
		}
		unmountBelow(path)
	}
	if err != nil {
		return err
	}
	a, _, ok := x.parse(filepath.Base(path))
	if _, err := os.Lstat(x.Path(a)); !ok || !errors.Is(err, fs.ErrNotExist) { // the attempt has another directory
		return nil
	}
	f, err := open(x.Dir)
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

// IsDiskFault reports whether an error of a removal is one of the file system, which users cannot cause.
func IsDiskFault(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EUCLEAN)
}

// unmountBelow unmounts what a user mounted on path or below it, such as a FUSE file system. O(mounts).
func unmountBelow(path string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return // the removal then fails for the same reason as before
	}
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines) // mounts on top of others come later
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 5 { // proc_pid_mountinfo(5)
			continue
		}
		if place := unescape.Replace(fields[4]); place == path || strings.HasPrefix(place, path+"/") {
			_ = unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
}

// unescape replaces the escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
