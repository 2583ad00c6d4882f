package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

func (s *site) index(ctl *cluster.Controller) int { return slices.Index(s.Controllers(), ctl) }

// refuses checks that a controller acknowledges nothing and answers no fresh read for a while.
func (s *site) refuses(ctx context.Context, ctl *cluster.Controller, job uint64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	name := "to " + ctl.Name
	_, err := ctl.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: name + s.t.Name(), Jobs: []*greylagv1.JobSpec{audit.Waiting(name)}})
	if err == nil {
		s.t.Errorf("%s, which has no majority, acknowledged a submission", ctl.Name)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if answer, err := s.read(late, ctl, job); err == nil {
		s.t.Errorf("%s, which has no majority, answered a fresh read: %s", ctl.Name, wire.Word(answer.State))
	}
}

func (s *site) read(ctx context.Context, ctl *cluster.Controller, job uint64) (*greylagv1.Job, error) {
	answer, err := ctl.Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Jobs: []string{ref(job)}, AllStates: true}})
	if err != nil {
		return nil, err
	}
	return answer.Jobs[0], nil
}

// TestLeaderCutOff puts the leader into a minority: it must stop answering, and the others
// continue.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	needsRoot(t, "network namespaces")
	ctx := limited(t, 4*hang)
	options := three()
	options.Namespaces = true
	s := newSite(t, options)
	known := s.submit(ctx, audit.Waiting("known"))
	stop := s.load(32)
	for range 2 {
		leader := s.leader(ctx)
		rest := s.others(leader)
		s.must(s.Split([]int{s.index(leader)}, []int{s.index(rest[0]), s.index(rest[1])}))
		_, err := s.LeaderAmong(ctx, rest...)
		s.must(err)
		t.Log("cut off; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
		s.refuses(ctx, leader, known)
		s.must(s.Heal())
		s.must(audit.AwaitFollower(ctx, s.Cluster, leader))
	}
	stop()
	s.idle(ctx)
	s.audit(ctx)
}

// TestMajorityCutOff leaves no majority: nothing may be acknowledged, and the cluster continues
// when the network heals.
func TestMajorityCutOff(t *testing.T) {
	t.Parallel()
	needsRoot(t, "network namespaces")
	ctx := limited(t, 4*hang)
	options := three()
	options.Namespaces = true
	s := newSite(t, options)
	known := s.submit(ctx, audit.Waiting("known"))
	gate := s.gate("cut off")
	runs := s.submit(ctx, s.job("runs on", gate.then("exit 9")))
	s.await(ctx, runs, "RUNNING")
	s.must(s.Split())
	s.wait(ctx, time.Second) // the lease of the leader, which may answer until it ends
	for _, ctl := range s.Controllers() {
		s.refuses(ctx, ctl, known)
	}
	gate.open()
	s.must(s.Heal())
	t.Log("healed; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
	if job := s.await(ctx, runs, "FAILED"); job.ExitCode != 9 || job.Attempt != 1 {
		t.Errorf("the job ended with %d in attempt %d, want 9 in the first", job.ExitCode, job.Attempt)
	}
	s.audit(ctx)
}

// TestOneWayCuts drops messages in one direction only.
func TestOneWayCuts(t *testing.T) {
	t.Parallel()
	needsRoot(t, "network namespaces")
	ctx := limited(t, 4*hang)
	options := three()
	options.Namespaces = true
	s := newSite(t, options)
	stop := s.load(16)
	leader := s.leader(ctx)
	deaf := s.others(leader)[0]
	s.must(s.Cut(s.index(leader), s.index(deaf))) // one follower receives nothing from the leader
	for range 3 {
		s.wait(ctx, time.Second)
		s.probe(ctx)
	}
	s.must(s.Heal())
	s.must(audit.AwaitFollower(ctx, s.Cluster, deaf))
	leader = s.leader(ctx)
	for _, other := range s.others(leader) { // the leader receives from all and reaches none
		s.must(s.Cut(s.index(leader), s.index(other)))
	}
	_, err := s.LeaderAmong(ctx, s.others(leader)...)
	s.must(err)
	t.Log("no member receives from the leader; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
	s.must(s.Heal())
	s.must(audit.AwaitFollower(ctx, s.Cluster, leader))
	stop()
	s.idle(ctx)
	s.audit(ctx)
}
