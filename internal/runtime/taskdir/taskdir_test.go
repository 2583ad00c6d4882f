//go:build linux

package taskdir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/ginit"
	"github.com/greylag/greylag/internal/runtime"
)

// TestFenceOnAFullDisk checks that a task can be removed from a full file system.
func TestFenceOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mount")
	}
	place := t.TempDir()
	if err := syscall.Mount("full", place, "tmpfs", 0, "nr_inodes=20"); err != nil {
		t.Skip("needs a mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(place, 0); err != nil {
			t.Error(err)
		}
	})
	dir, _, err := Root(place).Create(runtime.TaskID{Job: 1, Attempt: 1})
	if err == nil {
		err = dir.WriteOrder(ginit.Order{Args: []string{"true"}})
	}
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(place, strconv.Itoa(i)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := dir.Fence(); err != nil || !dir.Fenced() {
		t.Errorf("%v", err)
	}
}
