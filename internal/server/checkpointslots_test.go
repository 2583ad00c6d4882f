package server_test

import (
	"bytes"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestCheckpointSlots: of three jobs that write to a store with one slot, one writes at a time; a commit frees the slot.
func TestCheckpointSlots(t *testing.T) {
	w := newWorld(t, options{controllers: 1, policy: func(p *cluster.Policy) {
		p.CheckpointStores = []cluster.CheckpointStore{{Path: "/ckpt", Slots: 1}}
	}})
	n := newNode(w, "n1")
	c := w.as(ann)
	var jobs []auth.Attempt
	for _, name := range []string{"a", "b", "c"} {
		jobs = append(jobs, w.running(n, ann, name))
	}
	begin := func(of int, dir string) *greylagv1.BeginCheckpointResponse {
		t.Helper()
		r, err := c.Jobs().BeginCheckpoint(t.Context(), &greylagv1.BeginCheckpointRequest{Job: uint64(jobs[of].Job), Attempt: 1, Dir: dir})
		must(t, err)
		return r
	}
	want := func(of int, granted bool, ahead int32) {
		t.Helper()
		if r := begin(of, "/ckpt/runs"); r.Granted != granted || r.Ahead != ahead || r.Store != "/ckpt" || r.Slots != 1 {
			t.Errorf("job %d: %v, want %v, %d ahead", of, r, granted, ahead)
		}
	}
	if r := begin(0, "/scratch"); !r.Granted || r.Store != "" {
		t.Errorf("outside the stores: %v", r)
	}
	want(0, true, 0)
	want(0, true, 0)
	want(1, false, 0)
	want(2, false, 1)
	commit := &greylagv1.CommitCheckpointRequest{RequestId: client.NewRequestID(), Job: uint64(jobs[0].Job), Attempt: 1, Checkpoint: &greylagv1.Checkpoint{
		Dir: "/ckpt/runs/1", Files: 1, Bytes: 1, State: greylagv1.CheckpointState_CHECKPOINT_STATE_WRITTEN, Digest: bytes.Repeat([]byte{1}, 32),
	}}
	_, err := c.Jobs().CommitCheckpoint(t.Context(), commit)
	must(t, err)
	want(2, false, 0)
	want(1, true, 0)
	want(2, false, 0)
	_, err = c.Jobs().CancelJobs(t.Context(), &greylagv1.CancelJobsRequest{RequestId: client.NewRequestID(), Filter: &greylagv1.Filter{Jobs: []string{jobs[1].Job.String()}}})
	must(t, err)
	n.until(uint64(jobs[1].Job), func(task *greylagv1.WantedTask) bool { return task == nil })
	want(2, true, 0)
}
