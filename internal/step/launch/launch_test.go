package launch_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/daemon"
	"github.com/greylag/greylag/internal/step/launch"
	"github.com/greylag/greylag/internal/step/stream"
)

// buffer is a Writer of several goroutines.
type buffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	added func(text string) // called with all text after each write
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.text.Write(p)
	text := b.text.String()
	b.mu.Unlock()
	if b.added != nil {
		b.added(text)
	}
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// trial is a step on pretended nodes of this process.
type trial struct {
	launch.Config
	out, errs, notes buffer
	secret           *stream.Secret
	orders           []daemon.Config
	statuses         []int // of gstepd
}

// newTrial prepares a step that runs a shell script on nodes n1, n2, ... with these tasks.
func newTrial(t *testing.T, script string, tasks ...int) *trial {
	t.Helper()
	secret, err := stream.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &trial{secret: secret, statuses: make([]int, len(tasks))}
	for i, n := range tasks {
		s.Nodes = append(s.Nodes, step.Node{Name: fmt.Sprint("n", i+1), Tasks: n})
	}
	for i := range tasks {
		s.orders = append(s.orders, daemon.Config{Order: step.Order{
			Job: 12, Step: 3, Node: i, Nodes: s.Nodes, Contact: []string{listener.Addr().String()},
			Fingerprint: hex.EncodeToString(secret.Fingerprint), Key: hex.EncodeToString(secret.Key),
			Env: []string{"SLURMD_NODENAME=" + s.Nodes[i].Name, "GREYLAG_NODELIST=n[1-9]", "GREYLAG_NNODES=9", "TMPDIR=/of-" + s.Nodes[i].Name, "GREYLAG_TMPDIR=/of-" + s.Nodes[i].Name},
		}})
	}
	s.Config = launch.Config{
		ID: "12.3", Nodes: s.Nodes, Listener: listener, Secret: secret, Stdout: &s.out, Stderr: &s.errs,
		Note: func(_ bool, text string) { fmt.Fprintln(&s.notes, text) },
		Program: step.Program{
			Args: [][]string{{"/bin/sh", "-c", script}}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir(), Umask: 0o022,
		},
	}
	return s
}

// run runs the step on all nodes and returns grun's status.
func (s *trial) run(t *testing.T) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var nodes sync.WaitGroup
	for i, order := range s.orders {
		nodes.Go(func() { s.statuses[i], _ = daemon.Run(ctx, order) })
	}
	status := launch.Run(ctx, s.Config)
	nodes.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the step did not end; notes: %s", s.notes.String())
	}
	return status
}

func sortedLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestEachTaskRunsOnItsNode checks ranks, nodes and sizes over three nodes, one without tasks.
func TestEachTaskRunsOnItsNode(t *testing.T) {
	s := newTrial(t, `echo $SLURM_PROCID $GREYLAG_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_STEP_NODELIST $SLURM_JOB_NODELIST $SLURM_GTIDS`, 2, 0, 1)
	if status := s.run(t); status != 0 || s.notes.String() != "" {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	want := "0 0 0 n1 3 2,0,1 n[1-3] n[1-9] 0,1\n1 1 0 n1 3 2,0,1 n[1-3] n[1-9] 0,1\n2 0 2 n3 3 2,0,1 n[1-3] n[1-9] 2\n"
	if got := sortedLines(s.out.String()); got != want {
		t.Errorf("output:\n%swant:\n%s", got, want)
	}
}

// TestEachTaskHasTheScratchSpaceOfItsNode checks that variables of the first node do not hide those of others.
func TestEachTaskHasTheScratchSpaceOfItsNode(t *testing.T) {
	s := newTrial(t, `echo $TMPDIR $GREYLAG_TMPDIR $SLURM_TMPDIR`, 1, 1)
	if status := s.run(t); status != 0 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	if got, want := sortedLines(s.out.String()), "/of-n1 /of-n1 /of-n1\n/of-n2 /of-n2 /of-n2\n"; got != want {
		t.Errorf("output:\n%swant:\n%s", got, want)
	}
}

// TestExitStatusIsTheHighest is row 26 of the acceptance list, and the messages.
func TestExitStatusIsTheHighest(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
		notes  string
	}{
		{`exit 0`, 0, ""},
		{`case $SLURM_PROCID in 1) exit 3;; 2) exit 7;; esac`, 7, "n1: task 1: Exited with exit code 3\nn2: task 2: Exited with exit code 7\n"},
		{`case $SLURM_PROCID in 0) exit 200;; 2) kill -9 $$;; esac`, 137, "n1: task 0: Exited with exit code 200\nn2: task 2: Killed\n"},
		{`kill -TERM $$`, 143, "n1: task 0: Terminated\nn1: task 1: Terminated\nn2: task 2: Terminated\n"},
	} {
		s := newTrial(t, c.script, 2, 1)
		if status := s.run(t); status != c.want || sortedLines(perTask(s.notes.String())) != c.notes {
			t.Errorf("%s: status %d, want %d, notes:\n%swant:\n%s", c.script, status, c.want, s.notes.String(), c.notes)
		}
	}
}

// TestOutOfMemoryWins has the counter of the control group change before a task is killed.
func TestOutOfMemoryWins(t *testing.T) {
	s := newTrial(t, `echo oom_kill 1 > events; kill -9 $$`, 1)
	s.orders[0].MemoryEvents = s.Program.Dir + "/events"
	if status := s.run(t); status != 253 || s.notes.String() != "n1: task 0: Out Of Memory\n" {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestInputGoesToAllTasks is row 28 of the acceptance list, with all modes of the input.
func TestInputGoesToAllTasks(t *testing.T) {
	for _, c := range []struct {
		in   step.Stream
		want string
	}{
		{step.Stream{}, "x\nx\nx\n"},
		{step.Stream{Mode: step.StreamNone}, ""},
		{step.Stream{Mode: step.StreamRank, Rank: 2}, "x\n"},
	} {
		s := newTrial(t, "exec cat", 2, 1)
		s.Stdin, s.Program.Stdin = strings.NewReader("x\n"), c.in
		if status := s.run(t); status != 0 || s.out.String() != c.want {
			t.Errorf("%+v: status %d, output %q, want %q", c.in, status, s.out.String(), c.want)
		}
	}
}

// TestMuchInputReachesASlowTask sends more than pipes and windows hold, and a task that reads
// nothing.
func TestMuchInputReachesASlowTask(t *testing.T) {
	s := newTrial(t, `if [ $SLURM_PROCID = 1 ]; then exit; fi; exec sha256sum`, 2, 1)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	s.Stdin = bytes.NewReader(data)
	if status := s.run(t); status != 0 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
	if want := sum(data) + "  -"; len(lines) != 2 || lines[0] != want || lines[1] != want {
		t.Errorf("%q, want twice %q", lines, want)
	}
}

// TestLabels is row 25 of the acceptance list: 12 ranks, on two nodes.
func TestLabels(t *testing.T) {
	s := newTrial(t, `echo a; printf b`, 7, 5)
	s.Label = true
	if status := s.run(t); status != 0 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("%2d: a\n", i), fmt.Sprintf("%2d: b\n", i))
	}
	if got := sortedLines(s.out.String()); got != sortedLines(strings.Join(want, "")) {
		t.Errorf("output:\n%s", got)
	}
}

// TestKillOnBadExit is row 27 of the acceptance list: the others run until they are ended.
func TestKillOnBadExit(t *testing.T) {
	s := newTrial(t, `if [ $SLURM_PROCID = 0 ]; then exit 1; fi; exec sleep 600`, 2, 1)
	s.KillOnBadExit = true
	if status := s.run(t); status != 1 {
		t.Errorf("status %d", status)
	}
	if want := "n1: task 0: Exited with exit code 1\na task failed (--kill-on-bad-exit)\n"; s.notes.String() != want {
		t.Errorf("notes:\n%s", s.notes.String())
	}
}

func TestWaitEndsTheOthers(t *testing.T) {
	s := newTrial(t, `if [ $SLURM_PROCID = 0 ]; then exit 0; fi; exec sleep 600`, 2, 1)
	s.Wait = time.Millisecond
	if status := s.run(t); status != 0 || !strings.Contains(s.notes.String(), "--wait") {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestMissingProgram has one node without the program.
func TestMissingProgram(t *testing.T) {
	s := newTrial(t, "", 1, 2)
	s.Program.Args = [][]string{{"/bin/true"}, {"nosuch"}, {"nosuch"}}
	if status := s.run(t); status != 2 {
		t.Errorf("status %d", status)
	}
	if want := "n2: task 1: cannot run nosuch: no such file or directory\nn2: task 2: cannot run nosuch: no such file or directory\n"; sortedLines(perTask(s.notes.String())) != want {
		t.Errorf("notes:\n%swant:\n%s", s.notes.String(), want)
	}
}

func TestWorkingDirectoryIsMissing(t *testing.T) {
	s := newTrial(t, "true", 1)
	s.Program.Dir = "/nonexistent/d"
	if status := s.run(t); status != 2 || !strings.Contains(s.notes.String(), "cannot enter the working directory /nonexistent/d: no such file") {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestFilesPerTask has the nodes open files, two tasks in one of them.
func TestFilesPerTask(t *testing.T) {
	for _, c := range []struct {
		pattern string
		keep    bool
		want    map[string]string
	}{
		{"o-%j-%2t", false, map[string]string{"o-12-00": "0\n", "o-12-01": "1\n", "o-12-02": "2\n"}},
		{"%N.%n", false, map[string]string{"n1.0": "0\n1\n", "n2.1": "2\n"}},
		{"%N.%n", true, map[string]string{"n1.0": "before\n0\n1\n", "n2.1": "2\n"}},
	} {
		s := newTrial(t, `echo $SLURM_PROCID`, 2, 1)
		s.Program.Stdout = step.Stream{Mode: step.StreamFile, Path: c.pattern}
		s.Program.Letters, s.Program.Append = map[byte]string{'j': "12"}, c.keep
		if err := os.WriteFile(s.Program.Dir+"/n1.0", []byte("before\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if status := s.run(t); status != 0 || s.out.String() != "" {
			t.Errorf("%s: status %d, output %q: %s", c.pattern, status, s.out.String(), s.notes.String())
		}
		for name, want := range c.want {
			got, err := os.ReadFile(s.Program.Dir + "/" + name)
			if lines := sortedLines(string(got)); err != nil || strings.TrimPrefix(lines, "before\n") != strings.TrimPrefix(sortedLines(want), "before\n") && lines != sortedLines(want) {
				t.Errorf("%s: %q, want %q: %v", name, got, want, err)
			}
		}
	}
}

// TestLinesAreNeverMixed has tasks write their lines in pieces.
func TestLinesAreNeverMixed(t *testing.T) {
	s := newTrial(t, `for i in 1 2 3 4 5 6 7 8 9; do printf "$SLURM_PROCID$SLURM_PROCID"; printf "$SLURM_PROCID\n"; done`, 4, 4)
	if status := s.run(t); status != 0 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	lines := strings.Split(strings.TrimSuffix(s.out.String(), "\n"), "\n")
	for _, line := range lines {
		if len(line) != 3 || line[0] != line[1] || line[1] != line[2] {
			t.Errorf("line %q", line)
		}
	}
	if len(lines) != 8*9 {
		t.Errorf("%d lines", len(lines))
	}
}

// TestNoOutputIsLost has 64 ranks write 64 MiB in total, and counts the whole lines of each.
func TestNoOutputIsLost(t *testing.T) {
	const each = 25000
	s := newTrial(t, fmt.Sprintf(`yes "$SLURM_PROCID 0123456789012345678901234567890123456789" | head -n %d`, each), 16, 16, 16, 16)
	reader, writer := io.Pipe()
	s.Stdout = writer
	counts := map[string]int{}
	counted := make(chan error, 1)
	go func() { counted <- countLines(reader, counts) }()
	if status := s.run(t); status != 0 {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
	writer.Close()
	if err := <-counted; err != nil {
		t.Fatal(err)
	}
	for rank := range 64 {
		line := fmt.Sprintf("%d 0123456789012345678901234567890123456789", rank)
		if counts[line] != each {
			t.Errorf("rank %d: %d whole lines, want %d", rank, counts[line], each)
		}
	}
	if len(counts) != 64 {
		t.Errorf("%d different lines, want 64", len(counts))
	}
}
