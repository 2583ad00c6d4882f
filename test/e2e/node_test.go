package e2e

import (
	"context"
	"fmt"
	"os/user"
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// quickKill is a policy with short node_timeout and kill_wait. The user who runs the tests
// administers the cluster.
func quickKill() string {
	admins := `"root"`
	if self, err := user.Current(); err == nil {
		admins += fmt.Sprintf(", %q", self.Username)
	}
	return fmt.Sprintf("cluster = \"test\"\nadmins = [%s]\nnode_timeout = \"30s\"\nkill_wait = \"10s\"\n", admins)
}

// lasting are jobs of different length, by their exit codes.
func (s *site) lasting(ctx context.Context) map[uint64]int32 {
	jobs := map[uint64]int32{}
	for code, seconds := range []string{"0.5", "1", "2", "3", "8", "9"} {
		id := s.submit(ctx, s.job(fmt.Sprint("lasting ", seconds), fmt.Sprintf("sleep %s; exit %d", seconds, code+10)))
		jobs[id] = int32(code + 10)
	}
	for id := range jobs {
		s.await(ctx, id, "RUNNING", "FAILED")
	}
	return jobs
}

// exact checks that every job ran once and ended as its script did.
func (s *site) exact(ctx context.Context, jobs map[uint64]int32) {
	s.t.Helper()
	for id, code := range jobs {
		if job := s.await(ctx, id, "FAILED"); job.ExitCode != code || job.Attempt != 1 {
			s.t.Errorf("job %d ended with %d:%d in attempt %d, want %d in the first", id, job.ExitCode, job.ExitSignal, job.Attempt, code)
		}
	}
}

func oneNode(t *testing.T) *site {
	return newSite(t, cluster.Options{Nodes: 1, GPUs: 4, CPUs: 16, Memory: "4GiB", Tmpfs: true, Policy: quickKill()})
}

// TestNodeDaemonKilled kills gnoded while tasks run: they are not affected, and their exit statuses
// are not lost, whether they end before or after its restart.
func TestNodeDaemonKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := oneNode(t)
	before, err := audit.CountLeaks(s.Cluster)
	s.must(err)
	jobs := s.lasting(ctx)
	for range 2 {
		s.must(s.Node(0).Kill())
		s.wait(ctx, 2*time.Second)
		s.must(s.Node(0).Start())
		s.wait(ctx, time.Second)
	}
	s.exact(ctx, jobs)
	s.idle(ctx)
	s.audit(ctx)
	s.must(audit.AwaitNoLeaks(ctx, s.Cluster, before))
}

// TestContainerdKilled kills containerd while tasks run.
func TestContainerdKilled(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := oneNode(t)
	s.needsContainers("containerd")
	before, err := audit.CountLeaks(s.Cluster)
	s.must(err)
	jobs := s.lasting(ctx)
	for range 2 {
		s.must(s.Containerd().Kill())
		s.wait(ctx, 2*time.Second)
		s.must(s.Containerd().Restart())
		s.wait(ctx, time.Second)
	}
	s.exact(ctx, jobs)
	s.ends(s.submit(ctx, s.job("afterwards", "exit 0")), "COMPLETED")
	s.idle(ctx)
	s.audit(ctx)
	s.must(audit.AwaitNoLeaks(ctx, s.Cluster, before))
}

// TestNodeDies loses a node with its tasks: its job runs again elsewhere, and when the node
// returns, leftovers of it are killed.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	options := three()
	options.Controllers, options.Nodes, options.Policy = 1, 2, quickKill()
	s := newSite(t, options)
	id := s.submit(ctx, s.job("runs again", `test $GREYLAG_ATTEMPT = 1 && sleep 1000; exit 8`))
	job := s.await(ctx, id, "RUNNING")
	lost := s.Node(0)
	if job.Nodes[0].Node != lost.Name {
		lost = s.Node(1)
	}
	s.must(lost.Kill())
	s.must(s.AwaitNode(ctx, lost.Name, "UNKNOWN"))
	s.must(s.AwaitNode(ctx, lost.Name, "DOWN"))
	job = s.await(ctx, id, "FAILED")
	if job.ExitCode != 8 || job.Attempt != 2 || job.Nodes[0].Node == lost.Name {
		t.Errorf("it ended with %d in attempt %d on %s", job.ExitCode, job.Attempt, job.Nodes[0].Node)
	}
	s.must(lost.Start())
	s.must(s.AwaitNode(ctx, lost.Name, "IDLE"))
	s.idle(ctx)
	s.audit(ctx)
}
