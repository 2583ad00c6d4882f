package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/cluster"
)

// Quote returns the liens of a user's jobs if they were submitted now, and whether they would be
// accepted. Nothing is stored and the view does not change, but only one call may run at a time on
// one view. O(jobs log n).
func (v *View) Quote(owner cluster.Identity, jobs []command.Submission) credits.Quote {
	s := newState(defaultLimits(), nil)
	s.tables = v.tables
	s.credits = v.credits.Clone(nil)
	s.credits.Ledger().Advance(s.now)
	check := s.admission()
	q := credits.Quoter{Credits: &s.credits, Env: s.env(), ID: s.jobTables.next}
	for i := range jobs {
		spec := jobs[i].Spec
		spec.Owner = owner
		checked, refusal, _ := s.check(&spec, jobs[i].DefaultTime, check)
		if refusal == nil {
			refusal = s.secrets.CheckJob(checked)
		}
		if refusal == nil {
			refusal = q.Add(checked, max(1, countElements(jobs[i].Array)))
		}
		if refusal != nil {
			q.Refused = refusal
			break
		}
	}
	return q.Quote
}

// countElements returns the number of jobs that an array makes, within bounds.
func countElements(ranges []command.IndexRange) (n int64) {
	for _, r := range ranges {
		n += elements(r)
	}
	return min(n, maxCommandJobs)
}

// DryRunResult is the result of a dry run of a submission.
type DryRunResult struct {
	// Snapshot is the state with the pending jobs of the submission; Job is the first of them.
	Snapshot *cluster.Snapshot
	Job      cluster.JobID
	Answer   *command.Submitted
}

// DryRun returns what a submission would lead to if it were committed now: its liens and a snapshot
// to plan it with, or the refusal. Nothing is stored and the view does not change, but only one
// call may run at a time on one view. O(jobs).
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
	return DryRunResult{}, command.Refuse(command.Internal, "the dry run of the submission returned no answer", "")
}

// TryAccounts returns the refusal of a change of accounts if it were committed now; nil if it would
// be accepted. Nothing is stored and the view does not change, but as with DryRun only one call may
// run at a time on one view. O(jobs + accounts + users).
func (v *View) TryAccounts(c *command.EditAccounts) *command.Refusal {
	again := *c
	again.Request = command.RequestID{}
	refusal, _ := v.onTrial().editAccounts(&again).(*command.Refusal)
	return refusal
}

// onTrial returns a state equal to the view whose changes are dropped.
func (v *View) onTrial() *State {
	s := newState(defaultLimits(), nil)
	s.tables = v.tables // clones, so that writes are not visible elsewhere
	s.credits = v.credits.Clone(nil)
	s.jobTables.dependents = map[cluster.JobID]int{}
	for j := range s.allActive {
		s.depend(j)
	}
	s.accounts.Recount(s.allActive)
	return s
}
