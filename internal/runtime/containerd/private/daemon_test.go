//go:build linux

package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSharedMount checks that nothing of a daemon's directory remains below a shared mount, as / is
// under systemd.
func TestSharedMount(t *testing.T) {
	base := t.TempDir()
	if err := syscall.Mount("greylag-test", base, "tmpfs", 0, ""); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(base, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", base, "", syscall.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	for _, tmpfs := range []bool{false, true} {
		d := &Daemon{dir: filepath.Join(base, "d"), options: Options{Tmpfs: tmpfs}}
		if err := d.prepare(); err != nil {
			t.Fatal(err)
		}
		if err := d.Stop(); err != nil {
			t.Errorf("in memory %v: %v", tmpfs, err)
		}
		if _, err := os.Stat(d.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in memory %v: %v", tmpfs, err)
		}
	}
}
