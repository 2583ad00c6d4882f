//go:build linux

package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/image/ociimage"
	"github.com/greylag/greylag/internal/runtime"
)

// linked returns the test image with one more symbolic link, or with folders of its own under path.
func linked(t *testing.T, r *Runtime, path, text string) string {
	t.Helper()
	built := must(ociimage.Unix())(t)
	files := built.Files[:0:0]
	for _, file := range built.Files {
		if file.Path != path && !strings.HasPrefix(file.Path, path+"/") {
			files = append(files, file)
		}
	}
	built.Files = append(files, ociimage.File{Path: path, Link: text, Mode: 0o777})
	archive := filepath.Join(home(t), strings.ReplaceAll(path, "/", "-")+".tar")
	must(ociimage.WriteFile(archive, built))(t)
	return must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: runtime.Owner{UID: 1000, GID: 1000}}))(t)
}

// TestImageLinksUnderMounts: an image whose links lead a folder of the user elsewhere, or a file
// system of the task into one, is refused at the first attempt.
func TestImageLinksUnderMounts(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "echo started\n")
	work := runtime.Mount{Source: spec.WorkDir, Target: "/work"}
	for _, c := range []struct{ path, text, target, want string }{
		{"work", "/dev", "/work", "/work is a symbolic link to /dev; a directory cannot be mounted over it"},
		{"work", "/", "/work", "/work is a symbolic link to /;"},
		{"srv", "/dev", "/srv/deep/work", "/srv is a symbolic link to /dev;"},
		{"dev", "/work/dev", "/work", "/dev is a symbolic link to /work/dev;"},
		{"sys", "work", "/work", "/sys is a symbolic link to work;"},
		{"etc/hosts", "/work/hosts", "/work", "/etc/hosts is a symbolic link to /work/hosts, where /etc/hosts cannot be mounted"},
	} {
		spec.ID.Job++
		spec.Image = linked(t, r, c.path, c.text)
		work.Target = c.target
		spec.Mounts = []runtime.Mount{work, {Source: spec.WorkDir, Target: spec.WorkDir}}
		err := r.Start(limit(t), spec)
		if !errors.Is(err, runtime.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "image ") != 1 {
			t.Errorf("%s -> %s: %v", c.path, c.text, err)
		}
	}
	spec.ID.Job++
	spec.Image = linked(t, r, "etc/resolv.conf", "../run/resolve/stub.conf")
	work.Target = "/work"
	spec.Mounts = []runtime.Mount{work, {Source: spec.WorkDir, Target: spec.WorkDir}}
	if _, out := run(t, r, spec); out != "started\n" {
		t.Errorf("a link of the image's /etc/resolv.conf: %q", out)
	}
}

// TestNestedFoldersInImages: no folder is mounted inside one that the user can change meanwhile.
func TestNestedFoldersInImages(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	house := home(t)
	spec := job(t, 1, "ls | grep -v out\ngrep -c "+house+" /proc/self/mountinfo\n")
	spec.Image = must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: spec.Owner}))(t)
	other := filepath.Join(shared.dir, "other-folder")
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	if err := errors.Join(os.MkdirAll(house+"/work/in-home", 0o755), os.MkdirAll(other+"/elsewhere", 0o755)); err != nil {
		t.Fatal(err)
	}
	symlink(t, "work", house+"/near")
	symlink(t, other, house+"/far")
	for name, want := range map[string]string{"work": "in-home\n1\n", "near": "in-home\n1\n", "far": "elsewhere\n1\n"} {
		spec.ID.Job++
		spec.WorkDir = house + "/" + name
		spec.Mounts = []runtime.Mount{{Source: house, Target: house}, {Source: spec.WorkDir, Target: spec.WorkDir}}
		if _, out := run(t, r, spec); out != want {
			t.Errorf("%s: %q, want %q", name, out, want)
		}
	}
	for name, m := range map[string]runtime.Mount{
		"another folder inside the user's": {Source: other, Target: house + "/work"},
		"a folder of it at another place":  {Source: house + "/work", Target: house + "/near"},
		"read-only inside a writable one":  {Source: house + "/work", Target: house + "/work", ReadOnly: true},
	} {
		spec.Mounts[1] = m
		if err := r.Start(limit(t), spec); !errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadOnlyMountsAreRecursive: a file system below a mount that is read-only is read-only too, or not visible.
func TestReadOnlyMountsAreRecursive(t *testing.T) {
	r := newRuntime(t, nil)
	archive, _ := small(t)
	spec := job(t, 1, "touch /ds/no /ds/sub/no 2>/dev/null; cat /ds/file; ls /ds /ds/sub | grep no\n")
	spec.Image = must(r.Fetch(limit(t), runtime.FetchRequest{Reference: archive, Owner: spec.Owner}))(t)
	source := filepath.Join(shared.dir, "sets")
	if err := errors.Join(os.MkdirAll(source+"/sub", 0o777), os.Chmod(source, 0o777), os.WriteFile(source+"/file", []byte("data\n"), 0o644), unix.Mount("tmpfs", source+"/sub", "tmpfs", 0, "mode=777")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Unmount(source+"/sub", unix.MNT_DETACH), os.RemoveAll(source)) })
	spec.Mounts = []runtime.Mount{{Source: source, Target: "/ds", ReadOnly: true}, {Source: spec.WorkDir, Target: spec.WorkDir}}
	if _, out := run(t, r, spec); out != "data\n" {
		t.Errorf("printed %q", out)
	}
}

// TestImageLinksAreFollowedAsTheOCIRuntimeDoes: links inside the image, and names that a mount hides.
func TestImageLinksAreFollowedAsTheOCIRuntimeDoes(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"up": "../../../..", "loop": "loop", "usr/lib/here": "/usr/lib", "lib": "usr/lib", "tmp": "/dev", "through": "/home/u/x/../../y",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(root+"/"+path), 0o755), os.Symlink(text, root+"/"+path)); err != nil {
			t.Fatal(err)
		}
	}
	image := imageRoot{root, []string{"/home/u"}}
	for path, want := range map[string]string{
		"/up": "/", "/up/lib/x": "/usr/lib/x", "/lib/here/here/new": "/usr/lib/new", "/none/../x": "/x", "/home/u/up": "/home/u/up", "/tmp/x": "/dev/x",
	} {
		if got, _, err := image.resolve(path); got != want || err != nil {
			t.Errorf("%s leads to %s, want %s: %v", path, got, want, err)
		}
	}
	for _, path := range []string{"/loop", "/through"} {
		if got, _, err := image.resolve(path); !errors.Is(err, runtime.ErrInvalid) {
			t.Errorf("%s leads to %s: %v", path, got, err)
		}
	}
	spec := &runtime.Spec{PrivateTmp: true}
	if err := checkTargets(root, spec, []specs.Mount{{Destination: "/tmp"}}); !errors.Is(err, runtime.ErrInvalid) {
		t.Errorf("/tmp over /dev: %v", err)
	}
	if err := errors.Join(os.Remove(root+"/tmp"), os.MkdirAll(root+"/var", 0o755), os.Symlink("../tmp", root+"/var/tmp")); err != nil {
		t.Fatal(err)
	}
	if err := checkTargets(root, spec, []specs.Mount{{Destination: "/tmp"}, {Destination: "/var/tmp"}}); err != nil {
		t.Errorf("/var/tmp over /tmp: %v", err)
	}
}
