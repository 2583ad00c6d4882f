// Package oci finds the program, runc or crun, that makes containers on this host. gnoded and gctl
// doctor use the same choice.
//
// It decides nothing else, and runs the program only to ask for its version.
package oci

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/runtime"
)

// Find returns the full path of the program that makes containers, and whether it is crun. name is
// a name on PATH or a path; "" is crun where it is installed and works with this host's control
// groups, else runc. mixed says that both versions of control groups have controllers, which crun
// refuses. The errors wrap runtime.ErrUnfit.
func Find(name string, mixed bool) (path string, crun bool, err error) {
	candidates := []string{name}
	if name == "" {
		candidates = []string{"crun", "runc"}
	}
	if name == "" && mixed {
		candidates = []string{"runc"}
	}
	var faults error
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", false, err
		}
		if crun, err = try(path, mixed); err == nil {
			return path, crun, nil
		}
		faults = errors.Join(faults, err)
	}
	if faults != nil {
		return "", false, faults
	}
	return "", false, fmt.Errorf("%w: none of %q is installed", runtime.ErrUnfit, candidates)
}

// versionTime bounds asking a program for its version; they answer in milliseconds.
const versionTime = 5 * time.Second

// try refuses a program that cannot make a container on this host, regardless
// of its name. The fault is then reported once for the node; otherwise each task
// would fail there and be retried.
func try(path string, mixed bool) (crun bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), versionTime)
	defer cancel()
	answer, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("%w: %s does not run: %w", runtime.ErrUnfit, path, err)
	}
	crun = strings.HasPrefix(string(answer), "crun version")
	if mixed && crun {
		return false, fmt.Errorf("%w: %s is crun, which does not support a host with control groups of both versions: set containerd.oci_runtime to runc", runtime.ErrUnfit, path)
	}
	return crun, nil
}
