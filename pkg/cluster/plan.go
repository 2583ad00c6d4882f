package cluster

import "time"

// Snapshot is the input of one scheduling pass: the state at one instant. The pass may keep the
// pointers; their targets never change.
type Snapshot struct {
	Index   uint64
	Now     Instant
	Policy  *Policy
	Nodes   []*Node // by name, ascending
	Active  []*Job  // jobs that hold an allocation, by ID
	Pending []*Job  // pending jobs, by ID
	// Accounts holds the account tree and usage; nil when no accounts are defined.
	Accounts *AccountView
	// Prices holds the current and coming price of a GPU hour by type, the latest first. A type
	// without an entry has no known price, and excludes no job.
	Prices []Price
	// OverBudget lists the accounts over a soft budget, by name, ascending, and users as
	// "account/user". Jobs that they pay for are planned last.
	OverBudget []string
	// Models holds the node models of each partition. When it is nil, jobs that name no GPU type
	// count against the limits of all types, and exclusive jobs count what they request.
	Models map[string][]NodeModel
	// Burst is what decides about leases; nil where the cluster has no offers and no leases.
	Burst *BurstView
	// Switches is the fabric; empty when every node is attached to one switch.
	Switches []Switch
	// Ended returns a job that is no longer active, as it ended; nil when it is unknown.
	// Dependencies need it.
	Ended func(JobID) *Job
	// Elements returns the IDs of an array (first and count), and whether the array is known.
	Elements func(array JobID) (first JobID, count int32, ok bool)
	// Element returns the ID of the array element with an index, and whether it exists.
	Element func(array JobID, index int32) (JobID, bool)
}

// Price is the price of an hour of one GPU of a type from an instant on, in micro-credits.
type Price struct {
	Type string
	Hour int64
	From Instant
}

// Plan is the result of one pass. It becomes a command; applying it re-checks each start and
// refuses stale ones singly.
type Plan struct {
	Index    uint64 // version of the snapshot
	Policy   uint64 // version of the policy
	Starts   []PlannedStart
	Verdicts []Verdict // only those that differ from the job's current one
	// Evictions end preemptible jobs so that these can start soon.
	Evictions []Preemption
	Reclaims  []Reclaim
	Grants    []NodeGrant
	Launches  []Launch // at most one
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.Starts)+len(p.Evictions)+len(p.Reclaims)+len(p.Grants)+len(p.Launches)+len(p.Verdicts) == 0
}

// PlannedStart starts one job now on a placement.
type PlannedStart struct {
	Job       JobID
	Attempt   Attempt // the attempt that this start begins: the job's last plus one
	Partition string  // the job's partition in which it starts; "" means the first that suits
	Placement Placement
}

// Verdict is why one job is pending, and its planned start.
type Verdict struct {
	Job     JobID
	Reason  Reason
	Detail  string
	Planned Instant // 0 when no start is planned
	Promise *Promise
	// Broken is why an earlier promise is not kept; "" when none was broken.
	Broken string
}

// Promise is a planned start that is recorded, shown to the user and kept. A later pass may move it
// earlier; only the causes in docs/scheduling.md delay it.
type Promise struct {
	At        Instant
	Partition string      // the job's partition in which it starts
	Kind      string      // type of the GPUs; "" means any
	Hosts     []NodeShare // the resources kept free for it from At on
}

// NodeShare is the number of GPUs of a node kept for a planned start; the GPUs are chosen at the
// start.
type NodeShare struct {
	Node string
	GPUs int32
}

// maxNotes is the number of notes of a job that are kept.
const maxNotes = 16

// Note is one scheduling decision about a job's start: why it waits and until when, a promise, or
// the outcome of one.
type Note struct {
	Index    uint64 // of its log entry
	At       Instant
	Reason   Reason
	Planned  Instant // 0: no planned start
	Promised bool    // Planned was a promise
	Broken   string  // why an earlier promise is not kept
}

// AppendNote returns the history with one more note, unless the note equals the last one: the same
// reason, and a planned start that moved by less than a minute.
func AppendNote(history []Note, n Note) []Note {
	if k := len(history); k > 0 && n.Broken == "" {
		last := &history[k-1]
		moved := n.Planned - last.Planned
		if last.Reason == n.Reason && last.Promised == n.Promised && (n.Planned == 0) == (last.Planned == 0) && moved.near() {
			return history
		}
	}
	from := max(0, len(history)+1-maxNotes)
	return append(append(make([]Note, 0, len(history)-from+1), history[from:]...), n)
}

func (i Instant) near() bool { return i > -Instant(time.Minute) && i < Instant(time.Minute) }

// Late is the tolerance of a promise: a job that starts at most this late still counts as kept.
const Late = time.Minute
