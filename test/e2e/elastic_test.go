package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// elasticScript writes the members file after each signal, and ends with 9 when the file stop exists.
const elasticScript = `trap 'tr "\n" " " <"$GREYLAG_MEMBERS" >>log; echo >>log' USR1
echo "attempt $GREYLAG_ATTEMPT, $GREYLAG_NODES_MIN to $GREYLAG_NODES_MAX" >>log
while [ ! -e stop ]; do sleep 0.1; done
exit 9`

// TestElastic has a job grow on idle nodes, shrink for a rigid job that starts in time, and lose an extra node without
// the end of its attempt.
func TestElastic(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	policy := quickKill() + "[elastic]\ngrace = \"3s\"\nmin_time = \"1s\"\ninterval = \"1s\"\n"
	s := newSite(t, cluster.Options{Nodes: 4, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: policy})
	blocker := s.gsubmit(tester, "--gpus=1", "--time=60", s.script("exec sleep 1000"))
	s.await(ctx, blocker, "RUNNING")
	id := s.gsubmit(tester, "--nodes=2-4", "--elastic", "--resize-signal=B:USR1", "--gpus-per-node=1", "--time=60", "--output=/dev/null", s.script(elasticScript))
	s.hasNodes(ctx, id, 3)
	s.ok(tester, "gcancel", ref(blocker))
	job := s.hasNodes(ctx, id, 4)
	s.logsMembers(job)
	joined := job.Members.List[3].Node
	if out := s.ok(tester, "grun", "--jobid", ref(id), "-w", joined, "sh", "-c", `echo "$GREYLAG_NODENAME $(wc -l <"$GREYLAG_MEMBERS")"`); strings.TrimSpace(out) != joined+" 5" {
		t.Errorf("a step on the node that joined says %q", out)
	}

	asked := time.Now()
	rigid := s.ends(s.gsubmit(tester, "--nodes=2", "--gpus-per-node=1", "--time=2", s.script("exit 8")), "FAILED")
	if waited := rigid.Started.AsTime().Sub(asked); waited < 3*time.Second || waited > 40*time.Second {
		t.Errorf("the rigid job started after %s, want at least the grace time and at most 40 s", waited)
	}
	job = s.hasNodes(ctx, id, 4)
	s.logsMembers(job)
	s.losesExtra(ctx, job)
	s.must(os.WriteFile(filepath.Join(s.Work, "stop"), nil, 0o644))
	job = s.ends(id, "FAILED")
	log := strings.Split(strings.TrimSpace(s.output("log")), "\n")
	if job.ExitCode != 9 || job.Attempt != 1 || job.Restarts != 0 || log[0] != "attempt 1, 2 to 4" {
		t.Errorf("the job ended with %d in attempt %d after %d restarts; its log:\n%s", job.ExitCode, job.Attempt, job.Restarts, strings.Join(log, "\n"))
	}
	var sizes []int
	for _, line := range log[1:] {
		sizes = append(sizes, len(strings.Fields(line))-1)
	}
	if got := fmt.Sprint(sizes); got != "[4 2 4 3]" {
		t.Errorf("the members file had %s nodes, want [4 2 4 3]; the log:\n%s", got, strings.Join(log, "\n"))
	}
	s.audit(ctx)
}

// hasNodes waits until a running job has a number of nodes, on which its tasks have started.
func (s *site) hasNodes(ctx context.Context, id uint64, nodes int) (job *greylagv1.Job) {
	s.t.Helper()
	s.until(fmt.Sprintf("job %d has %d nodes", id, nodes), func() (bool, error) {
		var err error
		if job, err = s.get(ctx, id); err != nil {
			return false, err
		}
		ready := 0
		for _, m := range job.GetMembers().GetList() {
			if m.Leaves != nil {
				return false, fmt.Errorf("%s leaves", m.Node)
			}
			if !m.Joins {
				ready++
			}
		}
		return ready == nodes && job.State == greylagv1.JobState_JOB_STATE_RUNNING, fmt.Errorf("it has %v", job.GetMembers())
	})
	return job
}

// logsMembers waits until the script has read the present members file: signals that follow each other soon are one.
func (s *site) logsMembers(job *greylagv1.Job) {
	s.t.Helper()
	line := fmt.Sprintf("\n%d ", job.Members.Version)
	s.until("the script knows its nodes", func() (bool, error) { return strings.Contains(s.output("log"), line), nil })
}

// losesExtra kills the last extra node of a job, which goes on without it, and starts the node again.
func (s *site) losesExtra(ctx context.Context, job *greylagv1.Job) {
	s.t.Helper()
	last := job.Members.List[len(job.Members.List)-1]
	if !last.Extra {
		s.t.Fatalf("the last node of the job is not an extra node: %v", job.Members)
	}
	for n := range 4 {
		if node := s.Node(n); node.Name == last.Node {
			s.must(node.Kill())
			s.must(s.AwaitNode(ctx, node.Name, "DOWN"))
			now := s.hasNodes(ctx, job.Id, 3)
			s.logsMembers(now)
			if now.Attempt != 1 || now.Members.Version != job.Members.Version+1 || now.Restarts != 0 {
				s.t.Errorf("attempt %d, %d restarts, members %d, want 1, 0 and %d", now.Attempt, now.Restarts, now.Members.Version, job.Members.Version+1)
			}
			defer func() {
				s.must(node.Start())
				s.must(s.AwaitNode(ctx, node.Name, "IDLE"))
			}()
		}
	}
}
