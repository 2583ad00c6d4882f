package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestFences: the next attempt of a job waits until the program has succeeded, or an operator confirms that the node
// is off. A new leader runs it again.
func TestFences(t *testing.T) {
	t.Parallel()
	r := newRig(t, t.TempDir(), false)
	policy := cluster.DefaultPolicy()
	policy.Fencing, policy.KillWait = true, 0
	r.do(&command.Init{ClusterID: "rig", Policy: policy})
	r.node("n1", 4)
	id := r.submit(func(s *cluster.JobSpec) { s.Requeue = true })
	calls, hangs := make(chan string), make(chan error)
	fence := func(ctx context.Context, node string) error {
		calls <- node
		select {
		case err := <-hangs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.cfg.Fence = fence
	stop := r.lead(t.Context())
	defer func() { stop() }()
	r.until("the job starts", func() bool { return r.job(id).State == cluster.Configuring })
	n, _ := r.replica.View().Node("n1")
	r.do(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: "n1", Epoch: n.Epoch, Liveness: cluster.Dead}}})
	if node := <-calls; node != "n1" || len(r.job(id).Unfenced) != 1 {
		t.Errorf("fence of %q for %v", node, r.job(id).Unfenced)
	}
	stop() // the leader changes
	stop = r.lead(t.Context())
	<-calls
	hangs <- errors.New("no route")
	r.until("a failure", func() bool {
		n, _ := r.replica.View().Node("n1")
		return n.Fence.Tries == 1 && n.Fence.Failure == "no route"
	})
	if j := r.job(id); j.State != cluster.Pending || j.Attempt != 1 {
		t.Errorf("%s in attempt %d", j.State, j.Attempt)
	}
	operator := command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}
	r.do(&command.UpdateNodes{Actor: operator, Names: []string{"n1"}, Action: command.ConfirmFenced})
	r.node("n2", 4)
	r.until("the next attempt", func() bool { j := r.job(id); return j.Attempt == 2 && j.State == cluster.Configuring })
	if list := r.job(id).Unfenced; len(list) > 0 {
		t.Error(list)
	}
	r.check()
}
