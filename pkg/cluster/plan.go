package cluster

import "time"

// Snapshot is all that one scheduling pass sees: one instant of the state. The
// pass may keep the pointers; nothing behind them changes.
type Snapshot struct {
	Index   uint64
	Now     Instant
	Policy  *Policy
	Nodes   []*Node // by name, ascending
	Active  []*Job  // jobs that hold an allocation, by id
	Pending []*Job  // jobs that wait, by id
	// Accounts is who shares the cluster, and what they used; nil when nobody does.
	Accounts *AccountView
	// Prices is what an hour of a GPU costs now and will cost, by type, the latest first;
	// of types that are not there nothing is known, and nobody is kept from them.
	Prices []Price
	// OverBudget is the accounts that are over a soft budget, by name, ascending, users in
	// them as "account/user". What they pay for goes last.
	OverBudget []string
	// Models is what the nodes of each partition have; nil when jobs that name no type of
	// GPU are held to the limits on all types, whether they are there or not, and exclusive
	// ones to what they ask for.
	Models map[string][]NodeModel
	// Switches is the fabric; none when every node hangs on one switch.
	Switches []Switch
	// Ended is a job that is no longer active, as it ended; nil when that is not known
	// any more. Dependencies need it.
	Ended func(JobID) *Job
	// Elements lists the ids of an array: first element and count, and whether
	// the array is known.
	Elements func(array JobID) (first JobID, count int32, ok bool)
	// Element is the id of the element of an array that has an index, and whether
	// there is one.
	Element func(array JobID, index int32) (JobID, bool)
}

// Price is what an hour of one GPU of a type costs from an instant on, in micro-credits.
type Price struct {
	Type string
	Hour int64
	From Instant
}

// Plan is all that one pass decides. It becomes a command; each start is
// checked again when the command is applied, and a stale one is refused alone.
type Plan struct {
	Index    uint64 // the snapshot it was made from
	Policy   uint64 // version of the policy it was made by
	Starts   []PlannedStart
	Verdicts []Verdict // only those that differ from what the job shows now
	// Evictions end jobs that others may preempt, so that these can start soon.
	Evictions []Eviction
}

// PlannedStart starts one job now on a placement.
type PlannedStart struct {
	Job       JobID
	Attempt   Attempt // the attempt this start makes: the job's last plus one
	Partition string  // of the job's, the one in which it starts; "" means the first that suits
	Placement Placement
}

// Verdict is why one job still waits, and when it is planned to start.
type Verdict struct {
	Job     JobID
	Reason  Reason
	Detail  string
	Planned Instant // 0 when no start is planned
	Promise *Promise
	// Broken is why an earlier promise is not kept; "" when none was broken.
	Broken string
}

// Promise is a planned start that is recorded, shown to the user and kept: a later pass may move
// it earlier, and only the causes that docs/scheduling.md lists delay it.
type Promise struct {
	At        Instant
	Partition string      // in which of its partitions
	Kind      string      // type of the GPUs; "" means any
	Hosts     []NodeShare // what is kept free for it from At on
}

// NodeShare is how many GPUs of a node are kept for a planned start; which ones is
// chosen when it starts.
type NodeShare struct {
	Node string
	GPUs int32
}

// maxNotes is how many notes of a job are kept.
const maxNotes = 16

// Note is one thing that was said of a job's start: why it waits and until when, a
// promise, or what became of one.
type Note struct {
	Index    uint64 // of the log entry that said so
	At       Instant
	Reason   Reason
	Planned  Instant // 0: no start was planned
	Promised bool    // Planned was a promise
	Broken   string  // why an earlier promise is not kept
}

// Noted returns the history with one more note, unless it says what the last one said:
// the same reason, and a planned start that moved by less than a minute.
func Noted(history []Note, n Note) []Note {
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

// Late is how much later than promised a job may start with the promise kept.
const Late = time.Minute
