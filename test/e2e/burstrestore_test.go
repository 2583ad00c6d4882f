package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/greylag/greylag/test/cluster"
)

// TestBurstRestored: a cluster is restored from a backup of the time before it leased a node. The lease is adopted when its
// node registers, its task ends, which no job explains, and so does the instance. Another lease gets another number.
func TestBurstRestored(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	x := newScripted(t, cluster.Options{}, nil, nil)
	x.must(x.Apply(ctx, leasing(`idle_time = "3s"`, `idle_time = "5m"`)))
	backup := filepath.Join(x.Dir, "backup")
	x.ok(tester, "gctl", "cluster", "snapshot", "-o", backup)
	x.await(ctx, x.submit("--burst=only"), "RUNNING")
	x.must(x.Restore(ctx, backup))
	x.until("the lease is adopted", func() (bool, error) { return len(x.leases(ctx)) > 0, nil })
	l := x.ended(ctx)[0]
	if l.Node != "cloud-1" || l.Job != "" || !strings.Contains(l.Why, "adopted") || l.Cost == 0 || l.Price != 2_000_000 {
		t.Errorf("the lease: %v", l)
	}
	x.running(ctx, 0)
	id := x.submit("--burst=only")
	job := x.await(ctx, id, "RUNNING")
	if node := job.Tasks[0].Node; node == "cloud-1" || job.Attempt != 1 {
		t.Errorf("the next job runs on %s in attempt %d", node, job.Attempt)
	}
	x.ok(tester, "gcancel", ref(id))
	x.ok(tester, "gctl", "burst", "end", "--now", job.Tasks[0].Node)
	x.ended(ctx)
	x.running(ctx, 0)
}
