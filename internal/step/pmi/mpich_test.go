package pmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build compiles a program of testdata, or skips the test where the packages are not installed.
func build(t *testing.T, source, compiler, header string, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("%s is not installed", compiler)
	}
	if _, err := os.Stat(header); header != "" && err != nil {
		t.Skipf("%s is not installed", header)
	}
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command(compiler, append([]string{"-o", program, filepath.Join("testdata", source)}, flags...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return program
}

// socketpair returns the server's end of a connection and the end that a process inherits.
func socketpair(t *testing.T) (net.Conn, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(fds[0]), "server")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	return conn, os.NewFile(uintptr(fds[1]), "rank")
}

// result is what a run of a step left.
type result struct {
	lines    []string // of all ranks, sorted
	statuses []int    // by rank
	aborts   []string
	unclean  []int // ranks that left without finalize
}

// runStep runs program on nodes pretended by servers of their own, with tasks ranks on each. A rank
// that asks to abort, or that leaves without finalize, ends the others.
func runStep(t *testing.T, nodes, tasks int, program string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	size, exchange := nodes*tasks, newMemoryExchange(nodes)
	r := result{statuses: make([]int, size)}
	var mu sync.Mutex
	var ranks sync.WaitGroup
	for node := range nodes {
		c := Config{Job: "123.0", Size: size, Node: node, Exchange: exchange, Mapping: Mapping(bytesOf(tasks, nodes))}
		for local := range tasks {
			c.Ranks = append(c.Ranks, node*tasks+local)
		}
		c.Abort = func(rank, code int, message string) {
			mu.Lock()
			defer mu.Unlock()
			r.aborts = append(r.aborts, strings.TrimSpace(fmt.Sprint(rank, " ", code, " ", message)))
			cancel()
		}
		s := New(c)
		for _, rank := range c.Ranks {
			conn, inherited := socketpair(t)
			ranks.Go(func() { _ = s.Serve(ctx, rank, conn) })
			ranks.Go(func() {
				command := exec.CommandContext(ctx, program, args...)
				command.ExtraFiles = []*os.File{inherited}
				command.Env = append(os.Environ(), Environ(rank, size, c.Job, 3)...)
				out, err := command.CombinedOutput()
				inherited.Close()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				r.statuses[rank] = command.ProcessState.ExitCode()
				r.lines = append(r.lines, strings.Split(strings.TrimSpace(string(out)), "\n")...)
				if initialized, finalized := s.Joined(rank); initialized && !finalized && ctx.Err() == nil {
					r.unclean = append(r.unclean, rank)
					cancel()
				}
			})
		}
	}
	ranks.Wait()
	slices.Sort(r.lines)
	return r
}

func TestMPICHRunsAnAllReduceOnTwoNodes(t *testing.T) {
	program := build(t, "allreduce.c", "mpicc.mpich", "")
	for _, nodes := range []int{1, 2} {
		r := runStep(t, nodes, 4/nodes, program)
		want := "rank 0 of 4: sum 10|rank 1 of 4: sum 10|rank 2 of 4: sum 10|rank 3 of 4: sum 10"
		if got := strings.Join(r.lines, "|"); got != want || !slices.Equal(r.statuses, []int{0, 0, 0, 0}) {
			t.Errorf("%d nodes: statuses %v\n%s", nodes, r.statuses, got)
		}
	}
}

func TestMPICHAbortsWithItsCode(t *testing.T) {
	program := build(t, "allreduce.c", "mpicc.mpich", "")
	r := runStep(t, 2, 2, program, "abort")
	if len(r.aborts) == 0 || !strings.HasPrefix(r.aborts[0], "3 7") {
		t.Errorf("aborts %q, statuses %v, output %q", r.aborts, r.statuses, r.lines)
	}
}

func TestMPICHRankThatLeavesWithoutFinalizeEndsTheStep(t *testing.T) {
	program := build(t, "allreduce.c", "mpicc.mpich", "")
	if r := runStep(t, 2, 2, program, "leave"); !slices.Equal(r.unclean, []int{3}) || r.statuses[3] != 5 {
		t.Errorf("left without finalize: %v, statuses %v, output %q", r.unclean, r.statuses, r.lines)
	}
}

func TestSlurmsPMI2LibraryExchangesValues(t *testing.T) {
	program := build(t, "pmi2.c", "cc", "/usr/include/slurm/pmi2.h", "-lpmi2")
	r := runStep(t, 2, 2, program)
	want := "rank 0 of 4 in 123.0: (vector,(0,2,2)) next 1;1=|rank 1 of 4 in 123.0: (vector,(0,2,2)) next 2;2=|" +
		"rank 2 of 4 in 123.0: (vector,(0,2,2)) next 3;3=|rank 3 of 4 in 123.0: (vector,(0,2,2)) next 0;0="
	if got := strings.Join(r.lines, "|"); got != want || !slices.Equal(r.statuses, []int{0, 0, 0, 0}) {
		t.Errorf("statuses %v\n%s", r.statuses, got)
	}
}
