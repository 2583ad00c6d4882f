package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// raftDB returns the log of a controller.
func raftDB(ctl *cluster.Controller) string { return filepath.Join(ctl.Data, "raft", "raft.db") }

// submitWaiting submits n jobs that stay pending.
func (s *site) submitWaiting(ctx context.Context, n int, name string) {
	s.t.Helper()
	var jobs []*greylagv1.JobSpec
	for i := range n {
		jobs = append(jobs, audit.Waiting(fmt.Sprint(name, i)))
	}
	answer, err := s.client.Jobs().SubmitJobs(ctx, &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: jobs})
	s.must(err)
	for i, job := range answer.Jobs {
		s.answers.Acknowledged(jobs[i].Name, job.Id)
	}
}

// TestControllerLosesItsLog acknowledges jobs while one controller is down. Then one of those that
// hold them loses its log and starts with the one that was down: the two must not lead, since
// together they have forgotten the jobs.
func TestControllerLosesItsLog(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(path string) error{
		"deleted": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"cut": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()*3/10)
		},
	} {
		t.Run(what, func(t *testing.T) { loseLog(t, lose) })
	}
}

func loseLog(t *testing.T, lose func(path string) error) {
	ctx := limited(t, 4*hang)
	options := three()
	options.Raft += "\nsnapshot_threshold = 100"
	s := newSite(t, options)
	s.submitWaiting(ctx, 200, "before")
	leader := s.leader(ctx)
	away, loser := s.others(leader)[0], s.others(leader)[1]
	status, err := loser.Status(ctx)
	s.must(err)
	s.must(away.Kill())
	s.submitWaiting(ctx, 20, "acknowledged")
	s.must(leader.Kill())
	s.must(loser.Kill())
	s.must(lose(raftDB(loser)))
	s.must(loser.Start())
	s.must(away.Start())
	s.must(loser.WaitEnd(hang))
	if code := loser.ExitCode(); code != 76 {
		t.Fatalf("the controller without its log ended with %d, want 76", code)
	}
	s.must(leader.Start())
	s.probe(ctx)
	s.must(s.Rejoin(ctx, loser, status.Id))
	s.must(audit.AwaitFollower(ctx, s.Cluster, loser))
	again, err := loser.Status(ctx)
	s.must(err)
	if again.Id == status.Id {
		t.Errorf("it came back under its old id %s", again.Id)
	}
	s.audit(ctx)
}
