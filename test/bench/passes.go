package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/sim"
)

// passSize is a row of the table of passes, with its target.
type passSize struct {
	nodes, gpus, pending int
	full, event          float64 // ms
}

func passSizes() []passSize {
	return []passSize{
		{128, 8, 1_000, 10, 1}, {1_250, 8, 10_000, 500, 10}, {5_000, 8, 10_000, 1_000, 20}, {16_000, 4, 100_000, 10_000, 100},
	}
}

// passRow is the result of one run of gsim pass, and its memory use.
type passRow struct {
	sim.PassTimings
	Peak float64 `json:"peak_mb"` // resident
	Load float64 `json:"load_average"`
	Took float64 `json:"cpu_s"`
}

// passes measures one scheduling pass at four sizes, each in a process of its own.
func passes(ctx context.Context, out *paper) error {
	out.table("One scheduling pass, a full cluster (gsim pass)", "nodes × GPUs", "pending", "full p50, p99 ms", "aim",
		"after one event p50, p99 ms", "aim", "periodic replan p50, p99 ms", "heap MiB", "peak MiB", "load average")
	for _, s := range passSizes() {
		r, err := gsimPass(ctx, "--nodes", strconv.Itoa(s.nodes), "--gpus-per-node", strconv.Itoa(s.gpus), "--pending", strconv.Itoa(s.pending))
		if err != nil {
			return err
		}
		out.figures(r, fmt.Sprintf("%d × %d", s.nodes, s.gpus), s.pending, pair(r.Full), s.full, pair(r.Event), s.event,
			pair(r.Replan), fmt.Sprintf("%.0f", r.Heap), fmt.Sprintf("%.0f", r.Peak), fmt.Sprintf("%.1f", r.Load))
	}
	return nil
}

func pair(q sim.Quantiles) string { return fmt.Sprintf("%.2f, %.2f", q.P50, q.P99) }

// gsimPass runs gsim pass in a process of its own.
func gsimPass(ctx context.Context, args ...string) (*passRow, error) {
	path := filepath.Join(os.Getenv("GREYLAG_BIN"), "gsim")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: make bench builds gsim and says where", err)
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"pass", "--json"}, args...)...)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gsim pass: %w: %s", err, messages.String())
	}
	r := &passRow{Load: loadAverage(), Took: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.Peak = float64(usage.Maxrss) / 1024
	}
	return r, json.Unmarshal(out.Bytes(), r)
}

// backfillRow is one pass of Slurm's sched/backfill.
type backfillRow struct {
	Nodes   int     `json:"nodes"`
	GPUs    int     `json:"gpus_per_node"`
	Pending int     `json:"pending"`
	Cycle   float64 `json:"cycle_ms"` // Slurm's "Last cycle"
	Tried   int     `json:"tried"`    // of the pending jobs, in that cycle
	Queue   float64 `json:"squeue_ms_worst"`
	Load    float64 `json:"load_average"`
}

// compareBackfill measures a full pass of both over the same jobs: each node of 8 GPUs has a job
// with another end, and the queue is that of queue.py.
func compareBackfill(ctx context.Context, out *paper, size passSize) error {
	s, err := startSlurm(ctx, out, size.nodes)
	if s == nil {
		return err
	}
	defer s.stop()
	lines, err := s.queue(ctx, size.pending)
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "queue")
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		return err
	}
	r, err := gsimPass(ctx, "--nodes", strconv.Itoa(size.nodes), "--jobs", file)
	if err != nil {
		return err
	}
	out.table(fmt.Sprintf("One full pass, %d full nodes of %d GPUs, the same %d pending jobs, in one run", size.nodes, size.gpus, size.pending),
		"system", "jobs planned or tried", "one pass", "load average")
	out.figures(r, "Greylag", r.Planned, fmt.Sprintf("%.1f ms", r.Full.P50), fmt.Sprintf("%.1f", r.Load))
	b, err := s.backfill(ctx, size, lines)
	if err != nil {
		return err
	}
	out.figures(b, "Slurm, sched/backfill", b.Tried, fmt.Sprintf("%.1f ms", b.Cycle), fmt.Sprintf("%.1f", b.Load))
	out.note("The worst answer of squeue meanwhile: %.0f ms.", b.Queue)
	return nil
}

// queue returns the options of the jobs of Slurm's bench, one job per line.
func (s *slurm) queue(ctx context.Context, n int) ([]byte, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(s.script), "queue.py"), strconv.Itoa(n)).Output()
	if err != nil {
		return nil, fmt.Errorf("queue.py: %w", err)
	}
	return out, nil
}

// backfill fills the nodes and the queue of a Slurm, and waits for one whole pass.
func (s *slurm) backfill(ctx context.Context, size passSize, lines []byte) (*backfillRow, error) {
	for i := range size.nodes {
		limit := strconv.Itoa(10 + i*37%480)
		if err := s.batch(ctx, "-N1", "--gres=gpu:"+strconv.Itoa(size.gpus), "-t", limit); err != nil {
			return nil, err
		}
	}
	if err := s.wait(ctx, "all nodes are taken", func() (bool, error) {
		out, err := s.command(ctx, "squeue", "-h", "-t", "R").Output()
		return bytes.Count(out, []byte("\n")) == size.nodes, err
	}); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(lines)) {
		if err := s.batch(ctx, strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	if out, err := s.command(ctx, "sdiag", "-r").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sdiag -r: %w: %s", err, out)
	}
	r := &backfillRow{Nodes: size.nodes, GPUs: size.gpus, Pending: size.pending}
	err := s.wait(ctx, "a pass over the whole queue", func() (bool, error) {
		begun := time.Now()
		if err := s.command(ctx, "squeue", "-h", "-j", "1").Run(); err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		r.Queue = max(r.Queue, float64(time.Since(begun).Milliseconds()))
		out, err := s.command(ctx, "sdiag").Output()
		cycle, tried := lastCycle(string(out))
		r.Cycle, r.Tried = float64(cycle.Microseconds())/1000, tried
		return tried >= size.pending, err
	})
	r.Load = loadAverage()
	return r, err
}

// batch submits a job that sleeps until its time limit.
func (s *slurm) batch(ctx context.Context, options ...string) error {
	args := append([]string{"--parsable", "-o", "/dev/null", "--wrap", "sleep 1000000"}, options...)
	if out, err := s.command(ctx, "sbatch", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("sbatch %s: %w: %s", strings.Join(options, " "), err, out)
	}
	return nil
}

// patience is the time limit for each step of Slurm.
const patience = 20 * time.Minute

// wait polls until a condition holds.
func (s *slurm) wait(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("Slurm did not get there: "+what))
	defer cancel()
	for {
		if yes, err := is(); yes || err != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lastCycle reads from sdiag's output how long the last pass of sched/backfill took and how many
// jobs it tried to start.
func lastCycle(text string) (took time.Duration, tried int) {
	_, text, _ = strings.Cut(text, "Backfilling stats")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		switch {
		case err != nil:
		case name == "Last cycle":
			took = time.Duration(n) * time.Microsecond
		case name == "Last depth cycle (try sched)":
			tried = n
		}
	}
	return took, tried
}
