package joblist

import (
	"crypto/sha256"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestWatchSendsWhatItsViewHadAlready: a watcher takes the changes first and the view after them,
// so the view may contain changes of the next batch: those are sent then.
func TestWatchSendsWhatItsViewHadAlready(t *testing.T) {
	s := state.New()
	s.Apply(1, 1, &command.Init{ClusterID: "c", Policy: cluster.DefaultPolicy()})
	s.Effects()
	script := []byte("#!/bin/sh\n")
	spec := cluster.JobSpec{Name: "j", Owner: cluster.Identity{User: "root"}, Script: sha256.Sum256(script)}
	answer := s.Apply(2, 2, &command.SubmitJobs{
		Actor: command.Actor{Identity: spec.Owner, Role: command.RoleAdmin}, Jobs: []command.Submission{{Spec: spec}},
		Blobs: [][]byte{script},
	})
	if _, ok := answer.(*command.Submitted); !ok {
		t.Fatalf("%+v", answer)
	}
	changed := s.Effects().Changed
	var sent []*greylagv1.Job
	w := &watcher{
		index: 1, q: &selection{}, visibility: &Visibility{policy: s.View().Policy(), caller: auth.Caller{User: auth.Identity{Identity: spec.Owner}, Role: command.RoleAdmin}}, open: map[cluster.JobID]bool{},
		send: func(m *greylagv1.WatchJobsResponse) error { sent = append(sent, m.Jobs...); return nil },
	}
	if err := w.changes(s.View(), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.changes(s.View(), changed); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 1 || sent[0].GetState() != greylagv1.JobState_JOB_STATE_PENDING {
		t.Errorf("sent %v of %d changes", sent, len(changed))
	}
}
