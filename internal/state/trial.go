package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Tried is what a submission would come to.
type Tried struct {
	// Snapshot is the state with the jobs in it, as they would wait; Job is the first.
	Snapshot *cluster.Snapshot
	Job      cluster.JobID
	Answer   *command.Submitted
}

// Try tells what a submission would come to if it were agreed now: what is set aside for
// it and a snapshot to plan it by, or why it would be refused. Nothing is kept, and the
// view does not change; but only one call may run at a time on one view. O(jobs).
func (v *View) Try(c *command.SubmitJobs) (Tried, *command.Refusal) {
	s := newState(defaultLimits())
	s.tables = v.tables // clones, so that nobody else sees what is written
	if v.credits != nil {
		s.credits = v.credits.Clone()
	}
	s.recountQueued()
	switch r := s.submit(c).(type) {
	case *command.Submitted:
		return Tried{Snapshot: (&View{tables: s.tables}).Snapshot(), Job: r.First[0], Answer: r}, nil
	case *command.Refusal:
		return Tried{}, r
	}
	return Tried{}, refuse(command.Internal, "the submission came to nothing that is known", "")
}
