package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// TestStepsOnTwoNodes runs steps, some with MPI, in jobs on two nodes with two tasks on each. The
// numbers are those of the acceptance list in issue 19.
func TestStepsOnTwoNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 4, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	for name, test := range map[string]func(*site){
		"31 grun is killed":                      killedGrun,
		"32 daemons restart in a step":           restartsInStep,
		"33 MPICH by grun":                       mpichByGrun,
		"34 mpirun of MPICH":                     func(s *site) { mpirun(s, "mpich") },
		"34 mpirun of Open MPI":                  func(s *site) { mpirun(s, "openmpi") },
		"36 mpirun of MPICH is cancelled":        func(s *site) { cancelledMpirun(s, "mpich", "hydra_pmi_proxy") },
		"36 mpirun of Open MPI is cancelled":     func(s *site) { cancelledMpirun(s, "openmpi", "orted") },
		"a step waits for the GPUs of others":    stepsWithGPUs,
		"steps are recorded with their statuses": recordedSteps,
	} {
		t.Run(name, func(t *testing.T) { test(s.with(t)) })
	}
	s.idle(limited(t, hang))
}

// twoByTwo are the options of a job with two tasks on each of two nodes.
func twoByTwo(script string) []string {
	return []string{"--nodes=2", "--ntasks-per-node=2", script}
}

// batch writes a script that finds grun.
func (s *site) batch(body string) string {
	s.t.Helper()
	return s.script(s.programs() + body)
}

// prints runs a script on two nodes and compares the lines that it printed, in any order.
func (s *site) prints(body string, want ...string) {
	s.t.Helper()
	id := s.gsubmit(alice, twoByTwo(s.batch(body))...)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("output of job %d:\n%s", id, s.output("greylag-%d.out", id))
		}
	})
	s.ends(id, "COMPLETED")
	got := strings.Split(strings.TrimSuffix(s.output("greylag-%d.out", id), "\n"), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("%s\nprinted %q, want %q", body, got, want)
	}
}

// dir returns a new directory that jobs of alice see.
func (s *site) dir() string {
	s.t.Helper()
	dir, err := os.MkdirTemp(s.Work, "steps-")
	s.must(err)
	s.must(os.Chmod(dir, 0o777))
	return dir
}

// killedGrun checks that the tasks end and that the job goes on.
func killedGrun(s *site) {
	s.prints(fmt.Sprintf(`cd %s
		grun sh -c 'trap "touch ended$SLURM_PROCID; exit" TERM; touch up$SLURM_PROCID; while :; do sleep 0.05; done' &
		until [ -e up0 ] && [ -e up1 ] && [ -e up2 ] && [ -e up3 ]; do sleep 0.05; done
		kill -9 $!; wait $! 2>/dev/null
		until [ -e ended0 ] && [ -e ended1 ] && [ -e ended2 ] && [ -e ended3 ]; do sleep 0.05; done
		grun -n1 echo the job goes on`, s.dir()), "the job goes on")
}

// restartsInStep kills gnoded and a controller during a step, whose tasks then still start once.
func restartsInStep(s *site) {
	dir, gate := s.dir(), s.gate("restarts")
	id := s.gsubmit(alice, twoByTwo(s.batch(fmt.Sprintf(`grun sh -c 'touch %s/up$SLURM_PROCID; %s'`, dir, gate.then("echo done $SLURM_PROCID"))))...)
	s.until("all tasks run", func() (bool, error) {
		up, err := os.ReadDir(dir)
		return len(up) == 4, err
	})
	for _, p := range []interface {
		Kill() error
		Start() error
	}{s.Node(0), s.Node(1), s.Controller(0)} {
		s.must(p.Kill())
		s.must(p.Start())
	}
	gate.open()
	s.ends(id, "COMPLETED")
	got := strings.Split(strings.TrimSpace(s.output("greylag-%d.out", id)), "\n")
	slices.Sort(got)
	if want := []string{"done 0", "done 1", "done 2", "done 3"}; !slices.Equal(got, want) {
		s.t.Errorf("printed %q, want %q", got, want)
	}
}

// compile builds the MPI program with the compiler of one package, or skips the test.
func (s *site) compile(compiler string) string {
	s.t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		s.t.Skipf("%s is not installed", compiler)
	}
	program := filepath.Join(s.dir(), "allreduce")
	out, err := exec.Command(compiler, "-o", program, "../../internal/step/pmi/testdata/allreduce.c").CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return program
}

// sums is what the MPI program prints with four ranks.
var sums = []string{"rank 0 of 4: sum 10", "rank 1 of 4: sum 10", "rank 2 of 4: sum 10", "rank 3 of 4: sum 10"}

func mpichByGrun(s *site) {
	program := s.compile("mpicc.mpich")
	// The nodes of the test are on one host without common shared memory.
	s.prints("export UCX_TLS=tcp,self; "+patient("grun "+program), sums...)
	s.prints("UCX_TLS=tcp,self grun "+program+" abort >/dev/null 2>&1; echo $?", "7")
	s.prints("UCX_TLS=tcp,self grun "+program+" leave >/dev/null 2>&1; echo $?", "5")
}

// srun gives grun Slurm's name, by which the mpiruns look for it.
const srun = `mkdir -p $TMPDIR/bin; ln -sf $(command -v grun) $TMPDIR/bin/srun; PATH=$TMPDIR/bin:$PATH
export OMPI_MCA_btl=self,tcp UCX_TLS=tcp,self
`

func mpirun(s *site, name string) {
	s.prints(srun+patient("mpirun."+name+" "+s.compile("mpicc."+name)), sums...)
}

// patient runs a command again if it does not end. Without shared memory MPICH 4.0 with UCX 1.13 stays
// in MPI_Finalize now and then, with any launcher: 6 of 30 runs of its own mpirun on one host did.
func patient(command string) string {
	return "for i in 1 2 3 4 5 6; do timeout 30 " + command + " >sums 2>errors && break; done; cat sums"
}

// cancelledMpirun checks that the processes by which mpirun starts ranks on other nodes end as well.
func cancelledMpirun(s *site, name, helper string) {
	s.compile("mpicc." + name)
	dir := s.dir()
	id := s.gsubmit(alice, twoByTwo(s.batch(srun+fmt.Sprintf(`mpirun.%s sh -c 'touch %s/$$.$SLURM_NODEID; sleep 300'`, name, dir)))...)
	s.until("the ranks run", func() (bool, error) {
		up, err := os.ReadDir(dir)
		return len(up) == 4, err
	})
	if processes(helper) == 0 {
		s.t.Errorf("no %s runs: what does the test test?", helper)
	}
	s.ok(alice, "gcancel", fmt.Sprint(id))
	s.ends(id, "CANCELLED")
	s.until("no process "+helper+" is left, also of other tests", func() (bool, error) { return processes(helper) == 0, nil })
}

// processes counts the processes with a name.
func processes(name string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is valid
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == name {
			n++
		}
	}
	return n
}

// stepsWithGPUs runs four steps of one GPU each for itself on two GPUs.
func stepsWithGPUs(s *site) {
	id := s.gsubmit(alice, "--gpus=2", s.batch(`for i in 1 2 3 4; do grun -n1 --gpus-per-task=1 sh -c 'echo $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES; sleep 0.2' & done
		wait; grun -n1 --immediate --gpus=3 true || echo refused`))
	s.ends(id, "COMPLETED")
	lines := strings.Split(s.output("greylag-%d.out", id), "\n")
	count := map[string]int{}
	for _, line := range lines {
		count[line]++
	}
	if count["0 0"]+count["1 1"]+count["2 0"]+count["3 1"]+count["2 1"]+count["3 0"]+count["1 0"]+count["0 1"] != 4 || count["refused"] != 1 {
		s.t.Errorf("printed %q", lines)
	}
}

// recordedSteps checks the steps of a job in gctl show.
func recordedSteps(s *site) {
	id := s.gsubmit(alice, twoByTwo(s.batch(`grun -J first true; grun -n1 sh -c 'exit 3' 2>/dev/null; true`))...)
	job := s.ends(id, "COMPLETED")
	if len(job.Steps) != 2 || job.Steps[0].Name != "first" || job.Steps[0].ExitCode != 0 || job.Steps[1].ExitCode != 3 || len(job.Steps[0].Nodes) != 2 {
		s.t.Errorf("steps %v", job.Steps)
	}
}
