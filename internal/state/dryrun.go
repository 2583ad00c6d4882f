package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// DryRunResult is what a submission would come to.
type DryRunResult struct {
	// Snapshot is the state with the jobs in it, as they would wait; Job is the first.
	Snapshot *cluster.Snapshot
	Job      cluster.JobID
	Answer   *command.Submitted
}

// DryRun tells what a submission would come to if it were agreed now: what is set aside for
// it and a snapshot to plan it by, or why it would be refused. Nothing is kept, and the
// view does not change; but only one call may run at a time on one view. O(jobs).
func (v *View) DryRun(c *command.SubmitJobs) (DryRunResult, *command.Refusal) {
	s := v.onTrial()
	again := *c
	again.Request = command.RequestID{}
	switch r := s.submit(&again).(type) {
	case *command.Submitted:
		return DryRunResult{Snapshot: (&View{tables: s.tables}).Snapshot(), Job: r.First[0], Answer: r}, nil
	case *command.Refusal:
		return DryRunResult{}, r
	}
	return DryRunResult{}, command.Refuse(command.Internal, "the submission came to nothing that is known", "")
}

// TryAccounts tells why a change of accounts would be refused if it were agreed now; nil when
// it would not be. Nothing is kept, and the view does not change; as with Try, only one call
// may run at a time on one view. O(jobs + accounts + users).
func (v *View) TryAccounts(c *command.EditAccounts) *command.Refusal {
	again := *c
	again.Request = command.RequestID{}
	refusal, _ := v.onTrial().editAccounts(&again).(*command.Refusal)
	return refusal
}

// onTrial is a state like the view, of which nothing is kept.
func (v *View) onTrial() *State {
	s := newState(defaultLimits(), nil)
	s.tables = v.tables // clones, so that nobody else sees what is written
	s.credits = v.credits.Clone()
	s.jobTables.dependents = map[cluster.JobID]int{}
	for j := range v.Jobs(0) {
		s.depend(j)
	}
	s.recountQueued()
	return s
}
