//go:build linux

package scratch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// area returns a directory for scratch space.
func area(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scratch")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// names lists a directory.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestCheckRefusesUnsafeDirectories(t *testing.T) {
	dir := area(t)
	space, err := Check(dir)
	if err != nil || space.Total == 0 {
		t.Fatalf("%+v, %v", space, err)
	}
	link := filepath.Join(filepath.Dir(dir), "link")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, file, filepath.Join(dir, "absent")} {
		if _, err := Check(path); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, mode := range []os.FileMode{0o775, 0o757, 0o700} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(dir); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "chmod 755 "+dir) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the owner of a directory")
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(dir); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "belongs to UID 1000") {
		t.Errorf("of a user: %v", err)
	}
}

// TestDirectoriesOfAttempts checks owners and modes, that a second start keeps the files, and what is removed.
func TestDirectoriesOfAttempts(t *testing.T) {
	dir, outside := area(t), t.TempDir()
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if uid == 0 {
		uid, gid = 1000, 1001
	}
	first, other := Attempt{7, 1}, Attempt{7, 2}
	path, err := Create(dir, first, uid, gid, 1<<20)
	if err != nil || path != filepath.Join(dir, "7-1") {
		t.Fatalf("%s, %v", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeDir|0o700 || info.Sys().(*syscall.Stat_t).Uid != uid || info.Sys().(*syscall.Stat_t).Gid != gid {
		t.Errorf("%v, %v", info, err)
	}
	kept := filepath.Join(outside, "kept")
	err = errors.Join(os.WriteFile(kept, nil, 0o600), os.MkdirAll(filepath.Join(path, "a/b"), 0o700), os.Symlink(outside, filepath.Join(path, "a/link")),
		os.Mkdir(filepath.Join(dir, "lost+found"), 0o700), os.Mkdir(filepath.Join(dir, "07-1"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, first, uid, gid, 1<<20); err != nil || !slices.Equal(names(t, path), []string{"a"}) {
		t.Errorf("created again: %v, with %v", err, names(t, path))
	}
	if _, err := Create(dir, other, uid, gid, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := RemoveOthers(dir, func(a Attempt) bool { return a == other }); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"07-1", "7-2", "lost+found"}) {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file behind a symbolic link: %v", err)
	}
	if err := errors.Join(Remove(dir, other), Remove(dir, other)); err != nil || len(names(t, dir)) != 2 {
		t.Errorf("removed twice: %v, left %v", err, names(t, dir))
	}
}

// TestCreateRemovesForeignDirectory checks that a directory of the same number of another user is removed.
func TestCreateRemovesForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: directories of two users")
	}
	dir := area(t)
	path, err := Create(dir, Attempt{7, 1}, 1000, 1000, 1<<20)
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "private"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, Attempt{7, 1}, 1001, 1001, 1<<20); err != nil || len(names(t, path)) > 0 {
		t.Errorf("%v, with %v", err, names(t, path))
	}
}

func TestProjectsOfAttemptsDiffer(t *testing.T) {
	seen := map[uint32]Attempt{}
	for job := range uint64(100) {
		for number := range uint32(16) {
			a := Attempt{1<<40 + job, number}
			p := project(a)
			if other, taken := seen[p]; taken || p < firstProject || p >= 2*firstProject {
				t.Fatalf("%v and %v have project %d", a, other, p)
			}
			seen[p] = a
		}
	}
}

// fileSystem is one that can enforce limits.
type fileSystem struct {
	name  string
	size  int64
	words []string // makes it
	full  string   // error of a write beyond the limit
}

// mountLimited mounts a file system with project quotas.
func mountLimited(t *testing.T, kind fileSystem) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mount a file system with project quotas")
	}
	dir := t.TempDir()
	image, target := filepath.Join(dir, "image"), filepath.Join(dir, "scratch")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, kind.size), os.Mkdir(target, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{append(kind.words, image), {"mount", "-o", "loop,prjquota", image, target}} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs %s with project quotas: %s: %v: %s", kind.name, strings.Join(words, " "), err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Error(err)
		}
	})
	return target
}

// TestLimits fills the directories of attempts as their user.
func TestLimits(t *testing.T) {
	for _, kind := range []fileSystem{
		{"ext4", 64 << 20, []string{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"}, "quota exceeded"},
		{"XFS", 512 << 20, []string{"mkfs.xfs", "-q"}, "No space left"},
	} {
		t.Run(kind.name, func(t *testing.T) { checkLimits(t, mountLimited(t, kind), kind.full) })
	}
}

func checkLimits(t *testing.T, dir, full string) {
	if space, err := Check(dir); err != nil || !space.Limited {
		t.Fatalf("%+v, %v", space, err)
	}
	a := Attempt{7, 1}
	write := func(path string, megabytes int) (string, error) {
		cmd := exec.Command("dd", "if=/dev/zero", "of="+path, "bs=1M", fmt.Sprintf("count=%d", megabytes), "conv=fsync")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, limit := range []int{4, 8} {
		path, err := Create(dir, a, 1000, 1000, uint64(limit)<<20)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, "file")
		if out, err := write(file, limit-2); err != nil {
			t.Errorf("%d of %d MiB: %v: %s", limit-2, limit, err, out)
		}
		if out, err := write(file, limit+2); err == nil || !strings.Contains(out, full) {
			t.Errorf("%d of %d MiB: %v: %s", limit+2, limit, err, out)
		}
		if err := Remove(dir, a); err != nil {
			t.Fatal(err)
		}
	}
	path, err := Create(dir, a, 1000, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := write(filepath.Join(path, "file"), 20); err != nil {
		t.Errorf("without a limit: %v: %s", err, out)
	}
	if err := RemoveOthers(dir, func(Attempt) bool { return false }); err != nil {
		t.Error(err)
	}
}
