// Package reconcile compares the tasks that should be on a node with those that
// are, and names what is to be done next for each.
//
// It decides from three values alone: the set that the controllers want, with
// the log index it is as of; what the node has recorded of each task; and the
// instant. It never does anything: package agent carries the actions out,
// records what came of them and asks again. Both sides are full sets, so that a
// message that is lost, repeated or late changes nothing.
//
// What keeps (job, attempt) from starting twice on a node:
//   - a task is recorded before anything is done about it, and Start is only
//     ever answered for a recorded task that has not ended;
//   - a record is forgotten only when a set no longer wants the task, and from
//     then on older sets are not admitted ([Admit]); the controllers never want
//     again what they once stopped wanting;
//   - a record and a wanted task are the same only if the same log entry granted them
//     ([Superseded]): a restored cluster can grant a job and attempt a second time;
//   - a node whose records were lost disowns what it is wanted to have and
//     cannot find ([Set.Recovering]) instead of starting it.
package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// KillAgain is how long after a SIGKILL that had no effect it is sent again: a
// process in an uninterruptible wait takes it when the wait ends, one that was
// forked meanwhile has not had it.
const KillAgain = time.Second

// SupersededWait is the time between SIGTERM and SIGKILL of a running task that the
// controllers no longer want. It is short, since another attempt may run elsewhere.
const SupersededWait = 10 * time.Second

// ID names a task on its node.
type ID struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
}

// Compare orders by job, then attempt.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Job, other.Job), cmp.Compare(id.Attempt, other.Attempt))
}

// Phase is how far the node's record of a task has come. Phases only grow.
type Phase uint8

// The phases of a record.
const (
	Accepted Phase = iota + 1 // recorded; nothing has been done, or a start is under way
	Started                   // its process runs
	Ended                     // its process is gone; something may be left of it
	Clean                     // nothing is left but the record
)

// Work is the action that is being carried out for a task.
type Work uint8

// The kinds of work.
const (
	NoWork   Work = iota
	Starting      // can be abandoned
	Working       // anything else; the next step waits for it
)

// Signal is one signal a user sent to a task.
type Signal struct {
	ID        uint64 // ascending; each is delivered at most once
	Number    int32
	BatchOnly bool
}

// Wanted is one task that should be on the node.
type Wanted struct {
	ID       ID
	Stop     bool // it should end
	KillWait time.Duration
	Signals  []Signal // by ID, ascending
	// Granted is the log index that granted the attempt. After the cluster was restored
	// from a backup the same job and attempt can be granted a second time; the index
	// is never used twice.
	Granted uint64
}

// Set is all that should be on the node.
type Set struct {
	Version uint64 // the log index it is as of
	Tasks   []Wanted
	// Recovering says that the node's records were lost before this set: what
	// it does not know it may have run already.
	Recovering bool
	// Acted is the version of the newest set whose every task the node had on record.
	Acted uint64
}

// Seen is what the node has recorded of one task.
type Seen struct {
	ID        ID
	Phase     Phase
	Work      Work
	Signalled uint64          // the last signal delivered
	KillAt    cluster.Instant // when patience with a polite stop ends; 0: none was sent
	Killed    cluster.Instant // when SIGKILL was last sent; 0: never
	Doomed    bool            // the node itself will not let it go on
	NotBefore cluster.Instant // when what failed may be tried again
	Granted   uint64          // of the Wanted that was accepted; 0: unknown, no record was found
}

// Kind is what is to be done.
type Kind uint8

// The kinds of action.
const (
	None    Kind = iota
	Accept       // record it as Accepted
	Decline      // record it as Clean: it was to stop before the node had it
	Disown       // record it as Clean and lost: the node cannot know whether it ran
	Start        // start it
	Abandon      // give up the start that is under way
	Deliver      // send Signal
	Stop         // send the polite signal, and note KillAt
	Kill         // send SIGKILL to all of it
	Remove       // clear away what is left of it
	Forget       // drop the record
)

var kindNames = [...]string{
	None: "none", Accept: "accept", Decline: "decline", Disown: "disown", Start: "start", Abandon: "abandon",
	Deliver: "signal", Stop: "stop", Kill: "kill", Remove: "remove", Forget: "forget",
}

// String is the word that scenario files use.
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
	Signal Signal          // of Deliver
	KillAt cluster.Instant // of Stop
}

// Admit reports whether a set may be acted on by a node that has acted on one
// of version floor. An older set is one that was late.
func Admit(version, floor uint64) bool { return version >= floor }

// Superseded reports whether a record of a job and attempt belongs to another grant than the
// wanted task's, so that the two must not be confused.
func Superseded(recorded, wanted uint64) bool {
	return recorded != wanted && recorded != 0 && wanted != 0
}

// Diff gives the next step of every task that has one, by ID, and the instant
// at which to ask again although nothing happened (0: never). A nil set means
// that none has been admitted since the daemon started: then nothing new
// begins, and nothing ends but what was already told to. O(n log n).
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
			w = nil // first clear the recorded task; the wanted one is accepted afterwards
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

// unknown returns the action for a wanted task that the node has no record of. If it was
// granted before a set that the node acted on, it has run and its record was removed: the
// cluster was restored to a time when it was still running.
func unknown(w *Wanted, set *Set) Action {
	switch {
	case set.Recovering, w.Granted != 0 && w.Granted <= set.Acted:
		return Action{Kind: Disown, ID: w.ID}
	case w.Stop:
		return Action{Kind: Decline, ID: w.ID}
	}
	return Action{Kind: Accept, ID: w.ID}
}
