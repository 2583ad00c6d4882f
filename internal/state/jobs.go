package state

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// jobTables holds the jobs, active and newest finished, with their arrays and signals.
type jobTables struct {
	next     cluster.JobID // the next ID
	finished uint64        // sequence number of the newest finished job

	// Each active job is in one of these two.
	pending cow.Map[cluster.JobID, *cluster.Job]
	holding cow.Map[cluster.JobID, *cluster.Job] // those with an allocation
	tail    cow.Map[uint64, *cluster.Job]        // finished jobs by sequence number
	arrays  table.Table[cluster.JobID, array]
	signals table.Table[cluster.JobID, []Signal]

	// Indexes.
	users      cow.Map[userJob, none]
	due        cow.Map[dueJob, none]
	victims    cow.Map[victim, none]          // jobs with a notice
	ended      cow.Map[cluster.JobID, uint64] // of jobs in the tail
	states     [cluster.OutOfMemory + 1]int   // active jobs by state
	dependents map[cluster.JobID]int          // active jobs that depend on a job or array; nil in a clone

	hashes jobHasher
	digest uint64 // of pending, holding and tail
}

// userJob orders jobs by user.
type userJob struct {
	user string
	id   cluster.JobID
}

// dueJob orders jobs by the next instant at which time changes them.
type dueJob struct {
	at cluster.Instant
	id cluster.JobID
}

func newJobs(h *table.Hasher) jobTables {
	return jobTables{
		next:    1,
		pending: cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
		holding: cow.New[cluster.JobID, *cluster.Job](cmp.Compare[cluster.JobID]),
		tail:    cow.New[uint64, *cluster.Job](cmp.Compare[uint64]),
		arrays:  table.New(&arraySchema, h),
		signals: table.New(&signalSchema, h),
		users: cow.New[userJob, none](func(a, b userJob) int {
			if c := strings.Compare(a.user, b.user); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
		due: cow.New[dueJob, none](func(a, b dueJob) int {
			if c := cmp.Compare(a.at, b.at); c != 0 {
				return c
			}
			return cmp.Compare(a.id, b.id)
		}),
		victims:    newVictims(),
		ended:      cow.New[cluster.JobID, uint64](cmp.Compare[cluster.JobID]),
		dependents: map[cluster.JobID]int{},
		hashes:     jobHasher{Hasher: h},
	}
}

// clone returns tables that later writes to x do not change. O(1).
func (x *jobTables) clone(h *table.Hasher) jobTables {
	c := *x
	c.pending, c.holding, c.tail = x.pending.Clone(), x.holding.Clone(), x.tail.Clone()
	c.arrays, c.signals = x.arrays.Clone(h), x.signals.Clone(h)
	c.users, c.due, c.ended = x.users.Clone(), x.due.Clone(), x.ended.Clone()
	c.victims = x.victims.Clone()
	c.dependents, c.hashes = nil, jobHasher{Hasher: h}
	return c
}

// active returns a job that has not ended. O(log n).
func (x *jobTables) active(id cluster.JobID) (*cluster.Job, bool) {
	if j, found := x.pending.Get(id); found {
		return j, true
	}
	return x.holding.Get(id)
}

// job returns a job that is active or in the tail. O(log n).
func (x *jobTables) job(id cluster.JobID) (*cluster.Job, bool) {
	if j, found := x.active(id); found {
		return j, true
	}
	seq, found := x.ended.Get(id)
	if !found {
		return nil, false
	}
	return x.tail.Get(seq)
}

// live returns the number of active jobs.
func (x *jobTables) live() int { return x.pending.Len() + x.holding.Len() }

// allActive yields the active jobs; the order of pending and holding ones is undefined.
func (x *jobTables) allActive(yield func(*cluster.Job) bool) {
	for _, j := range x.pending.All() {
		if !yield(j) {
			return
		}
	}
	for _, j := range x.holding.All() {
		if !yield(j) {
			return
		}
	}
}

// put replaces a job by a newer value, or adds one if old is nil, and updates every index. A final
// state moves the job to the tail, which holds most jobs. O(log n + tasks that changed); O(nodes) if the
// allocation changes.
func (x *jobTables) put(old, j *cluster.Job, most int) {
	if old == nil {
		x.digest ^= x.hashes.spec(j)
		x.list(j)
	} else {
		x.unlink(old, j)
	}
	if at := dueOf(j); at != cluster.Never {
		x.due.Set(dueJob{at, j.ID}, none{})
	}
	if j.State.Final() {
		x.digest ^= x.hashes.placement(old)
		x.finish(j, most)
		return
	}
	x.digest ^= x.hashes.job(j) ^ x.hashes.placementChange(old, j)
	x.states[j.State]++
	if !j.State.HasAllocation() {
		x.pending.Set(j.ID, j)
		return
	}
	x.holding.Set(j.ID, j)
	x.noteVictim(j)
	if old != nil && !old.State.HasAllocation() {
		x.keepArray(j.Array, 0, 1)
	}
}

// noteVictim adds a job with a notice to the index of these.
func (x *jobTables) noteVictim(j *cluster.Job) {
	if p := j.Preempting; p != nil {
		x.victims.Set(victim{p.By, j.ID}, none{})
	}
}

// list adds a new active job to the indexes of active jobs.
func (x *jobTables) list(j *cluster.Job) {
	x.users.Set(userJob{j.Spec.Owner.User, j.ID}, none{})
	x.depend(j)
}

// unlink removes the index entries of old that do not apply to j.
func (x *jobTables) unlink(old, j *cluster.Job) {
	x.digest ^= x.hashes.job(old)
	x.states[old.State]--
	if old.Spec != j.Spec {
		x.digest ^= x.hashes.spec(old)
		x.digest ^= x.hashes.spec(j)
	}
	if at := dueOf(old); at != cluster.Never {
		x.due.Delete(dueJob{at, old.ID})
	}
	if p := old.Preempting; p != nil {
		x.victims.Delete(victim{p.By, old.ID})
	}
	if !old.State.HasAllocation() {
		if j.State != cluster.Pending {
			x.pending.Delete(old.ID)
		}
		return
	}
	if !j.State.HasAllocation() {
		x.holding.Delete(old.ID)
		x.keepArray(old.Array, 0, -1)
		x.signals.Delete(old.ID)
	}
}

// put replaces a job by a newer value, or adds one if old is nil, and updates every other table. It
// is the only way in which active jobs change. O(log n + tasks that changed); O(nodes log n) if the allocation
// changes.
func (s *State) put(old, j *cluster.Job) { s.putResized(old, j, false) }

// putResized is put for a job that a node may have left: lost says that it did so without a report of its task's end.
func (s *State) putResized(old, j *cluster.Job, lost bool) {
	j.Version = s.index
	if j.State != cluster.Pending || j.Hold != cluster.NotHeld {
		j.Promise = nil
	}
	s.meter(old, j)
	if j.State.Final() {
		endCheckpoints(j)
		s.dropFences(j)
	}
	s.credits.Follow(s.env(), old, j)
	held := old != nil && old.State.HasAllocation()
	if held && !j.State.HasAllocation() {
		s.allocate(old, -1)
		s.followSharers(old)
		s.rebootIdle(old)
	}
	if held && j.State.HasAllocation() && old.Alloc != j.Alloc {
		s.allocate(old, -1)
		s.allocate(j, 1)
		s.rebootIdle(old)
		s.credits.ResizeBilling(s.env(), j, s.granted(j), s.unconfirmed(old, j, lost))
	}
	s.jobTables.put(old, j, s.limits.tail)
	if old != nil && !held && j.State.HasAllocation() {
		s.allocate(j, 1)
		s.followSharers(j)
	}
	s.followLeases(old, j)
	if j.State.Final() {
		s.blobs.Use(s.now, j.Spec, -1, nil)
	}
	if s.victims.Len() > 0 && old != nil && old.State == cluster.Pending && (j.State.Final() || j.Hold != cluster.NotHeld) {
		defer s.spare(j)
	}
	if s.unwatched {
		return
	}
	s.totals.Count(old, j)
	s.effects.Changed = append(s.effects.Changed, Change{Kind: JobChanged, Job: j.ID, Old: old, New: j})
	if j.State.Final() {
		s.effects.Finished = append(s.effects.Finished, Finished{Seq: s.finished, Job: j, Record: command.EncodeJob(j)})
	}
}

// step changes the state of j, a value that is not shared yet, by an event. An illegal transition
// is a fault of this package.
func (s *State) step(j *cluster.Job, e cluster.JobEvent) {
	to, err := cluster.NextState(j.State, e)
	if err != nil {
		s.fault("job %s: %w", j.ID, err)
		return
	}
	j.State = to
}

// fault records a violated invariant, for Check.
func (s *State) fault(format string, args ...any) {
	if len(s.faults) < 16 {
		s.faults = append(s.faults, fmt.Errorf(format, args...))
	}
}

// dueOf returns when time alone will change the job: its limit, its deadline, the signal before its
// end, the end for another job, or, if that is its pending reason, its begin time.
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
	case j.State.HasAllocation() && j.State != cluster.Completing:
		if j.Spec.Deadline > 0 {
			at = j.Spec.Deadline
		}
		if limit := j.Limit(); limit > 0 {
			at = min(at, limit)
			if j.Spec.Signal.Number > 0 && !j.Warned {
				at = min(at, limit.Add(-j.Spec.Signal.Lead(j.Spec.TimeLimit)))
			}
			at = min(at, askAt(j))
		}
		if j.Preempting != nil {
			at = min(at, j.Preempting.At)
		}
		at = min(at, j.Members.Due())
	}
	return at
}

// askAt returns when a running job gets its checkpoint signal before its time limit; never if it has none, or got it
// already.
func askAt(j *cluster.Job) cluster.Instant {
	limit, signal := j.Limit(), j.Spec.CheckpointSignal
	if signal.Number == 0 || limit == 0 {
		return cluster.Never
	}
	at := limit.Add(-signal.Lead(j.Spec.TimeLimit))
	if j.Asked >= at {
		return cluster.Never
	}
	return at
}

// lastStart returns the last instant at which a job with a deadline can start and still end in
// time.
func lastStart(spec *cluster.JobSpec) cluster.Instant { return spec.Deadline.Add(-spec.TimeLimit) }

// The tail is the newest finished jobs, limits.tail of them, and older ones that an active job
// depends on: their outcome is needed until then.

// finish moves a job that has ended to the tail, under the next sequence number.
func (x *jobTables) finish(j *cluster.Job, most int) {
	x.finished++
	x.users.Delete(userJob{j.Spec.Owner.User, j.ID})
	x.tail.Set(x.finished, j)
	x.ended.Set(j.ID, x.finished)
	x.digest ^= x.hashes.tail(x.finished, j)
	if x.finished > uint64(most) {
		x.drop(x.finished - uint64(most))
	}
	x.removeDependents(j, most)
}

// drop removes a finished job from the tail unless an active one depends on it.
func (x *jobTables) drop(seq uint64) {
	j, found := x.tail.Get(seq)
	if !found || x.pinned(j) {
		return
	}
	x.tail.Delete(seq)
	x.ended.Delete(j.ID)
	x.digest ^= x.hashes.tail(seq, j) ^ x.hashes.spec(j)
	x.keepArray(j.Array, -1, 0)
}

// pinned reports whether an active job depends on j or on its array.
func (x *jobTables) pinned(j *cluster.Job) bool {
	return x.dependents[j.ID] > 0 || j.Array != 0 && x.dependents[j.Array] > 0
}

// depend records the dependencies of an active job.
func (x *jobTables) depend(j *cluster.Job) {
	for _, d := range j.Spec.Depends {
		if d.Kind != cluster.Singleton {
			x.dependents[d.Job.ID]++
		}
	}
}

// removeDependents removes the dependencies of a job, and old finished jobs that no active job
// depends on any more. O(dependencies × elements of their arrays).
func (x *jobTables) removeDependents(j *cluster.Job, most int) {
	for _, d := range j.Spec.Depends {
		if d.Kind == cluster.Singleton {
			continue
		}
		if x.dependents[d.Job.ID]--; x.dependents[d.Job.ID] > 0 {
			continue
		}
		delete(x.dependents, d.Job.ID)
		for _, id := range x.resolve(cluster.JobRef{ID: d.Job.ID, Index: cluster.NoIndex}) {
			if seq, ended := x.ended.Get(id); ended && seq+uint64(most) <= x.finished {
				x.drop(seq)
			}
		}
	}
}
