//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// crun is run from a folder of ours: the one in which it is installed, mounted
// read-only. So that no container can write to the program that makes it
// (CVE-2019-5736), it otherwise mounts itself so each time that it is run, and
// executes itself once more from there: 2 to 3 ms of processor time, five times a
// task. Below the mount lies a link to the program, so that its path, which shims
// remember, serves also while this daemon is away.
//
// Not runc, which does so in any case, and from a mount that cannot be bound copies
// itself instead.

// programDir is that folder.
func programDir(stateDir string) string { return filepath.Join(stateDir, "program") }

// ociProgram is what shims run to make containers.
func ociProgram(config Config) (path string, err error) {
	if err := unmountProgram(config.StateDir); err != nil { // of a daemon that was killed
		return "", err
	}
	if !config.crun {
		return config.OCIRuntime, nil
	}
	return mountProgram(config.StateDir, config.OCIRuntime)
}

// mountProgram makes the folder and returns the program's path in it.
func mountProgram(stateDir, program string) (path string, err error) {
	program, err = filepath.EvalSymlinks(program)
	if err != nil {
		return "", fmt.Errorf("OCI runtime: %w", err)
	}
	dir := programDir(stateDir)
	path = filepath.Join(dir, filepath.Base(program))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("OCI runtime: %w", err)
	}
	next := path + ".new"
	_ = os.Remove(next) // of a daemon that was killed: it may lead elsewhere
	if err := errors.Join(os.Symlink(program, next), os.Rename(next, path)); err != nil {
		return "", fmt.Errorf("OCI runtime: %w", err)
	}
	steps := []struct {
		source string
		flags  uintptr
	}{
		{filepath.Dir(program), unix.MS_BIND},
		{"", unix.MS_UNBINDABLE}, // no task's file system contains it
		{"", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV},
	}
	for _, step := range steps {
		if err := unix.Mount(step.source, dir, "", step.flags, ""); err != nil {
			return "", fmt.Errorf("OCI runtime: mount %q on %s: %w", step.source, dir, err)
		}
	}
	return path, nil
}

// unmountProgram removes the mount; processes started from it keep running.
func unmountProgram(stateDir string) error {
	if err := unmountOurs(programDir(stateDir)); err != nil {
		return fmt.Errorf("OCI runtime: %w", err)
	}
	return nil
}
