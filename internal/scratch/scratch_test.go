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

// area returns a directory for scratch space, which users can enter.
func area(t *testing.T) Area {
	t.Helper()
	parent := t.TempDir()
	dir := filepath.Join(parent, "scratch")
	if err := errors.Join(os.Chmod(filepath.Dir(parent), 0o755), os.Chmod(parent, 0o755), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return Area{dir, "n1"}
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
	dir := area(t).Dir
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
	x, outside := area(t), t.TempDir()
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if uid == 0 {
		uid, gid = 1000, 1001
	}
	first, other := Attempt{7, 1}, Attempt{7, 2}
	path, err := x.Create(first, uid, gid, 1<<20)
	if err != nil || path != filepath.Join(x.Dir, "greylag-n1-7-1") {
		t.Fatalf("%s, %v", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeDir|0o700 || info.Sys().(*syscall.Stat_t).Uid != uid || info.Sys().(*syscall.Stat_t).Gid != gid {
		t.Errorf("%v, %v", info, err)
	}
	kept := filepath.Join(outside, "kept")
	err = errors.Join(os.WriteFile(kept, nil, 0o600), os.MkdirAll(filepath.Join(path, "a/b"), 0o700), os.Symlink(outside, filepath.Join(path, "a/link")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Create(first, uid, gid, 1<<20); err != nil || !slices.Equal(names(t, path), []string{"a"}) {
		t.Errorf("created again: %v, with %v", err, names(t, path))
	}
	if _, err := x.Create(other, uid, gid, 1<<20); err != nil {
		t.Fatal(err)
	}
	if left, err := x.Remove(first); err != nil || !slices.Equal(names(t, x.Dir), []string{"greylag-n1-7-2"}) {
		t.Errorf("%v: left: %s, %v", err, left, names(t, x.Dir))
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file behind a symbolic link: %v", err)
	}
	for range 2 {
		if _, err := x.Remove(other); err != nil || len(names(t, x.Dir)) > 0 {
			t.Errorf("%v: left: %v", err, names(t, x.Dir))
		}
	}
}

// discardOthers removes what Discard returns.
func discardOthers(t *testing.T, x Area, keep func(Attempt) bool) {
	t.Helper()
	paths, err := x.Discard(keep)
	for _, path := range paths {
		err = errors.Join(err, x.Delete(path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDiscardKeepsOtherEntries checks that only directories of attempts of this node are removed, also those
// whose earlier removal did not end.
func TestDiscardKeepsOtherEntries(t *testing.T) {
	x := area(t)
	random := strings.Repeat("A", 26)
	kept := []string{"2024-11", "greylag-7-1", "greylag-n1-07-1", "greylag-n1-7", "greylag-n1-7-1.removed-", "greylag-n1-7-1.removed-" + random[1:], "greylag-n1-7-2", "greylag-n1-7-7-1", "greylag-n2-7-1", "lost+found"}
	removed := []string{"greylag-n1-7-1", "greylag-n1-8-2.removed-" + random}
	for _, name := range slices.Concat(kept, removed) {
		if err := os.MkdirAll(filepath.Join(x.Dir, name, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := "greylag-n1-9-1"
	if err := os.WriteFile(filepath.Join(x.Dir, file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	keep := func(a Attempt) bool { return a == Attempt{7, 2} }
	paths, err := x.Discard(keep)
	if err != nil || len(paths) != 2 || !strings.HasPrefix(paths[0], filepath.Join(x.Dir, removed[0])+discarded) {
		t.Errorf("%v: %v", paths, err)
	}
	discardOthers(t, x, keep)
	want := append(kept, file)
	slices.Sort(want)
	if got := names(t, x.Dir); !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
}

// TestRemoveWhileItsUserWrites removes directories in which programs of their user create files and nested
// directories, also in working directories that are removed.
func TestRemoveWhileItsUserWrites(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: programs of a user")
	}
	x := area(t)
	const script = `p=$1
(while :; do mkdir -p $p/d; : >$p/d/f$((i%50)); : >$p/g$((i%50)); i=$((i+1)); done) 2>/dev/null &
(while ! cd $p/d; do :; done; while :; do mkdir -p d; : >f$((i%50)); : >d/f$((i%50)); i=$((i+1)); done) 2>/dev/null &
until [ -e $p/d/d/f9 ] && [ -e $p/g9 ]; do :; done
echo ready
wait`
	for number := range uint32(10) {
		a := Attempt{7, number}
		path, err := x.Create(a, 1000, 1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", script, "sh", path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}, Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = out.Read(make([]byte, 1))
		left, removing := x.Remove(a)
		if err := errors.Join(err, removing, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)); err != nil {
			t.Errorf("%s: %v", left, err)
		}
		_ = cmd.Wait() // killed
	}
	if got := names(t, x.Dir); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// TestRemoveUnmountsWhatItsUserMounted checks mounts on a directory, and on others in it.
func TestRemoveUnmountsWhatItsUserMounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	x, other := area(t), t.TempDir()
	a := Attempt{7, 1}
	path, err := x.Create(a, 1000, 1000, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(path, "a/b c")
	err = errors.Join(os.MkdirAll(inner, 0o755), os.WriteFile(filepath.Join(other, "kept"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{inner, path} {
		if err := unix.Mount(other, target, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("needs permission to mount: %v", err)
		}
	}
	if left, err := x.Remove(a); err != nil || len(names(t, x.Dir)) > 0 {
		t.Errorf("%s: %v", left, err)
	}
	if got := names(t, other); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("of the mounted directory there is left: %v", got)
	}
}

// TestCreateRemovesForeignDirectory checks that a directory of the same number of another user is removed.
func TestCreateRemovesForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: directories of two users")
	}
	x := area(t)
	path, err := x.Create(Attempt{7, 1}, 1000, 1000, 1<<20)
	if err == nil {
		err = os.WriteFile(filepath.Join(path, "private"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Create(Attempt{7, 1}, 1001, 1001, 1<<20); err != nil || len(names(t, path)) > 0 {
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
	x := Area{dir, "n1"}
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
		path, err := x.Create(a, 1000, 1000, uint64(limit)<<20)
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
		if _, err := x.Remove(a); err != nil {
			t.Fatal(err)
		}
	}
	path, err := x.Create(a, 1000, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := write(filepath.Join(path, "file"), 20); err != nil {
		t.Errorf("without a limit: %v: %s", err, out)
	}
	discardOthers(t, x, func(Attempt) bool { return false })
}

func TestInodeShare(t *testing.T) {
	dir := t.TempDir()
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		t.Fatal(err)
	}
	if system.Files == 0 {
		t.Skip("needs a file system with a number of inodes")
	}
	total := system.Blocks * uint64(system.Bsize)
	for bytes, want := range map[uint64]uint64{0: 0, 1 << 20: minInodes, total: max(minInodes, system.Files), 2 * total: max(minInodes, system.Files)} {
		if got, err := inodeShare(dir, bytes); err != nil || got != want {
			t.Errorf("%d of %d bytes: %d of %d inodes, want %d, %v", bytes, total, got, system.Files, want, err)
		}
	}
}
