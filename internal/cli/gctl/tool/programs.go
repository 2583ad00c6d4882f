package tool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FindController returns the path of gctld: next to this program, or on the PATH.
func FindController() (string, error) {
	path, err := FindProgram("gctld")
	if err != nil {
		return "", fmt.Errorf("gctld is not installed on this host: %w", err)
	}
	return path, nil
}

// FindProgram returns the path of a program: next to this one, or on the PATH.
func FindProgram(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		near := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(near); err == nil && info.Mode().IsRegular() {
			return near, nil
		}
	}
	return exec.LookPath(name)
}

// SystemdRuns reports whether systemd is the service manager of this host (sd_booted(3)).
func SystemdRuns() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}
