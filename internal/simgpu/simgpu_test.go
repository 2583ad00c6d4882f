//go:build linux

package simgpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreate(t *testing.T) {
	testCreate(t, t.TempDir())
}

// TestCreateWhereThereAreNoDevices covers file systems mounted with nodev, such as /run and /tmp.
func TestCreateWhereThereAreNoDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	dir := t.TempDir()
	if err := unix.Mount("greylag-test", dir, "tmpfs", unix.MS_NODEV, ""); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	testCreate(t, dir)
	if Dir(dir) == dir {
		t.Error("devices are where they cannot be opened")
	}
}

func testCreate(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(elsewhere, dir)); err == nil {
			t.Error("nodes are left")
		}
	})
	devices, err := Create(dir, 4)
	if os.Geteuid() != 0 {
		if !errors.Is(err, ErrPermission) {
			t.Errorf("as a user: %v", err)
		}
		return
	}
	if errors.Is(err, ErrTooMany) {
		t.Skip("needs virtual terminals or misc devices: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	more, err := CreateFrom(filepath.Join(dir, "other"), 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[2]uint32]bool{}
	for i, d := range append(devices, more...) {
		var stat unix.Stat_t
		if err := unix.Stat(d.Path, &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Mode != unix.S_IFCHR|0o666 || unix.Major(stat.Rdev) != d.Major || unix.Minor(stat.Rdev) != d.Minor || d.Index != i%4 {
			t.Errorf("%+v is %+v", d, stat)
		}
		if seen[[2]uint32{d.Major, d.Minor}] {
			t.Errorf("%+v twice", d)
		}
		seen[[2]uint32{d.Major, d.Minor}] = true
	}
	if entries, err := os.ReadDir(Dir(filepath.Join(dir, "other"))); err != nil || len(entries) != 4 {
		t.Errorf("%v %v", entries, err)
	}
	again, err := Create(dir, 4)
	if err != nil || again[3] != devices[3] {
		t.Errorf("made again: %+v %v", again, err)
	}
	if _, err := Create(dir, Max+1); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
}

func FuzzParseMisc(f *testing.F) {
	f.Add("229 fuse\n237 loop-control\n", "fuse")
	f.Fuzz(func(t *testing.T, text, name string) {
		if minor, ok := parseMisc(text, name); ok && minor >= 1<<20 {
			t.Errorf("minor %d", minor)
		}
	})
}
