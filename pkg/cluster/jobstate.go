package cluster

import (
	"errors"
	"fmt"
)

// JobState is the state of a job. The zero value is not a state.
type JobState uint8

// The states of a job. Pending to Completing are active; the rest are final.
const (
	Pending JobState = iota + 1
	Configuring
	Running
	Completing
	Completed
	Failed
	Cancelled
	TimedOut
	DeadlineMissed
	Preempted
	NodeFailed
	OutOfMemory
	maxJobState = OutOfMemory
)

var jobStateNames = [...]string{
	Pending: "PENDING", Configuring: "CONFIGURING", Running: "RUNNING",
	Completing: "COMPLETING", Completed: "COMPLETED", Failed: "FAILED", Cancelled: "CANCELLED", TimedOut: "TIMEOUT",
	DeadlineMissed: "DEADLINE", Preempted: "PREEMPTED", NodeFailed: "NODE_FAIL",
	OutOfMemory: "OUT_OF_MEMORY",
}

var jobStateCodes = [...]string{
	Pending: "PD", Configuring: "CF", Running: "R",
	Completing: "CG", Completed: "CD", Failed: "F", Cancelled: "CA",
	TimedOut: "TO", DeadlineMissed: "DL", Preempted: "PR", NodeFailed: "NF",
	OutOfMemory: "OOM",
}

// String returns the state's long name in squeue, such as "PENDING".
func (s JobState) String() string {
	if s == 0 || s > maxJobState {
		return fmt.Sprintf("JobState(%d)", uint8(s))
	}
	return jobStateNames[s]
}

// Code returns the state's short code in squeue, such as "PD".
func (s JobState) Code() string {
	if s == 0 || s > maxJobState {
		return "?"
	}
	return jobStateCodes[s]
}

// Final reports whether no event can follow.
func (s JobState) Final() bool { return s >= Completed && s <= maxJobState }

// HasAllocation reports whether a job in this state holds an allocation.
func (s JobState) HasAllocation() bool { return s >= Configuring && s <= Completing }

// ErrUnknownState is returned for a word that names no job state.
var ErrUnknownState = errors.New("unknown job state")

// ParseJobState accepts the long name or the short code, in any case, and also the British
// CANCELLED and the American CANCELED.
func ParseJobState(word string) (JobState, error) {
	for s := Pending; s <= maxJobState; s++ {
		if equalFold(word, jobStateNames[s]) || equalFold(word, jobStateCodes[s]) {
			return s, nil
		}
	}
	if equalFold(word, "CANCELED") {
		return Cancelled, nil
	}
	return 0, fmt.Errorf("%w %q", ErrUnknownState, word)
}

// JobEvent is something that happens to a job.
type JobEvent uint8

// The events. The final ones (Complete to KillForMemory) end a job that is
// COMPLETING and whose nodes have all reported clean; Cancel and MissDeadline
// also end a job that never started.
const (
	Start    JobEvent = iota + 1 // an allocation was granted
	Run                          // every node started its task
	End                          // it has ended; nodes clean up
	Requeue                      // the attempt is over and clean; another may follow
	Complete                     // exit status 0
	Fail                         // another exit status or a signal
	Cancel                       // its owner or an operator ended it
	TimeOut                      // its time limit passed
	MissDeadline
	Preempt
	LoseNode
	KillForMemory
	maxEvent = KillForMemory
)

var eventNames = [...]string{
	Start: "start", Run: "run", End: "end",
	Requeue: "requeue", Complete: "complete", Fail: "fail", Cancel: "cancel",
	TimeOut: "time out", MissDeadline: "miss deadline", Preempt: "preempt",
	LoseNode: "lose node", KillForMemory: "kill for memory",
}

// String names the event in lower case.
func (e JobEvent) String() string {
	if e == 0 || e > maxEvent {
		return fmt.Sprintf("Event(%d)", uint8(e))
	}
	return eventNames[e]
}

// ErrIllegalTransition is returned by [Next] for an event that a state does not allow.
var ErrIllegalTransition = errors.New("illegal job transition")

// transitions is the only table of legal transitions.
var transitions = map[JobState]map[JobEvent]JobState{
	Pending: {
		Start: Configuring, Cancel: Cancelled, MissDeadline: DeadlineMissed, Fail: Failed,
	},
	Configuring: {Run: Running, End: Completing},
	Running:     {End: Completing},
	Completing: {
		Requeue: Pending, Complete: Completed, Fail: Failed, Cancel: Cancelled,
		TimeOut: TimedOut, MissDeadline: DeadlineMissed, Preempt: Preempted,
		LoseNode: NodeFailed, KillForMemory: OutOfMemory,
	},
}

// NextState returns the state that follows from when e happens. An illegal transition returns from and
// [ErrIllegalTransition]. O(1).
func NextState(from JobState, e JobEvent) (JobState, error) {
	to, ok := transitions[from][e]
	if !ok {
		return from, fmt.Errorf("%w: %s cannot %s", ErrIllegalTransition, from, e)
	}
	return to, nil
}

// Ending returns the event that moves a COMPLETING job into the final state s, and whether there is
// one.
func Ending(s JobState) (JobEvent, bool) {
	for e := Complete; e <= maxEvent; e++ {
		if transitions[Completing][e] == s {
			return e, true
		}
	}
	return 0, false
}

func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if 'a' <= x && x <= 'z' {
			x -= 'a' - 'A'
		}
		if 'a' <= y && y <= 'z' {
			y -= 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}
