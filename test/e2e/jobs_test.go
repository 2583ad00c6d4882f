package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// TestJobs checks what users see of their jobs, on one cluster that all its parts share: two nodes
// with four GPUs each, containers where this machine supports them.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: 4, CPUs: 16, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	before, err := audit.CountLeaks(s.Cluster)
	s.must(err)
	t.Run("together", func(t *testing.T) { // ends when its parallel parts have
		for _, tests := range []map[string]func(*site){together(), misbehaving(), attacks()} {
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(s.with(t))
				})
			}
		}
	})
	t.Run("gang", func(t *testing.T) { gang(s.with(t)) })
	t.Run("gang fails as one", func(t *testing.T) { gangFails(s.with(t)) })
	t.Run("drain", func(t *testing.T) { drain(s.with(t)) })
	t.Run("shim killed", func(t *testing.T) { shimKilled(s.with(t)) })
	ctx := limited(t, 4*hang)
	s.idle(ctx)
	s.audit(ctx)
	s.must(audit.AwaitNoLeaks(ctx, s.Cluster, before))
}

// together are the tests that tolerate other jobs on the same nodes.
func together() map[string]func(*site) {
	return map[string]func(*site){
		"exit codes": exitCodes, "wait": waits, "time limit": timeLimit, "memory": memory, "share of memory": memoryShare,
		"cancel pending": cancelPending, "cancel running": cancelRunning, "ignoresTerm": ignoresTerm, "signal": signalled,
		"array": arrays, "hold": holds, "dependencies": dependencies, "logs": logs,
		"devices": devices, "image": imageJob, "output": outputs, "symlink": symlink, "files of others": othersFiles, "working directories": workDirs, "users": users, "environment": environment,
	}
}

func exitCodes(s *site) {
	for body, want := range map[string][3]any{
		"exit 0":               {"COMPLETED", int32(0), int32(0)},
		"exit 3":               {"FAILED", int32(3), int32(0)},
		"exit 255":             {"FAILED", int32(255), int32(0)},
		"kill -KILL $$":        {"FAILED", int32(0), int32(9)},
		"/no/such/program":     {"FAILED", int32(127), int32(0)},
		"false; true":          {"COMPLETED", int32(0), int32(0)},
		"(sleep 300 &) ; true": {"COMPLETED", int32(0), int32(0)}, // leftovers end with the job
	} {
		job := s.ends(s.gsubmit(tester, s.script(body)), want[0].(string))
		if job.ExitCode != want[1] || job.ExitSignal != want[2] || job.Attempt != 1 {
			s.t.Errorf("%q: exit %d:%d in attempt %d, want %v", body, job.ExitCode, job.ExitSignal, job.Attempt, want)
		}
	}
}

func waits(s *site) {
	for code := range 3 {
		args := append(small("--wait"), s.script(fmt.Sprint("exit ", code)))
		if result := s.run(tester, "gsubmit", args...); result.Exit != code {
			s.t.Errorf("gsubmit --wait of a job that exits with %d: %d, %s", code, result.Exit, result.Stderr)
		}
	}
}

func timeLimit(s *site) {
	id := s.gsubmit(tester, "--time=0:03", s.script("sleep 300"))
	job := s.ends(id, "TIMEOUT")
	if ran := job.Ended.AsTime().Sub(job.Started.AsTime()); ran < 3*time.Second {
		s.t.Errorf("a limit of 3 s ended the job after %s", ran)
	}
}

func memory(s *site) {
	s.needsContainers("memory limits")
	id := s.gsubmit(tester, "--mem=48M", s.script("head -c 500M /dev/zero | tail -c 400M >/dev/null; exit 7"))
	s.ends(id, "OUT_OF_MEMORY")
}

// memoryShare checks a job that requests no memory: it is limited to its CPU's share, 512 MiB of 8
// GiB.
func memoryShare(s *site) {
	s.needsContainers("memory limits")
	for take, state := range map[string]string{"200M": "COMPLETED", "700M": "OUT_OF_MEMORY"} {
		script := s.script("head -c 800M /dev/zero | tail -c " + take + " >/dev/null")
		id, err := strconv.ParseUint(strings.TrimSpace(s.ok(tester, "gsubmit", "--parsable", "--qos="+realQOS, "--time=5", script)), 10, 64)
		s.must(err)
		s.ends(id, state)
	}
}

func cancelPending(s *site) {
	id := s.gsubmit(tester, "--hold", s.script("true"))
	s.ok(tester, "gcancel", ref(id))
	if job := s.ends(id, "CANCELLED"); job.Started != nil {
		s.t.Error("it was started")
	}
	if result := s.run(tester, "gcancel", "99999999"); result.Exit != 3 {
		s.t.Errorf("gcancel of an unknown job: exit status %d, %s", result.Exit, result.Stderr)
	}
}

func cancelRunning(s *site) {
	id := s.gsubmit(tester, s.script(fmt.Sprintf("trap 'echo polite >%[1]s/termed-$GREYLAG_JOB_ID; exit 1' TERM; touch %[1]s/up-$GREYLAG_JOB_ID; sleep 300 & wait", s.Work)))
	s.until("the job runs", func() (bool, error) { return s.exists("up-" + ref(id)), nil })
	s.ok(tester, "gcancel", ref(id))
	s.ends(id, "CANCELLED")
	if !s.exists("termed-" + ref(id)) {
		s.t.Error("the job was not asked politely")
	}
}

// ignoresTerm jobs ignore SIGTERM, and are killed after kill_wait.
func ignoresTerm(s *site) {
	id := s.gsubmit(tester, s.script(fmt.Sprintf("trap '' TERM; touch %s/up-$GREYLAG_JOB_ID; while true; do sleep 0.1; done", s.Work)))
	s.until("the job runs", func() (bool, error) { return s.exists("up-" + ref(id)), nil })
	s.ok(tester, "gcancel", ref(id))
	s.ends(id, "CANCELLED")
}

func signalled(s *site) {
	id := s.gsubmit(tester, s.script(fmt.Sprintf("trap 'exit 42' USR1; touch %s/up-$GREYLAG_JOB_ID; while true; do sleep 0.1; done", s.Work)))
	s.until("the job runs", func() (bool, error) { return s.exists("up-" + ref(id)), nil })
	s.ok(tester, "gcancel", "-s", "USR1", ref(id))
	if job := s.ends(id, "FAILED"); job.ExitCode != 42 {
		s.t.Errorf("exit code %d, want 42", job.ExitCode)
	}
}

// arrays checks that at most two of the six elements run at a time, each with its own index.
func arrays(s *site) {
	mark := filepath.Join(s.Work, "array")
	first := s.gsubmit(tester, "--array=1-6%2", s.script(fmt.Sprintf(
		`mkdir %[1]s-$GREYLAG_ARRAY_TASK_ID; ls -d %[1]s-* | wc -l; sleep 0.5; rmdir %[1]s-$GREYLAG_ARRAY_TASK_ID; echo "I am $GREYLAG_ARRAY_TASK_ID of $GREYLAG_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX"`, mark)))
	for i := range uint64(6) {
		s.ends(first+i, "COMPLETED")
		lines := strings.Fields(s.output("greylag-%d_%d.out", first, i+1))
		if len(lines) != 8 || lines[0] > "2" || strings.Join(lines[3:], " ") != fmt.Sprintf("%d of 1 to 6", i+1) {
			s.t.Errorf("element %d wrote %q", i+1, lines)
		}
	}
}

func holds(s *site) {
	id := s.gsubmit(tester, "--hold", s.script("true"))
	if job := s.await(s.t.Context(), id, "PENDING"); job.Hold != greylagv1.Hold_HOLD_USER {
		s.t.Errorf("hold %q, want user", wire.Word(job.Hold))
	}
	s.ok(tester, "gctl", "release", ref(id))
	s.ends(id, "COMPLETED")
}

func dependencies(s *site) {
	good := s.gsubmit(tester, "--hold", s.script("exit 0"))
	bad := s.gsubmit(tester, "--hold", s.script("exit 1"))
	after := s.gsubmit(tester, fmt.Sprintf("--dependency=afterok:%d", good), s.script("true"))
	never := s.gsubmit(tester, fmt.Sprintf("--dependency=afterok:%d", bad), s.script("true"))
	instead := s.gsubmit(tester, fmt.Sprintf("--dependency=afternotok:%d", bad), s.script("true"))
	s.ok(tester, "gctl", "release", ref(good), ref(bad))
	s.ends(good, "COMPLETED")
	s.ends(bad, "FAILED")
	begun, ended := s.ends(after, "COMPLETED"), s.ends(good, "COMPLETED")
	if begun.Started.AsTime().Before(ended.Ended.AsTime()) {
		s.t.Error("the job that depends on another started before that one ended")
	}
	s.ends(instead, "COMPLETED")
	s.until("the job that can never start says so", func() (bool, error) {
		job, err := s.get(s.t.Context(), never)
		if err != nil {
			return false, err
		}
		return job.State == greylagv1.JobState_JOB_STATE_PENDING && job.Reason == greylagv1.Reason_REASON_DEPENDENCY_NEVER_SATISFIED, fmt.Errorf("%s %s", wire.Word(job.State), wire.Word(job.Reason))
	})
	s.ok(tester, "gcancel", ref(never))
}

func logs(s *site) {
	id := s.gsubmit(tester, s.script("for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"))
	out := s.ok(tester, "gctl", "logs", "-f", ref(id))
	if want := "line 1\nline 2\nline 3\nline 4\nline 5\n"; out != want {
		s.t.Errorf("gctl logs -f printed %q, want %q", out, want)
	}
	s.ends(id, "COMPLETED")
	later := s.gsubmit(tester, "--begin=now+2", s.script("echo at last"))
	if out := s.ok(tester, "gctl", "logs", "-f", ref(later)); out != "at last\n" {
		s.t.Errorf("gctl logs -f of a job that waited printed %q", out)
	}
	s.ends(later, "COMPLETED")
	failed := s.gsubmit(tester, "--output=/nonexistent/out", s.script("true"))
	s.ends(failed, "FAILED")
	if result := s.run(tester, "gctl", "logs", ref(failed)); result.Exit == 0 || !strings.Contains(result.Stderr, "cannot open the output file /nonexistent/out") {
		s.t.Errorf("gctl logs of a job that could not start: %+v", result)
	}
}

func environment(s *site) {
	id := s.gsubmit(tester, "--gpus-per-node=2", "--cpus-per-task=2", "--name=env", "--export=ALL,COLOR=blue", s.script(
		`echo "$GREYLAG_JOB_ID $GREYLAG_JOB_NAME $SLURM_JOB_ID $GREYLAG_NNODES $GREYLAG_CPUS_PER_TASK $GREYLAG_GPUS_ON_NODE $COLOR $PWD $#"`), "one", "two")
	s.ends(id, "COMPLETED")
	if got, want := s.output("greylag-%d.out", id), fmt.Sprintf("%d env %d 1 2 2 blue %s 2\n", id, id, s.Work); got != want {
		s.t.Errorf("environment: %q, want %q", got, want)
	}
}

// gang checks that a job gets both nodes or none. While a GPU of one is taken, it is pending
// without any.
func gang(s *site) {
	blocker := s.gsubmit(tester, "--gpus=1", s.script("sleep 1000"))
	s.await(s.t.Context(), blocker, "RUNNING")
	id := s.gsubmit(tester, "--nodes=2", "--gpus-per-node=4", "--every-node", "--output=gang-%j-%n.out",
		s.script(`echo "$GREYLAG_NODEID of $GREYLAG_NNODES on $GREYLAG_NODENAME, $GREYLAG_GPUS_ON_NODE GPUs"`))
	s.until("the gang waits for resources", func() (bool, error) {
		job, err := s.get(s.t.Context(), id)
		if err != nil {
			return false, err
		}
		if len(job.Nodes) > 0 {
			s.t.Fatalf("it was given %v while a GPU was missing", job.Nodes)
		}
		return job.Reason == greylagv1.Reason_REASON_RESOURCES, fmt.Errorf("%s %s", wire.Word(job.State), wire.Word(job.Reason))
	})
	s.ok(tester, "gcancel", ref(blocker))
	s.ends(id, "COMPLETED")
	var said []string
	for rank := range 2 {
		said = append(said, s.output("gang-%d-%d.out", id, rank))
	}
	slices.Sort(said)
	if want := []string{
		fmt.Sprintf("0 of 2 on %s, 4 GPUs\n", s.Node(0).Name), fmt.Sprintf("1 of 2 on %s, 4 GPUs\n", s.Node(1).Name),
	}; !slices.Equal(said, want) {
		s.t.Errorf("the gang said %q, want %q", said, want)
	}
}

// gangFails checks that one rank's failure ends the others at once.
func gangFails(s *site) {
	id := s.gsubmit(tester, "--nodes=2", "--every-node", s.script(`test $GREYLAG_NODEID = 1 && exit 5; sleep 300`))
	if job := s.ends(id, "FAILED"); job.ExitCode != 5 {
		s.t.Errorf("exit code %d, want 5", job.ExitCode)
	}
}

func drain(s *site) {
	first, second := s.Node(0).Name, s.Node(1).Name
	gate := s.gate("drained")
	running := s.gsubmit(tester, "--nodelist="+first, s.script(gate.then("exit 4")))
	s.await(s.t.Context(), running, "RUNNING")
	s.ok(tester, "gctl", "drain", first, "--reason", "a fan is loud")
	waits := s.gsubmit(tester, "--nodelist="+first, s.script("true"))
	elsewhere := s.gsubmit(tester, s.script("true"))
	if job := s.ends(elsewhere, "COMPLETED"); len(job.Nodes) != 1 || job.Nodes[0].Node != second {
		s.t.Errorf("a job was placed on %v while %s was drained", job.Nodes, first)
	}
	gate.open()
	if job := s.ends(running, "FAILED"); job.ExitCode != 4 {
		s.t.Errorf("the job that ran ended with %d, want 4", job.ExitCode)
	}
	s.must(s.AwaitNode(s.t.Context(), first, "DRAINED"))
	if job, err := s.get(s.t.Context(), waits); err != nil || job.State != greylagv1.JobState_JOB_STATE_PENDING {
		s.t.Errorf("the job for the drained node: %v, %v", job, err)
	}
	s.ok(tester, "gctl", "resume", first)
	s.ends(waits, "COMPLETED")
}

func (s *site) needsContainers(what string) {
	s.t.Helper()
	if !s.Containerized() {
		s.t.Skipf("needs containers: %s (%v)", what, cluster.Containers())
	}
}
