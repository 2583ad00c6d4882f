package state

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// put replaces a job by a newer value of it, or adds one when old is nil, and keeps
// every index in step. A final state moves the job to the tail. It is the one way
// in which jobs change. O(log n + nodes of the job).
func (s *State) put(old, j *cluster.Job) {
	j.Version = s.index
	if j.State != cluster.Pending || j.Hold != cluster.NotHeld {
		j.Promise = nil
	}
	s.meter(old, j)
	s.keepUnfunded(old, j)
	s.keepNarrow(old, j)
	if old == nil {
		s.digest ^= s.hashSpecOf(j)
		s.users.Set(userJob{j.Spec.Owner.User, j.ID}, none{})
		s.depend(j)
	} else {
		s.unlink(old, j)
	}
	if at := dueOf(j); at != cluster.Never {
		s.due.Set(dueJob{at, j.ID}, none{})
	}
	if !s.unwatched {
		s.effects.Changed = append(s.effects.Changed, Change{Kind: JobChanged, Job: j.ID, Old: old, New: j})
	}
	if j.State.Final() {
		s.finish(j)
		return
	}
	s.digest ^= s.hashJob(j)
	s.states[j.State]++
	if !j.State.Holds() {
		s.pending.Set(j.ID, j)
		return
	}
	s.holding.Set(j.ID, j)
	if old != nil && !old.State.Holds() {
		s.allocate(j, 1)
		s.keepArray(j.Array, 0, 1)
	}
}

// unlink takes out of the indexes what of old does not hold for j.
func (s *State) unlink(old, j *cluster.Job) {
	s.digest ^= s.hashJob(old)
	s.states[old.State]--
	if old.Spec != j.Spec {
		s.digest ^= s.hashSpecOf(old)
		s.digest ^= s.hashSpecOf(j)
	}
	if at := dueOf(old); at != cluster.Never {
		s.due.Delete(dueJob{at, old.ID})
	}
	if !old.State.Holds() {
		if j.State != cluster.Pending {
			s.pending.Delete(old.ID)
		}
		return
	}
	if !j.State.Holds() {
		s.holding.Delete(old.ID)
		s.allocate(old, -1)
		s.keepArray(old.Array, 0, -1)
		s.setSignals(old.ID, nil)
	}
}

// allocate adds a job's allocation to what is used on its nodes, or with sign -1 takes
// it away.
func (t *tables) allocate(j *cluster.Job, sign int32) {
	for _, a := range j.Alloc.Nodes {
		u, _ := t.uses.Get(a.Node)
		u.GPUs = slices.Clone(u.GPUs)
		addUse(&u, j, a, sign)
		if u.Jobs == 0 {
			t.uses.Delete(a.Node)
		} else {
			t.uses.Set(a.Node, u)
		}
		if sign > 0 {
			t.onNode.Set(nodeJob{a.Node, j.ID}, none{})
		} else {
			t.onNode.Delete(nodeJob{a.Node, j.ID})
		}
	}
}

// addUse changes u, whose GPUs it may write, by what j has on one node.
func addUse(u *cluster.Use, j *cluster.Job, a cluster.NodeAllocation, sign int32) {
	u.Jobs += sign
	u.CPUs += sign * a.CPUs
	u.Memory += cluster.Bytes(sign) * a.Memory
	for _, g := range a.GPUs {
		for int(g) >= len(u.GPUs) {
			u.GPUs = append(u.GPUs, false)
		}
		u.GPUs[g] = sign > 0
	}
	if j.Spec.Request.Exclusive {
		u.Whole = sign > 0
	}
}

// step moves j, a value that nobody else has yet, by an event. The table of legal
// moves has the last word: an illegal one is a fault of this package.
func (s *State) step(j *cluster.Job, e cluster.Event) {
	to, err := cluster.Next(j.State, e)
	if err != nil {
		s.fault("job %s: %w", j.ID, err)
		return
	}
	j.State = to
}

// fault notes what must never happen, for Check.
func (s *State) fault(format string, args ...any) {
	if len(s.faults) < 16 {
		s.faults = append(s.faults, fmt.Errorf(format, args...))
	}
}

// dueOf is when time alone will change the job: its limit, its deadline, the signal
// before its end, or, while it is shown to wait for that, its begin.
func dueOf(j *cluster.Job) cluster.Instant {
	at := cluster.Never
	switch {
	case j.State == cluster.Pending:
		if j.Spec.Deadline > 0 {
			at = lastStart(j.Spec) + 1
		}
		if j.Reason == cluster.ReasonBeginTime {
			at = min(at, j.Eligible)
		}
	case j.State.Holds() && j.State != cluster.Completing:
		if j.Spec.Deadline > 0 {
			at = j.Spec.Deadline
		}
		if limit := j.Limit(); limit > 0 {
			at = min(at, limit)
			if j.Spec.Signal.Number > 0 && !j.Warned {
				at = min(at, limit.Add(-j.Spec.Signal.Before))
			}
		}
	}
	return at
}

// lastStart is the last instant at which a job with a deadline can start and end
// in time.
func lastStart(spec *cluster.JobSpec) cluster.Instant { return spec.Deadline.Add(-spec.TimeLimit) }
