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

// programs are the binaries of a cluster and its users.
func programs() []string {
	return []string{"gctld", "gnoded", "gauthd", "gsubmit", "gqueue", "gcancel", "grun", "gctl", "gslurm", "ginit", "gstepd", "gshim", "gshimd", "gsim"}
}

// Build builds the programs into dir, static. A second call takes as long as
// linking does.
func Build(ctx context.Context, dir string) error {
	return build(ctx, dir, "", append(programs(), burstLocal)...)
}

// burstLocal is the provider of leased nodes, which no package has.
const burstLocal = "greylag-burst-local"

func build(ctx context.Context, dir, tags string, names ...string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(root)))
	args := []string{"build", "-buildvcs=false", "-trimpath", "-tags", tags, "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, " "), err, out)
	}
	return nil
}

// findPrograms finds the folder of the programs, and gctld and gnoded, which are built separately when a
// clock is to be moved or a node to boot. It builds missing programs.
func (c *Cluster) findPrograms(ctx context.Context) error {
	dir, err := c.programsDir(ctx)
	if err != nil {
		return err
	}
	if c.programs, err = filepath.Abs(dir); err != nil {
		return err
	}
	c.gctld, c.gnoded = c.program("gctld"), c.program("gnoded")
	if c.options.Clocks {
		c.gctld = filepath.Join(c.Dir, "clocks", "gctld")
		err = build(ctx, filepath.Dir(c.gctld), "clockfault", "gctld")
	}
	if err == nil && c.options.Boots {
		c.gnoded = filepath.Join(c.Dir, "boots", "gnoded")
		err = c.buildNode(ctx, filepath.Dir(c.gnoded))
	}
	return err
}

// bootVariable names the file with the boot ID of a gnoded built with the tag bootfault.
const bootVariable = "GREYLAG_BOOT_ID"

// buildNode builds gnoded for Options.Boots. It finds the programs that it starts next to itself.
func (c *Cluster) buildNode(ctx context.Context, dir string) error {
	if err := build(ctx, dir, "bootfault", "gnoded"); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.programs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "gnoded" {
			continue
		}
		if err := os.Symlink(c.program(e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) programsDir(ctx context.Context) (string, error) {
	dir := c.options.Programs
	if dir == "" {
		dir = os.Getenv("GREYLAG_BIN")
	}
	if dir == "" {
		dir = filepath.Join(c.Dir, "bin")
		return dir, Build(ctx, dir)
	}
	for _, program := range programs() {
		if program == "gslurm" && c.options.Programs != "" {
			continue // the packages do not have it
		}
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("%w: make build first", err)
		}
	}
	return dir, nil
}

// lookPath also searches folders of root's programs.
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
