// Package reconcile compares the tasks that should be on a node with those that are, and returns
// the next action for each.
//
// It decides from three values: the set that the controllers want, with the log index that it is as
// of; the node's records of its tasks; and the instant. It never acts: package agent runs the
// actions, records the results and asks again. Both sides are full sets, so that a lost, repeated
// or late message changes nothing.
//
// A (job, attempt) never starts twice on a node:
//   - a task is recorded before any action on it, and Start is returned only for a recorded task that
//     has not ended;
//   - a record is dropped only when a set no longer wants the task, and from then on older sets are
//     not admitted ([Admit]); the controllers never want again what they stopped wanting;
//   - a record and a wanted task are the same only if the same log entry granted them
//     ([Superseded]), since a restored cluster can grant a job and attempt a second time;
//   - a node whose records were lost disowns wanted tasks that it cannot find ([Set.Recovering])
//     instead of starting them.
package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// KillAgain is the delay before a SIGKILL without effect is repeated. A process in uninterruptible
// sleep receives the signal when the sleep ends; a process forked meanwhile has not received it.
const KillAgain = time.Second

// SupersededWait is the time between SIGTERM and SIGKILL of a running task that the
// controllers no longer want. It is short, since another attempt may run elsewhere.
const SupersededWait = 10 * time.Second

// ID identifies a task on its node.
type ID struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
}

// Compare orders by job, then attempt.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Job, other.Job), cmp.Compare(id.Attempt, other.Attempt))
}

// Phase is the progress of the node's record of a task. Phases only grow.
type Phase uint8

// The phases of a record.
const (
	Accepted Phase = iota + 1 // recorded; not started, or a start is in progress
	Started                   // its process runs
	Ended                     // its process has ended; cleanup is not complete
	Clean                     // only the record is left
)

// Work is the action in progress for a task.
type Work uint8

// The kinds of work.
const (
	NoWork   Work = iota
	Starting      // can be abandoned
	Working       // any other action; the next step waits for it
)

// PeriodicID is the bit of the ID of a periodic signal that no log index has. The other bits are when it was due.
const PeriodicID = 1 << 63

// Signal is one signal to a task: one that a user sent, or a periodic one.
type Signal struct {
	ID        uint64 // ascending for each of the two; each is delivered at most once
	Number    int32
	BatchOnly bool
}

// Periodic reports whether it is a periodic signal.
func (s Signal) Periodic() bool { return s.ID&PeriodicID != 0 }

// Wanted is one task that should be on the node.
type Wanted struct {
	ID       ID
	Stop     bool // it should end
	KillWait time.Duration
	Signals  []Signal // by ID, ascending
	// Granted is the log index that granted the attempt. After a restore from a backup the same job
	// and attempt can be granted again, but never with the same index.
	Granted uint64
	// Periodic is sent each time that Every has passed since From; Every 0: never. Diff sets its ID.
	Periodic Signal
	Every    time.Duration
	From     cluster.Instant
}

// Set is the desired state of the node: all tasks that should be on it.
type Set struct {
	Version uint64 // the log index it is as of
	Tasks   []Wanted
	// Recovering reports that the node's records were lost before this set: tasks without a record
	// may have run.
	Recovering bool
	// Acted is the version of the newest set all of whose tasks the node had on record.
	Acted uint64
}

// Seen is the node's record of one task.
type Seen struct {
	ID        ID
	Phase     Phase
	Work      Work
	Signalled uint64          // the last signal delivered
	KillAt    cluster.Instant // end of the grace period of a stop; 0: no stop was sent
	Killed    cluster.Instant // when SIGKILL was last sent; 0: never
	Doomed    bool            // the node itself stopped it
	NotBefore cluster.Instant // time of the next try after a failure
	Granted   uint64          // of the accepted Wanted; 0: unknown, no record was found
	CopiesOut bool            // its files may have to be copied before they are removed: the controllers decide by Stop
	Started   cluster.Instant // of its process
	// Periodic is when this daemon last sent Wanted.Periodic, or first had the task: what was due before is not sent.
	Periodic cluster.Instant
}

// Kind is the type of an action.
type Kind uint8

// The kinds of action.
const (
	None    Kind = iota
	Accept       // record it as Accepted
	Decline      // record it as Clean: it was stopped before the node had it
	Disown       // record it as Clean and lost: the node cannot determine whether it ran
	Start        // start it
	Abandon      // abandon the start in progress
	Deliver      // send Signal
	Stop         // send the signal that asks it to end, and record KillAt
	Kill         // send SIGKILL to all its processes
	Remove       // remove what is left of it
	Forget       // drop the record
)

var kindNames = [...]string{
	None: "none", Accept: "accept", Decline: "decline", Disown: "disown", Start: "start", Abandon: "abandon",
	Deliver: "signal", Stop: "stop", Kill: "kill", Remove: "remove", Forget: "forget",
}

// String returns the word used in scenario files.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return "?"
	}
	return kindNames[k]
}

// Action is the next step of one task.
type Action struct {
	Kind   Kind
	ID     ID
	Signal Signal          // for Deliver
	KillAt cluster.Instant // for Stop
}

// Admit reports whether a node that has acted on a set of version floor may act on this version. An
// older set was delayed.
func Admit(version, floor uint64) bool { return version >= floor }

// Superseded reports whether a record of a job and attempt belongs to another grant than the wanted
// task.
func Superseded(recorded, wanted uint64) bool {
	return recorded != wanted && recorded != 0 && wanted != 0
}

// Diff returns the next action of each task that has one, by ID, and the instant at which to call
// it again without an event (0: never). A nil set means that none was admitted since the daemon
// started: then no task starts, and only tasks that were stopped before end. O(n log n).
func Diff(set *Set, seen []Seen, now cluster.Instant) (actions []Action, wake cluster.Instant) {
	wanted := map[ID]*Wanted{}
	if set != nil {
		for i := range set.Tasks {
			wanted[set.Tasks[i].ID] = &set.Tasks[i]
		}
	}
	known := make(map[ID]bool, len(seen))
	for i := range seen {
		s := &seen[i]
		known[s.ID] = true
		w := wanted[s.ID]
		if w != nil && Superseded(s.Granted, w.Granted) {
			w = nil // remove the recorded task first; the wanted one is accepted afterwards
		}
		action, at := Next(set != nil, w, s, now)
		if action.Kind != None {
			actions = append(actions, action)
		}
		if at != 0 && (wake == 0 || at < wake) {
			wake = at
		}
	}
	for id, w := range wanted {
		if !known[id] {
			actions = append(actions, unknown(w, set))
		}
	}
	slices.SortFunc(actions, func(a, b Action) int { return a.ID.Compare(b.ID) })
	return actions, wake
}

// unknown returns the action for a wanted task without a record. If it was granted before a set
// that the node acted on, it has run and its record was removed: the cluster was restored to a time
// when it was running.
func unknown(w *Wanted, set *Set) Action {
	switch {
	case set.Recovering, w.Granted != 0 && w.Granted <= set.Acted:
		return Action{Kind: Disown, ID: w.ID}
	case w.Stop:
		return Action{Kind: Decline, ID: w.ID}
	}
	return Action{Kind: Accept, ID: w.ID}
}
