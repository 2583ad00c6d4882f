package launch_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/step"
)

// speak is a shell function that sends one PMI-1 command and reads the answer into $line.
const speak = `speak() { echo "cmd=$*" >&3; read line <&3; }
speak init pmi_version=1 pmi_subversion=1
`

// TestPairsReachAllNodes has three ranks on two nodes exchange a value at a barrier.
func TestPairsReachAllNodes(t *testing.T) {
	s := newTrial(t, speak+`speak put kvsname=12.3 key=k$PMI_RANK value=v=$PMI_RANK; speak barrier_in
		for i in 0 1 2; do speak get kvsname=12.3 key=k$i; echo ${line##*value=}; done; speak finalize`, 1, 2)
	s.Program.MPI = step.MPIPMI2
	if status := s.run(t); status != 0 || sortedLines(s.out.String()) != "v=0\nv=0\nv=0\nv=1\nv=1\nv=1\nv=2\nv=2\nv=2\n" {
		t.Errorf("status %d, output %q: %s", status, s.out.String(), s.notes.String())
	}
}

// TestAbortEndsTheStep is the second half of row 33 of the acceptance list.
func TestAbortEndsTheStep(t *testing.T) {
	s := newTrial(t, speak+`if [ $PMI_RANK = 1 ]; then echo cmd=abort exitcode=7 >&3; fi; exec sleep 600`, 1, 2)
	s.Program.MPI = step.MPIPMI2
	if status := s.run(t); status != 7 || !strings.Contains(s.notes.String(), "n2: task 1: called MPI_Abort with exit code 7") {
		t.Errorf("status %d: %s", status, s.notes.String())
	}
}

// TestExitWithoutFinalize ends the step if a rank leaves after init, but not if it never called
// init.
func TestExitWithoutFinalize(t *testing.T) {
	for script, want := range map[string]int{
		speak + `if [ $PMI_RANK = 1 ]; then exit 0; fi; speak barrier_in; exec sleep 600`: 1,
		`if [ $PMI_RANK = 1 ]; then exit 0; fi; echo on`:                                  0,
	} {
		s := newTrial(t, script, 1, 2)
		s.Program.MPI = step.MPIPMI2
		if status := s.run(t); status != want || (want == 1) != strings.Contains(s.notes.String(), "task 1 called MPI_Init and ended without MPI_Finalize") {
			t.Errorf("status %d, want %d: %s", status, want, s.notes.String())
		}
	}
}

// TestMPICH is row 33 of the acceptance list: an all-reduce of 4 ranks on 2 nodes, MPI_Abort, and a
// rank that leaves without MPI_Finalize.
func TestMPICH(t *testing.T) {
	if _, err := exec.LookPath("mpicc.mpich"); err != nil {
		t.Skip("mpicc.mpich is not installed")
	}
	program := filepath.Join(t.TempDir(), "allreduce")
	if out, err := exec.Command("mpicc.mpich", "-o", program, "../pmi/testdata/allreduce.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		args   []string
		status int
		out    string
		note   string
	}{
		{nil, 0, "rank 0 of 4: sum 10\nrank 1 of 4: sum 10\nrank 2 of 4: sum 10\nrank 3 of 4: sum 10\n", ""},
		{[]string{"abort"}, 7, "", "called MPI_Abort with exit code 7"},
		{[]string{"leave"}, 5, "", "task 3 called MPI_Init and ended without MPI_Finalize"},
	} {
		s := newTrial(t, "", 2, 2)
		s.Program.MPI, s.Program.Args = step.MPIPMI2, [][]string{append([]string{program}, c.args...)}
		if status := s.run(t); status != c.status || sortedLines(s.out.String()) != c.out || !strings.Contains(s.notes.String(), c.note) {
			t.Errorf("%v: status %d, output %q, messages: %s%s", c.args, status, s.out.String(), s.errs.String(), s.notes.String())
		}
	}
}
