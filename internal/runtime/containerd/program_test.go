//go:build linux

package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProgram: what makes containers cannot be written to by the path that shims
// know, and they find it there also when the daemon is away or was killed.
func TestProgram(t *testing.T) {
	r := newRuntime(t, nil)
	spec := job(t, 1, "exit 3\n")
	if exit, _ := run(t, r, spec); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
	real := must(filepath.EvalSymlinks(r.config.OCIRuntime))(t)
	path := filepath.Join(programDir(r.config.StateDir), filepath.Base(real))
	same := func() bool { return os.SameFile(must(os.Stat(path))(t), must(os.Stat(real))(t)) }
	if file, err := os.OpenFile(path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("opened to write: %v %v", file, err)
	}
	if err := unmount(r.config.StateDir); err != nil { // as Close does
		t.Fatal(err)
	}
	if !same() {
		t.Errorf("%s is not %s without the daemon", path, real)
	}
	if err := r.Remove(limit(t), spec.ID); err != nil {
		t.Errorf("remove a task that was started before: %v", err)
	}
	for range 2 { // as after a daemon that was killed
		if again := must(mountProgram(r.config.StateDir, r.config.OCIRuntime))(t); again != path || !same() {
			t.Errorf("mounted again it is %s", again)
		}
	}
}
