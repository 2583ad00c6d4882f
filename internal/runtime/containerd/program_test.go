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
	config := r.config
	config.crun = true // to this, any program is alike
	real := must(filepath.EvalSymlinks(config.OCIRuntime))(t)
	for range 2 { // as after a daemon that was killed
		path := must(ociProgram(config))(t)
		if want := filepath.Join(programDir(config.StateDir), filepath.Base(real)); path != want {
			t.Fatalf("it is %s, want %s", path, want)
		}
		if file, err := os.OpenFile(path, os.O_WRONLY, 0); !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.ETXTBSY) { // as while others run it
			t.Errorf("opened to write: %v %v", file, err)
		}
		if !os.SameFile(must(os.Stat(path))(t), must(os.Stat(real))(t)) {
			t.Errorf("%s is not %s", path, real)
		}
	}
	if err := unmount(config.StateDir); err != nil { // as Close does
		t.Fatal(err)
	}
	if path := filepath.Join(programDir(config.StateDir), filepath.Base(real)); !os.SameFile(must(os.Stat(path))(t), must(os.Stat(real))(t)) {
		t.Errorf("%s is not %s without the daemon", path, real)
	}
	config.crun = false
	if path := must(ociProgram(config))(t); path != config.OCIRuntime {
		t.Errorf("runc is %s", path)
	}
}
