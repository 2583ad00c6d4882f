package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are what a cluster and its users need.
func programs() []string {
	return []string{"gctld", "gnoded", "gauthd", "gsubmit", "gqueue", "gcancel", "gctl", "ginit"}
}

// Build builds the programs into dir, static, with build tags. A second call
// takes as long as linking does.
func Build(ctx context.Context, dir string, tags ...string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(root)))
	args := []string{"build", "-buildvcs=false", "-trimpath", "-tags", strings.Join(tags, ","), "-o", dir + "/"}
	for _, program := range programs() {
		args = append(args, "./cmd/"+program)
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// findPrograms is the folder of the programs; they are built where there are none.
func (c *Cluster) findPrograms(ctx context.Context) (string, error) {
	if c.options.Clocks {
		dir := filepath.Join(c.Dir, "bin")
		return dir, Build(ctx, dir, "clockfault")
	}
	dir := c.options.Programs
	if dir == "" {
		dir = os.Getenv("GREYLAG_BIN")
	}
	if dir == "" {
		dir = filepath.Join(c.Dir, "bin")
		return dir, Build(ctx, dir)
	}
	for _, program := range programs() {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("%w: make build first", err)
		}
	}
	return filepath.Abs(dir)
}

// lookPath also looks where only root's programs are.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, program))
	}
	return path, err
}

// do runs one of the system's programs; its output is in the error.
func do(program string, args ...string) error {
	path, err := lookPath(program)
	if err != nil {
		return err
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), errors.Join(err, errors.New(text)))
	}
	return nil
}
