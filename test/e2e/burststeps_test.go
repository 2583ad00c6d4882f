package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/test/cluster"
)

// killLeaderIn waits until the only lease is in a state, kills the leader, has the cloud go on, and starts it again.
func (x *leased) killLeaderIn(ctx context.Context, state greylagv1.LeaseState, goOn func()) {
	x.t.Helper()
	x.until("the lease is "+state.String(), func() (bool, error) {
		all := x.leases(ctx)
		return len(all) == 1 && all[0].State >= state, nil
	})
	killed := x.leader(ctx)
	x.must(killed.Kill())
	x.t.Logf("killed the leader in %s, and the lease was %s", state, x.leases(ctx)[0].State)
	if goOn != nil {
		goOn()
	}
	x.must(killed.Start())
}

// TestBurstLeaderKilled kills the leader in each state of a lease, once the answer to a request was lost too: each next
// leader goes on from the state, one instance is rented, and it ends.
func TestBurstLeaderKilled(t *testing.T) {
	t.Parallel()
	needsRoot(t, "instances with namespaces of their own")
	ctx := limited(t, 6*hang)
	x := newScripted(t, cluster.Options{Controllers: 3, Nodes: 1}, map[string]any{"boot_seconds": 4}, map[string]string{"fault-launch-1": "lost"})
	x.must(x.Apply(ctx, leasing(`idle_time = "3s"`, `idle_time = "5m"`)))
	x.busy(ctx)
	x.put(t, "hold-list", "")
	id := x.submit("--burst=only")
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_PLANNED, func() { x.put(t, "hold-launch", ""); x.drop("hold-list") })
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_REQUESTED, func() { x.drop("hold-launch") })
	// The job is held so that its node waits for it. On a slow machine it may run already, which is no fault.
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_LAUNCHED, func() { x.run(tester, "gctl", "hold", ref(id)) })
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_JOINED, func() { x.run(tester, "gctl", "release", ref(id)) })
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_RUNNING, nil)
	x.await(ctx, id, "RUNNING")
	x.ok(tester, "gctl", "burst", "end", "cloud-1")
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_DRAINING, nil)
	x.put(t, "hold-terminate", "")
	x.must(os.WriteFile(filepath.Join(x.Work, "stop"), nil, 0o644))
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_TERMINATING, func() { x.drop("hold-terminate") })
	x.killLeaderIn(ctx, greylagv1.LeaseState_LEASE_STATE_GONE, nil)
	x.stillGone(ctx, id)
}

// stillGone checks that the job ran once, on the only instance that was made, which has ended.
func (x *leased) stillGone(ctx context.Context, id uint64) {
	x.t.Helper()
	if job := x.ends(id, "FAILED"); job.ExitCode != 9 || job.Attempt != 1 {
		x.t.Errorf("the job ended with %d in attempt %d", job.ExitCode, job.Attempt)
	}
	if all := x.ended(ctx); len(all) != 1 || all[0].Try != 1 || all[0].Cost == 0 {
		x.t.Errorf("the leases: %v", all)
	}
	if made := x.instances(); len(made) != 1 || made[0].EndedAt.IsZero() {
		x.t.Errorf("the instances: %v", made)
	}
	x.audit(ctx)
}
