package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/cgroup"
	"github.com/greylag/greylag/test/cluster"
)

const manyJobs = 400

// tasksIn is what tasks run in: a runtime of gnoded, with an OCI runtime found on the PATH or, if
// named, in a folder.
type tasksIn struct{ runtime, oci, folder string }

func (in tasksIn) name() string {
	return strings.TrimSpace(in.runtime + " " + filepath.Join(in.folder, in.oci))
}

// endToEnd measures empty jobs from submission to their end, next to Slurm. crunIn is the folder of
// a crun that is measured as well as the one on the PATH; empty: none.
func endToEnd(ctx context.Context, out *paper, crunIn string) error {
	out.table(fmt.Sprintf("Jobs end to end: an array of %d × true, one GPU each, 4 nodes of 8 simulated GPUs", manyJobs),
		"system", "tasks run in", "jobs/s")
	kinds := []tasksIn{{"containerd", "crun", ""}, {"containerd", "runc", ""}, {"process", "", ""}}
	if crunIn != "" {
		kinds = append([]tasksIn{{"containerd", "crun", crunIn}}, kinds...)
	}
	path := os.Getenv("PATH")
	for _, kind := range kinds {
		if (kind.runtime == "process") == (cluster.Containers() == nil) {
			continue // root's tasks run in containers, a user's cannot
		}
		if err := os.Setenv("PATH", strings.TrimPrefix(kind.folder+":"+path, ":")); err != nil {
			return err
		}
		if err := out.jobs(ctx, kind); err != nil {
			return err
		}
	}
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	s, err := startSlurm(ctx, out, 4)
	if s == nil {
		return err
	}
	defer s.stop()
	begun := time.Now()
	if said, err := s.command(ctx, "sbatch", "--wait", fmt.Sprintf("--array=1-%d", manyJobs), "--gres=gpu:1", "--mem=32M",
		"-o", "/dev/null", "--wrap", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("sbatch: %w: %s", err, said)
	}
	// sbatch --wait polls every few seconds; squeue shows the end.
	out.row("Slurm", "processes", fmt.Sprintf("%.1f", manyJobs/time.Since(begun).Seconds()))
	return nil
}

// jobs measures Greylag with one kind of task.
func (out *paper) jobs(ctx context.Context, kind tasksIn) error {
	name, measure := kind.name(), arrayRate
	if groups, err := cgroup.Detect(); err == nil && groups.Mixed() && kind.oci == "crun" {
		name, measure = name+", control groups of version 1 alone", apart
	}
	rate, err := measure(ctx, kind)
	switch {
	case errors.Is(err, errUnusable):
		out.row("Greylag", name, err)
	case err != nil:
		return err
	default:
		out.row("Greylag", name, fmt.Sprintf("%.1f", rate))
	}
	return nil
}

// errUnusable reports a runtime that cannot create containers here.
var errUnusable = errors.New("does not run on this machine")

// apart measures the rate with an OCI runtime in a copy of this program that sees neither the
// host's second hierarchy of control groups nor the mounts of nodes that run meanwhile. With all
// controllers on version 1 that hierarchy is empty, but crun refuses hosts that have it.
func apart(ctx context.Context, kind tasksIn) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", `umount -a -t cgroup2 && exec "$0" -rate "$1"`, self, kind.oci)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return 0, errUnusable
	}
	return strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
}

// printRate prints the rate with an OCI runtime, alone.
func printRate(ctx context.Context, oci string) error {
	rate, err := arrayRate(ctx, tasksIn{runtime: "containerd", oci: oci})
	if err == nil {
		fmt.Println(rate)
	}
	return err
}

func arrayRate(ctx context.Context, kind tasksIn) (float64, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Name: "bench", Nodes: 4, GPUs: 8, CPUs: 64, Memory: "64GiB", Runtime: kind.runtime, OCIRuntime: kind.oci, Tmpfs: true,
	})
	if err != nil && kind.oci == "crun" {
		return 0, errUnusable // it is not installed
	}
	if err != nil {
		return 0, err
	}
	defer c.Stop() // the result stands even if stopping fails
	// The first job shows whether jobs can run, and warms the caches.
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if result, err := c.Run(first, "gsubmit", "--wait", "--no-requeue", "--gpus=1", "--mem=32M", "--output=/dev/null", "--wrap", "true"); err != nil || result.Exit != 0 {
		return 0, errors.Join(errUnusable, err)
	}
	begun := time.Now()
	result, err := c.Run(ctx, "gsubmit", "--wait", fmt.Sprintf("--array=1-%d", manyJobs), "--gpus=1", "--mem=32M",
		"--output=/dev/null", "--wrap", "true")
	if err != nil || result.Exit != 0 {
		return 0, fmt.Errorf("gsubmit: exit %d: %s: %w", result.Exit, result.Stderr, err)
	}
	return manyJobs / time.Since(begun).Seconds(), nil
}

// slurm is a Slurm on this machine.
type slurm struct{ script, dir string }

// startSlurm starts one if its script is available; else it returns nil.
func startSlurm(ctx context.Context, out *paper, nodes int) (*slurm, error) {
	script := filepath.Join(os.Getenv("GREYLAG_TRACES"), "bench", "slurm", "slurm-bench")
	if _, err := os.Stat(script); err != nil || os.Geteuid() != 0 {
		out.note("(no Slurm at hand: it is measured as root, with GREYLAG_TRACES set)")
		return nil, nil
	}
	dir, err := os.MkdirTemp("/tmp", "gl-slurm-")
	if err != nil {
		return nil, err
	}
	s := &slurm{script, dir}
	if said, err := exec.CommandContext(ctx, script, "up", dir, fmt.Sprint(nodes)).CombinedOutput(); err != nil {
		s.stop()
		return nil, fmt.Errorf("slurm-bench: %w: %s", err, said)
	}
	if err := s.patientClients(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// patientClients gives its commands a configuration of their own: a pass over a long queue takes
// longer than their default timeout of 10 s.
func (s *slurm) patientClients() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "slurm.conf"))
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "MessageTimeout=%d\n", int(patience.Seconds()))
	return os.WriteFile(filepath.Join(s.dir, "clients.conf"), text, 0o644)
}

func (s *slurm) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+filepath.Join(s.dir, "clients.conf"))
	cmd.Dir = "/tmp"
	return cmd
}

// cpu returns the processor time so far of the daemons that serve sbatch: slurmctld and munged.
func (s *slurm) cpu() time.Duration {
	sum := time.Duration(0)
	if text, err := os.ReadFile(filepath.Join(s.dir, "ctld.pid")); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			sum += cpu(pid)
		}
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is right
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == "munged" {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				sum += cpu(pid)
			}
		}
	}
	return sum
}

// stop ends it, after its jobs, which would outlive it; the results stand even if that fails.
func (s *slurm) stop() {
	if err := s.quiet(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	pid, _ := os.ReadFile(filepath.Join(s.dir, "ctld.pid")) // none when it did not start
	if out, err := exec.Command(s.script, "down", s.dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: slurm-bench down: %v: %s\n", err, out)
	}
	for range 100 { // it writes its state while it ends
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); len(pid) == 0 || err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// quiet cancels all jobs and waits until none runs.
func (s *slurm) quiet() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := s.command(ctx, "scancel", "-u", "root").CombinedOutput(); err != nil {
		return fmt.Errorf("scancel: %w: %s", err, out)
	}
	return s.wait(ctx, "no job runs", func() (bool, error) {
		out, err := s.command(ctx, "squeue", "-h").Output()
		return len(out) == 0, err
	})
}
