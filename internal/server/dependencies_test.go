package server_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// archived returns a record of a job of ann that only the archive has.
func archived(seq, id uint64, end cluster.JobState) archive.Record {
	j := &cluster.Job{ID: cluster.JobID(id), State: end, Spec: &cluster.JobSpec{Owner: ann}, Started: 1, Ended: 2, Attempt: 1}
	return archive.Record{Seq: seq, ID: j.ID, User: ann.User, State: end, Ended: 2, Data: command.EncodeJob(j)}
}

// TestDependencyOnArchivedJobs checks that a dependency on a job that the state has dropped holds,
// or is refused, by the job's outcome.
func TestDependencyOnArchivedJobs(t *testing.T) {
	w := newWorld(t, options{})
	must(t, w.all[0].store.Append(1, []archive.Record{archived(1, 900_001, cluster.Completed), archived(2, 900_002, cluster.Failed)}, nil))
	for _, x := range []struct {
		kind, job string
		want      connect.Code
	}{
		{"afterok", "900001", 0}, {"afterany", "900002", 0}, {"afternotok", "900002", 0}, {"after", "900001", 0},
		{"afterok", "900002", connect.CodeFailedPrecondition}, {"afternotok", "900001", connect.CodeFailedPrecondition},
		{"afterok", "900003", connect.CodeNotFound},
		{"afterok", "900002?900001", 0}, {"afternotok", "900001?900001", connect.CodeFailedPrecondition}, {"afterok", "900001?900003", 0},
	} {
		spec := job("next")
		for _, id := range strings.Split(x.job, "?") {
			spec.Depends = append(spec.Depends, &greylagv1.Dependency{Kind: wire.Enum[greylagv1.DependencyKind](x.kind), Job: id, Any: strings.Contains(x.job, "?")})
		}
		_, err := w.as(ann).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
		if err != nil && connect.CodeOf(err) != x.want || err == nil && x.want != 0 {
			t.Errorf("%s:%s: %v, want code %v", x.kind, x.job, err, x.want)
		}
	}
}

// TestDependencyOnAnotherUsersJob checks that nothing of the job is revealed where jobs are
// private.
func TestDependencyOnAnotherUsersJob(t *testing.T) {
	w := newWorld(t, options{policy: func(p *cluster.Policy) { p.Private = true }})
	theirs := w.submit(w.as(bob), job("secret"))
	depend := func(on uint64) string {
		spec := job("next")
		spec.Depends = []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK, Job: cluster.JobID(on).String()}}
		_, err := w.as(ann).Jobs().SubmitJobs(t.Context(), &greylagv1.SubmitJobsRequest{RequestId: client.NewRequestID(), Jobs: []*greylagv1.JobSpec{spec}})
		return connect.CodeOf(err).String()
	}
	if hidden, absent := depend(theirs), depend(theirs+1000); hidden != absent || hidden != "not_found" {
		t.Errorf("a hidden job answers %s, one that does not exist %s", hidden, absent)
	}
}
