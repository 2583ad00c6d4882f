package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/test/cluster"
)

// The sizes of the steps that are measured, on stepNodes nodes with stepRanks ranks in all.
const (
	stepNodes  = 4
	stepRanks  = 64
	wideSteps  = 10     // steps of all ranks
	shortSteps = 1000   // steps of one task, one after the other
	rankLines  = 40_000 // lines that each rank writes
	lineBytes  = 100    // of one line, with its end
	stepTime   = "00:20:00"
)

// stepScript measures the steps of a job; $1 starts them. Each rank's lines begin with its rank.
const stepScript = `#!/bin/bash
run=$1
took() { echo "$1 $(( ${EPOCHREALTIME/./} - from ))"; }
"$run" true
for i in $(seq %[1]d); do from=${EPOCHREALTIME/./}; "$run" -n %[2]d true || exit; took wide; done
from=${EPOCHREALTIME/./}
for i in $(seq %[3]d); do "$run" -N1 -n1 true || exit; done
took steps
from=${EPOCHREALTIME/./}
"$run" -n %[2]d sh -c 'yes "$(printf %%-%[5]ds "$SLURM_PROCID" | tr " " x)" | head -n %[4]d' >ranks.out || exit
took output
`

// steps measures the steps of one job, next to Slurm: the same script in both.
func steps(ctx context.Context, out *paper) error {
	out.table(fmt.Sprintf("Steps of a job on %d nodes", stepNodes), "system", fmt.Sprintf("a step of %d × true: median", stepRanks), "slowest",
		fmt.Sprintf("%d steps of one task, one after the other", shortSteps), "a step", fmt.Sprintf("%d ranks write %d MB: MB/s", stepRanks, stepRanks*rankLines*lineBytes/1_000_000), "lines lost or mixed")
	script := fmt.Sprintf(stepScript, wideSteps, stepRanks, shortSteps, rankLines, lineBytes-1)
	if err := greylagSteps(ctx, out, script); err != nil {
		return err
	}
	s, err := startSlurm(ctx, out, stepNodes)
	if s == nil {
		return err
	}
	defer s.stop()
	return out.stepRow(s.dir, "Slurm", script, func(path string) ([]byte, error) {
		cmd := s.command(ctx, "sbatch", append(stepOptions(), "--output=steps.txt", path, "srun")...)
		cmd.Dir = s.dir
		return cmd.CombinedOutput()
	})
}

func stepOptions() []string {
	return []string{"--wait", "--nodes=" + strconv.Itoa(stepNodes), "--ntasks-per-node=" + strconv.Itoa(stepRanks/stepNodes), "--mem=1G", "--time=" + stepTime}
}

func greylagSteps(ctx context.Context, out *paper, script string) error {
	c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Nodes: stepNodes, CPUs: 64, Memory: "64GiB", Tmpfs: true})
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	data, err := os.ReadFile(filepath.Join(c.Programs(), "grun"))
	if err != nil {
		return err
	}
	program := filepath.Join(c.Work, "grun") // where the job sees it: its /tmp is private
	if err := os.WriteFile(program, data, 0o755); err != nil {
		return err
	}
	return out.stepRow(c.Work, "Greylag", script, func(path string) ([]byte, error) {
		return c.Command(ctx, "gsubmit", append(stepOptions(), "--output=steps.txt", path, program)...).CombinedOutput()
	})
}

// stepRow submits the script in a folder, waits for its end, and prints what it measured.
func (out *paper) stepRow(dir, system, script string, submit func(path string) ([]byte, error)) error {
	path := filepath.Join(dir, "steps.sh")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return err
	}
	said, err := submit(path)
	text, errRead := os.ReadFile(filepath.Join(dir, "steps.txt"))
	if err = errors.Join(err, errRead); err != nil {
		return fmt.Errorf("%s: %w: %s%s", system, err, said, text)
	}
	took := map[string][]time.Duration{}
	for line := range strings.Lines(string(text)) {
		var name string
		var micros int64
		if _, err := fmt.Sscan(line, &name, &micros); err != nil {
			return fmt.Errorf("%s printed %q", system, text)
		}
		took[name] = append(took[name], time.Duration(micros)*time.Microsecond)
	}
	if len(took["wide"]) != wideSteps || len(took["steps"]) != 1 || len(took["output"]) != 1 {
		return fmt.Errorf("%s printed %q", system, text)
	}
	wrong, err := checkLines(filepath.Join(dir, "ranks.out"))
	if err != nil {
		return err
	}
	rate := float64(stepRanks*rankLines*lineBytes) / 1e6 / took["output"][0].Seconds()
	out.row(system, ms(quantile(took["wide"], 0.5)), ms(quantile(took["wide"], 1)), seconds(took["steps"][0]), ms(took["steps"][0]/shortSteps), fmt.Sprintf("%.0f", rate), wrong)
	return nil
}

// checkLines returns how many lines of the ranks are missing, damaged or too many.
func checkLines(path string) (wrong int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	want := map[string]int{}
	for rank := range stepRanks {
		line := append([]byte(strconv.Itoa(rank)), bytes.Repeat([]byte("x"), lineBytes-1)...)
		want[string(line[:lineBytes-1])] = rankLines
	}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, err
		}
		if text := string(bytes.TrimSuffix(line, []byte("\n"))); want[text] > 0 {
			want[text]--
		} else {
			wrong++
		}
	}
	for _, missing := range want {
		wrong += missing
	}
	return wrong, nil
}

// names measures the commands under Slurm's names next to Greylag's own.
func names(ctx context.Context, out *paper) error {
	c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Nodes: 1, GPUs: 1})
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	out.table("Submissions by processes under two names, 1 controller, 1 node", "command", "processes at once", "jobs/s", "CPU a job: command")
	for _, at := range []int{1, 8} {
		for _, called := range []string{"gsubmit", "sbatch"} {
			r, err := spawn(ctx, at, func(ctx context.Context) *exec.Cmd {
				cmd := c.Command(ctx, "gsubmit", "--hold", "--parsable", "--wrap", "true")
				cmd.Args[0] = called // a link to the same program
				return cmd
			})
			if err != nil {
				return err
			}
			out.row(called, at, fmt.Sprintf("%.0f", r.rate()), micros(r.cpu, r.done))
		}
	}
	return nil
}

// bigArray is the number of elements of one array.
const bigArray = 1_000_000

// arrays measures one array of many elements: its submission, and listings while it waits.
func arrays(ctx context.Context, out *paper) error {
	c, err := cluster.Start(ctx, cluster.Options{Name: "bench", Runtime: "process", Policy: fmt.Sprintf("cluster = \"bench\"\nmax_array = %d\n", bigArray)})
	if err != nil {
		return err
	}
	defer c.Stop() // the results stand even if stopping fails
	out.table(fmt.Sprintf("An array of %d elements, 1 controller, no nodes", bigArray), "command", "median", "slowest", "CPU: command", "controller")
	submit := []string{"sbatch", "gsubmit", fmt.Sprintf("--array=0-%d", bigArray-1), "--parsable", "--wrap", "true"}
	if err := out.timed(ctx, c, 1, submit); err != nil {
		return err
	}
	for _, command := range [][]string{{"squeue", "gslurm"}, {"squeue", "gslurm", "--me", "--start"}, {"gqueue", "gqueue"}, {"gqueue", "gqueue", "--array"}} {
		if err := out.timed(ctx, c, 5, command); err != nil {
			return err
		}
	}
	return nil
}

// timed runs a command several times: its name, its program and its options.
func (out *paper) timed(ctx context.Context, c *cluster.Cluster, times int, command []string) error {
	var all []time.Duration
	var own time.Duration
	before := controllersCPU(c)
	for range times {
		cmd := c.Command(ctx, command[1], command[2:]...)
		cmd.Args[0] = command[0]
		begun := time.Now()
		said, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, said[:min(len(said), 500)])
		}
		all = append(all, time.Since(begun))
		own += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	words := strings.Join(append(command[:1:1], command[2:]...), " ")
	each := time.Duration(times)
	out.row(words, ms(quantile(all, 0.5)), ms(quantile(all, 1)), ms(own/each), ms((controllersCPU(c)-before)/each))
	return nil
}
