package command

import (
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Result is what a command answered: one of the types of this file, or a
// *Refusal when nothing was changed.
type Result interface{ result() }

// Code classifies a refusal for programs.
type Code uint8

// The codes; the API maps them to Connect codes, the command line to exit statuses.
const (
	InvalidArgument Code = iota + 1
	NotFound
	Denied
	Conflict  // the state does not allow it: already ended, already exists, stale
	Exhausted // a limit of the cluster
	Mismatch  // a request id was used before with another payload
	Internal
	Incomplete // a script or environment that is named is not there: send it along, with the same request id
)

// Done answers commands that have little to say.
type Done struct {
	Version uint64
	Notes   []string // what else became of it: of accounts, what went with them
}

// Submitted answers SubmitJobs: the id of each job, or of an array's first
// element, in the order asked.
type Submitted struct {
	First  []cluster.JobID
	Counts []int32 // elements; 0 when it is no array
	Index  uint64  // of the entry that stored them
	Again  bool    // a repeated request: nothing was stored now
	// SetAside is the credits set aside for all of them; Over lists exceeded soft budgets.
	SetAside accounting.Credits
	Over     []accounting.Warning
}

// Outcomes answers CancelJobs and UpdateJobs: one for each job meant.
type Outcomes struct {
	Jobs  []Outcome
	Index uint64
	Again bool
}

// Outcome is the result for one job.
type Outcome struct {
	Job     cluster.JobID
	Ref     cluster.JobRef
	State   cluster.JobState // afterwards; 0 when the job is unknown
	Refused *Refusal         // nil when it was done
}

// StepCreated answers CreateStep. The layout of the step is in the job.
type StepCreated struct {
	Step    uint32
	Attempt cluster.Attempt
	// Busy says which GPUs the step waits for; "" if it was created.
	Busy string
}

// Registered answers RegisterNode.
type Registered struct{ Epoch uint64 }

// Committed answers CommitPlan.
type Committed struct {
	Started []cluster.JobID
	Stale   []Stale // starts that were refused
}

// Stale is one start of a plan that no longer fits the state.
type Stale struct {
	Job cluster.JobID
	Why string
}

// Named answers UpdateNodes: the nodes that were changed.
type Named struct {
	Names []string
	Index uint64
}

func (*Refusal) result()     {}
func (*Done) result()        {}
func (*Submitted) result()   {}
func (*Outcomes) result()    {}
func (*Registered) result()  {}
func (*StepCreated) result() {}
func (*Committed) result()   {}
func (*Named) result()       {}
