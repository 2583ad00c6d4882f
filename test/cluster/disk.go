package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// makeDisk mounts a new file system of some MiB at dir.
func makeDisk(image, dir string, mib int) error {
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(int64(mib)<<20), f.Close()); err != nil {
		return err
	}
	if err := do("mkfs.ext4", "-q", "-F", "-m", "0", image); err != nil {
		return err
	}
	if err := do("mount", "-o", "loop", image, dir); err != nil {
		return err
	}
	// Otherwise a node's clone of the host's file system would hold it as well, and it could not be
	// unmounted.
	return syscall.Mount("", dir, "", syscall.MS_UNBINDABLE, "")
}

// Freeze makes every write to the controller's disk hang until Thaw.
func (ctl *Controller) Freeze() error { return do("fsfreeze", "-f", ctl.Data) }

// Thaw ends Freeze.
func (ctl *Controller) Thaw() error { return do("fsfreeze", "-u", ctl.Data) }

func (ctl *Controller) ballast() string { return filepath.Join(ctl.Data, "ballast") }

// Fill uses every free byte of the controller's disk.
func (ctl *Controller) Fill() error {
	f, err := os.OpenFile(ctl.ballast(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	for size := int64(16 << 20); size >= 1<<10; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, at, size); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return fmt.Errorf("fill %s: %w", ctl.Data, err)
		default:
			at += size
		}
	}
	return nil
}

// Drain frees the space that Fill used.
func (ctl *Controller) Drain() error { return os.Remove(ctl.ballast()) }

// thawBelow thaws every file system below dir; errors of those that are not frozen are ignored.
func thawBelow(points []string) {
	for _, point := range points {
		if filepath.Base(point) == "data" {
			_ = do("fsfreeze", "-u", point)
		}
	}
}
