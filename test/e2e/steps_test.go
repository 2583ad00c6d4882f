package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// stepScript runs grun in many ways. Each line of its output begins with the name of
// a situation.
const stepScript = `
say() { name=$1; shift; "$@" 2>err-$name | sort | tr '\n' ' ' | sed "s/^/$name /"; echo; }
status() { name=$1; shift; "$@" >/dev/null 2>err-$name; echo "$name $?"; }
say each grun -n 4 sh -c 'echo $SLURM_PROCID:$SLURM_LOCALID:$SLURM_NODEID:$SLURM_NTASKS:$SLURM_STEP_ID:$SLURM_JOB_ID'
say default grun sh -c 'echo $SLURM_PROCID:$SLURM_NODEID'
say one grun -N 1 -n 1 -r 1 sh -c 'echo $SLURM_NODEID:$GREYLAG_NODENAME'
say label grun -l -n 12 sh -c 'echo x'
status codes grun -n 3 sh -c 'test $SLURM_PROCID = 0 && exit 3; test $SLURM_PROCID = 1 && exit 7; exit 0'
status killed grun -n 2 sh -c 'test $SLURM_PROCID = 1 && kill -9 $$; exit 1'
status bad grun -n 2 --kill-on-bad-exit=1 sh -c 'test $SLURM_PROCID = 0 && exit 1; sleep 1000'
status missing grun -n 2 /no/such/program
say input sh -c 'echo hello | grun -n 3 cat'
say shown grun -n 1 -N 1 gslurm squeue -hs $SLURM_JOB_ID -o %j:%A
say closed sh -c 'echo hello | grun -n 3 --input none cat'
say gpus grun -n 4 --gpus-per-task=1 sh -c 'echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES'
say unbound grun -n 2 sh -c 'echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES'
grun -n 1 -N 1 -r 0 sh -c 'touch left; until test -e right; do sleep 0.05; done' & 
grun -n 1 -N 1 -r 1 sh -c 'touch right; until test -e left; do sleep 0.05; done' & wait
echo parallel $?
status big grun -n 3 --gpus-per-task=2 true
status outside grun -w elsewhere true
grun -n 2 sleep 1000 & victim=$!
until gctl show job $SLURM_JOB_ID | grep -q 'sleep.*RUNNING'; do sleep 0.1; done
kill -KILL $victim; wait $victim 2>/dev/null
until ! gctl show job $SLURM_JOB_ID | grep -q 'sleep.*RUNNING'; do sleep 0.1; done
echo ended after the death of grun
`

// TestSteps runs steps in a job on two nodes with two GPUs each.
func TestSteps(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 2, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	t.Run("outcomes", func(t *testing.T) { stepOutcomes(s.with(t)) })
	s.idle(limited(t, hang))
	s.audit(limited(t, hang))
}

func stepOutcomes(s *site) {
	id := s.gsubmit(tester, "--nodes=2", "--gpus-per-node=2", "--cpus-per-task=4", "--output=steps.out", s.script(s.programs()+stepScript))
	s.ends(id, "COMPLETED")
	got := map[string]string{}
	for line := range strings.Lines(s.output("steps.out")) {
		name, rest, _ := strings.Cut(line, " ")
		got[name] = strings.TrimRight(rest, " \n")
	}
	labels := make([]string, 12)
	for i := range labels {
		labels[i] = fmt.Sprintf("%2d: x", i)
	}
	slices.Sort(labels)
	for name, want := range map[string]string{
		"each":    fmt.Sprintf("0:0:0:4:0:%[1]d 1:1:0:4:0:%[1]d 2:0:1:4:0:%[1]d 3:1:1:4:0:%[1]d", id),
		"default": "0:0 1:1",
		"one":     "0:" + s.Nodes()[1].Name,
		"label":   strings.Join(labels, " "),
		"codes":   "7", "killed": "137", "bad": "1", "missing": "2",
		"shown": "batch:1 gslurm:1", "input": "hello hello hello", "closed": "",
		"gpus": "0:0 1:1 2:0 3:1", "unbound": "0:0,1 1:0,1",
		"parallel": "0", "big": "1", "outside": "1",
		"ended": "after the death of grun",
	} {
		if got[name] != want {
			s.t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if s.t.Failed() {
		s.t.Log(s.output("steps.out"))
	}
}
