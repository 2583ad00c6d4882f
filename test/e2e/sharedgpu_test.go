package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// TestSharedGPU has two jobs of one user on one GPU. A third one, and a job of another user, wait. When a job ends, its
// place is for the same user; the other user gets the GPU when all of them have ended.
func TestSharedGPU(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	policy := quickKill() + "[[partition]]\nname = \"main\"\nnodes = [\"ALL\"]\ndefault = true\ngpu_share = 2\n"
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: 1, CPUs: 8, Memory: "4GiB", Policy: policy})
	share := []string{"--gpu-share=2", "--time=60", "--output=/dev/null", "--wrap=exec sleep 1000"} // the scripts of the site lock their GPUs
	mine := []uint64{s.gsubmit(tester, share...), s.gsubmit(tester, share...)}
	for _, id := range mine {
		if job := s.await(ctx, id, "RUNNING"); fmt.Sprint(job.Nodes[0].Gpus) != "[0]" {
			t.Errorf("job %d has %v", id, job.Nodes)
		}
	}
	third, others := s.gsubmit(tester, share...), s.gsubmit(alice, share...)
	s.until("a reason of the other user's job", func() (bool, error) {
		out := s.ok(alice, "gctl", "why", ref(others))
		return strings.Contains(out, "or a place on a GPU that its user shares among at most 2 jobs"), fmt.Errorf("it says %s", out)
	})
	node := s.await(ctx, mine[0], "RUNNING").Nodes[0].Node
	if out := s.ok(tester, "gctl", "show", "node", node); !strings.Contains(out, "used by 2 jobs of one user (at most 2)") {
		t.Errorf("the node shows %s", out)
	}
	if out := s.ok(tester, "gctl", "show", "job", ref(third)); !strings.Contains(out, "PENDING") || !strings.Contains(out, "the GPU shared by up to 2 jobs, time-sliced") {
		t.Errorf("the third job shows %s", out)
	}
	s.ok(tester, "gcancel", ref(mine[0]))
	s.await(ctx, third, "RUNNING")
	if job, err := s.get(ctx, others); err != nil || job.Attempt != 0 {
		t.Errorf("the other user's job runs while two of another user have the GPU: %v, %v", job, err)
	}
	s.ok(tester, "gcancel", ref(mine[1]))
	s.ok(tester, "gcancel", ref(third))
	s.await(ctx, others, "RUNNING")
	s.ok(alice, "gcancel", ref(others))
	s.await(ctx, others, "CANCELLED")
	s.audit(ctx)
}
