//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/internal/simgpu"
)

// simulate creates GPUs and passes them to r.
func simulate(t *testing.T, r *Runtime, n int) []simgpu.Device {
	t.Helper()
	dir := filepath.Join(shared.dir, "dev-"+t.Name())
	devices := must(simgpu.Create(dir, n))(t)
	var gpus []GPU
	for _, d := range devices {
		gpus = append(gpus, GPU{Index: d.Index, UUID: fmt.Sprintf("GPU-%d", d.Index),
			Nodes: []Node{{HostPath: d.Path, Path: fmt.Sprintf("/dev/nvidia%d", d.Index)}}})
	}
	if err := WriteDevices(r.config.DeviceSpecs[0], gpus, nil, nil); err != nil {
		t.Fatal(err)
	}
	return devices
}

// try is a script that reports for each path whether it can be opened.
const try = `for d in "$@"; do
	if [ ! -e $d ]; then echo "$d absent"
	elif (exec 3<>$d) 2>/dev/null; then echo "$d opens"
	else echo "$d refused"; fi
done
`

// TestDevices checks that a task can open its own GPUs and no others.
func TestDevices(t *testing.T) {
	r := newRuntime(t, nil)
	devices := simulate(t, r, 16)
	user := job(t, 1, try)
	user.Devices = []string{"greylag.dev/gpu=0", "greylag.dev/gpu=GPU-3"}
	user.ScriptArgs = []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3", "/dev/null", devices[0].Path, devices[1].Path}
	want := fmt.Sprintf("/dev/nvidia0 opens\n/dev/nvidia1 absent\n/dev/nvidia3 opens\n/dev/null opens\n%s opens\n%s refused\n",
		devices[0].Path, devices[1].Path)
	if _, out := run(t, r, user); out != want {
		t.Errorf("as a user:\n%s\nwant:\n%s", out, want)
	}
	root := job(t, 2, fmt.Sprintf("mknod /dev/mine c %d %d && mknod /dev/other c %d %d && mknod /dev/disk b 254 0 || exit 9\n", devices[0].Major, devices[0].Minor, devices[1].Major, devices[1].Minor)+try)
	root.UID, root.GID, root.Groups = 0, 0, nil
	root.Devices, root.ScriptArgs = []string{"greylag.dev/gpu=0"}, []string{"/dev/nvidia0", "/dev/mine", "/dev/other", "/dev/disk"}
	want = "/dev/nvidia0 opens\n/dev/mine opens\n/dev/other refused\n/dev/disk refused\n"
	if exit, out := run(t, r, root); out != want {
		t.Errorf("as root:\n%s\nwant:\n%s %+v", out, want, exit)
	}
	none := job(t, 3, try)
	none.ScriptArgs = []string{"/dev/nvidia0", devices[0].Path, devices[15].Path}
	want = fmt.Sprintf("/dev/nvidia0 absent\n%s refused\n%s refused\n", devices[0].Path, devices[15].Path)
	if _, out := run(t, r, none); out != want {
		t.Errorf("without GPUs:\n%s\nwant:\n%s", out, want)
	}
}

// TestUnknownDevice checks that no task starts with fewer devices, and that a changed description
// is noticed.
func TestUnknownDevice(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo started\n")
	spec.Devices = []string{"greylag.dev/gpu=0"}
	if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
		t.Errorf("nothing described: %v", err)
	}
	simulate(t, r, 1)
	if _, out := run(t, r, spec); out != "started\n" {
		t.Errorf("described since: %q", out)
	}
	spec.ID.Job, spec.Devices = 2, []string{"greylag.dev/gpu=1"}
	if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
		t.Errorf("not described: %v", err)
	}
	if found := must(r.List(limit(t)))(t); len(found) != 1 {
		t.Errorf("a start that failed left %+v", found)
	}
}

// TestMounts checks read-only and writable mounts, the user's permissions, and that no directory is
// created on the host.
func TestMounts(t *testing.T) {
	r := newRuntime(t, nil)
	data := filepath.Join(home(t), "data")
	if err := os.MkdirAll(data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(data, 0o777), os.WriteFile(filepath.Join(data, "f"), []byte("hello\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	spec := job(t, 1, "cat /mnt/f; touch /mnt/x 2>/dev/null || echo read-only\n")
	spec.Mounts = []runtime.Mount{{Source: data, Target: "/mnt", ReadOnly: true}}
	if _, out := run(t, r, spec); out != "hello\nread-only\n" {
		t.Errorf("read-only: %q", out)
	}
	spec.ID.Job, spec.Mounts[0].ReadOnly = 2, false
	if _, out := run(t, r, spec); out != "hello\n" {
		t.Errorf("writable: %q", out)
	}
	spec.ID.Job, spec.Mounts = 4, []runtime.Mount{{Source: filepath.Join(data, "f"), Target: "/etc/hostname"}}
	spec.Script = []byte("#!/bin/sh\ncat /etc/hostname\n")
	if _, out := run(t, r, spec); out != "hello\n" {
		t.Errorf("a file: %q", out)
	}
	for _, bad := range []runtime.Mount{
		{Source: "/root/.", Target: "/mnt"},
		{Source: data, Target: "/no-such-folder-on-the-host"},
		{Source: "/nowhere", Target: "/mnt"},
	} {
		spec.ID.Job, spec.Mounts = 3, []runtime.Mount{bad}
		if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestMountIsPinned checks that the checked directory is the mounted one, although the user
// replaces it by a link to another user's directory.
func TestMountIsPinned(t *testing.T) {
	r := newRuntime(t, nil)
	shown, secret := filepath.Join(home(t), "shown"), filepath.Join(home(t), "others", "secret")
	if err := errors.Join(os.MkdirAll(shown, 0o755), os.MkdirAll(secret, 0o755), os.WriteFile(shown+"/mine", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	spec := job(t, 1, "true\n")
	spec.Mounts = []runtime.Mount{{Source: shown, Target: "/mnt"}}
	pinned, err := r.pin(&spec)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.Chmod(filepath.Dir(secret), 0o700), os.Rename(shown, shown+".old"), os.Symlink(secret, shown))
	if err != nil {
		t.Fatal(err)
	}
	place := pinned.mounts[0].Source
	if _, err := os.Stat(filepath.Join(place, "mine")); err != nil {
		t.Errorf("the task would not see what was there when it was checked: %v", err)
	}
	pinned.unpin()
	if _, err := os.Lstat(place); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", place, err)
	}
	if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
		t.Errorf("a link to where the user cannot go: %v", err)
	}
}
