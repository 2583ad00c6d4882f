//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/runtime"
)

// tmpFolder creates a directory of uid 1000 in the host's /tmp.
func tmpFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "greylag-pin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inFolder returns a task that works in a directory of the host's /tmp, as the agent specifies it.
func inFolder(t *testing.T, id uint64, dir, script string) runtime.Spec {
	t.Helper()
	spec := job(t, id, script)
	spec.WorkDir, spec.Mounts = dir, []runtime.Mount{{Source: dir, Target: filepath.Clean(dir), Optional: true}}
	return spec
}

func symlink(t *testing.T, text, path string) {
	t.Helper()
	if err := errors.Join(os.Symlink(text, path), os.Lchown(path, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
}

// TestLinkToRootInTmp checks that a working directory in /tmp that is a link to / shows the task's
// /, not the host's processes, devices, control groups and /tmp.
func TestLinkToRootInTmp(t *testing.T) {
	r := newRuntime(t, nil)
	dir := tmpFolder(t)
	symlink(t, "/", dir+"/x")
	symlink(t, "../..", dir+"/y")
	symlink(t, "x", dir+"/z")
	for i, path := range []string{dir + "/x", dir + "/y", dir + "/z", dir + "/x/../" + dir + "/x"} {
		spec := inFolder(t, uint64(i+1), path, `ls -d proc/[0-9]* | wc -l | sed 's/^[0-9]$/few/'
cat proc/`+fmt.Sprint(os.Getpid())+`/cmdline 2>/dev/null
ls dev | grep -c '^\(mem\|kmsg\)$'
ls sys/fs/cgroup | wc -l
grep -c ' `+dir+`.*/\(proc\|sys\|dev\) ' /proc/self/mountinfo
`)
		exit, out := run(t, r, spec)
		if want := "few\n0\n0\n0\n"; out != want || exit.LaunchError != "" {
			t.Errorf("%s: %q, want %q: %+v", path, out, want, exit)
		}
	}
}

// TestLinksInTmpThatWork covers links to directories in /tmp, and to others that the task sees.
func TestLinksInTmpThatWork(t *testing.T) {
	r := newRuntime(t, nil)
	dir, house := tmpFolder(t), home(t)
	if err := errors.Join(os.Mkdir(dir+"/real", 0o777), os.Chmod(dir+"/real", 0o777), os.WriteFile(house+"/work", nil, 0o644), os.WriteFile(dir+"/real/here", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	symlink(t, house, dir+"/house")
	symlink(t, "real", dir+"/near")
	symlink(t, dir+"/near", dir+"/far")
	symlink(t, house, house+"/self")
	for i, c := range [][2]string{
		{dir + "/house", "self\nwork"}, {dir + "/near", "here"}, {dir + "/far", "here"}, {dir + "/real", "here"},
		{dir + "/far/../real", "here"}, {dir + "/house/self", "self\nwork"},
	} {
		spec := inFolder(t, uint64(i+1), c[0], "ls | grep -v out; echo written >written\n")
		exit, out := run(t, r, spec)
		if out != c[1]+"\n" || exit.Code != 0 {
			t.Errorf("%s: %q, want %q: %+v", c[0], out, c[1], exit)
		}
		if err := os.Remove(c[0] + "/written"); err != nil {
			t.Errorf("what the task wrote in %s is not on the host: %v", c[0], err)
		}
	}
}

// TestWorkDirThatCannotBe checks that the user's mistakes are reported as such, in one message.
func TestWorkDirThatCannotBe(t *testing.T) {
	r := newRuntime(t, nil)
	dir := tmpFolder(t)
	if err := errors.Join(os.WriteFile(dir+"/file", nil, 0o644), os.Mkdir(dir+"/closed", 0o700)); err != nil {
		t.Fatal(err)
	}
	link := func(name, text string) string { symlink(t, text, dir+"/"+name); return dir + "/" + name }
	for i, path := range []string{
		link("proc", "/proc"), link("ns", fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid())), link("root", "/proc/1/root"), link("self", "/proc/self/cwd"),
		link("sys", "/sys/kernel"), link("loop", "loop"), dir + "/file", dir + "/closed", dir + "/none", "/proc/1/root", "/proc/self/cwd",
	} {
		spec := inFolder(t, uint64(i+1), path, "true\n")
		if !strings.HasPrefix(path, "/tmp") {
			spec.Mounts = nil
		}
		ctx := limit(t)
		err := r.Start(ctx, spec)
		if err != nil {
			if !errors.Is(err, runtime.ErrInvalid) {
				t.Errorf("%s is the node's fault: %v", path, err)
			}
			continue
		}
		if exit := must(r.Wait(ctx, spec.ID))(t); !strings.Contains(exit.LaunchError, "cannot enter the working directory "+path) {
			t.Errorf("%s: %+v", path, exit)
		}
	}
}

// TestFoldersInImages checks that links on the host are followed, but not to system directories,
// and that the node's own directories stay hidden.
func TestFoldersInImages(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	house := home(t)
	symlink(t, "/", house+"/root")
	symlink(t, "/proc", house+"/proc")
	symlink(t, fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid()), house+"/ns")
	symlink(t, "/tmp", house+"/tmp")
	symlink(t, r.config.StateDir, house+"/state")
	symlink(t, "/dev", house+"/dev")
	spec := job(t, 1, "ls | grep -v out\n")
	spec.Image = must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: spec.Owner}))(t)
	for _, name := range []string{"root", "proc", "ns", "tmp", "state", "dev"} {
		spec.Mounts = []runtime.Mount{{Source: house + "/" + name, Target: house + "/" + name, Optional: true}}
		if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	work, mounted := house+"/real/work", house+"/real/work/mounted"
	err := errors.Join(os.MkdirAll(mounted, 0o755), unix.Mount("none", mounted, "tmpfs", 0, ""), os.WriteFile(mounted+"/file", nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
	symlink(t, "real", house+"/link")
	for source, want := range map[string]string{work: "mounted\nfile\n", house + "/link/work": "mounted\n"} {
		spec.ID.Job++
		spec.Mounts = []runtime.Mount{{Source: source, Target: "/work"}, {Source: spec.WorkDir, Target: spec.WorkDir}}
		spec.Script = []byte("#!/bin/sh\nls /work /work/mounted | grep -v :\n")
		if _, out := run(t, r, spec); strings.ReplaceAll(out, "\n\n", "\n") != want {
			t.Errorf("%s: %q, want %q", source, out, want)
		}
	}
	spec.ID.Job++
	spec.Mounts[0] = runtime.Mount{Source: work, Target: "/etc/greylag-image"}
	if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) || !strings.Contains(err.Error(), "/etc/greylag-image in the task: not a directory") {
		t.Errorf("a folder over a file of the image: %v", err)
	}
	spec.ID.Job++
	above := filepath.Dir(r.config.StateDir)
	if err := errors.Join(os.Chmod(above, 0o755), os.Chmod(r.config.StateDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	spec.Mounts[0], spec.Script = runtime.Mount{Source: above, Target: "/work"}, []byte("#!/bin/sh\nls /work/s 2>&1\n")
	if _, out := run(t, r, spec); out != "" {
		t.Errorf("the node's own folder: %q", out)
	}
}
