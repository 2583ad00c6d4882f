package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// commitCheckpoint records a checkpoint of the current attempt of a job. A commit with the digest of a
// recorded checkpoint of the attempt answers with its number.
func (s *State) commitCheckpoint(c *command.CommitCheckpoint) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	old, refusal := s.committing(c.Job, c.Attempt, c.Actor)
	if refusal != nil {
		return refusal
	}
	x := c.Checkpoint
	if refusal := checkCommit(&x); refusal != nil {
		return refusal
	}
	x.Attempt, x.Committed, x.Verified, x.Detail = c.Attempt, s.now, 0, ""
	j := *old
	at := slices.IndexFunc(old.Checkpoints, func(k *cluster.Checkpoint) bool { return k.Attempt == c.Attempt && k.Dir == x.Dir })
	switch {
	case at >= 0 && old.Checkpoints[at].Digest == x.Digest && old.Checkpoints[at].State != cluster.CheckpointDamaged:
		return s.remember(c.Request, &command.CheckpointCommitted{Number: old.Checkpoints[at].Number, Known: true})
	case at >= 0 && s.sameContent(old.Checkpoints[at], &x):
		// Its hashes are added, or it is good again: it stays as new as it was.
		x.Number, x.Committed = old.Checkpoints[at].Number, old.Checkpoints[at].Committed
		j.Checkpoints = slices.Clone(old.Checkpoints)
		j.Checkpoints[at] = &x
	default:
		x.Number = 1
		for _, k := range old.Checkpoints {
			x.Number = max(x.Number, k.Number+1)
		}
		j.Checkpoints = slices.Clone(old.Checkpoints)
		if at >= 0 { // the directory was written again
			j.Checkpoints = slices.Delete(j.Checkpoints, at, at+1)
		}
		if asked := old.AskedBy(s.now); asked > 0 {
			j.WriteTime = max(s.now.Sub(asked), 1)
		}
		if s.isProgress(old, &x) {
			j.Failures, j.Retries = 0, 0
		}
		j.Checkpoints = trimCheckpoints(append(j.Checkpoints, &x), j.Resume)
	}
	s.words.share(&x.Dir)
	s.put(old, &j)
	return s.remember(c.Request, &command.CheckpointCommitted{Number: x.Number})
}

// hashingTime is how long after the commit of a checkpoint its hashes can be added. Later, the same step and sizes are
// those of files that were written again: a refund counts from their commit.
const hashingTime = 10 * time.Minute

// sameContent reports whether two commits of a directory are of the same files.
func (s *State) sameContent(a, b *cluster.Checkpoint) bool {
	return a.Digest == b.Digest || a.Step == b.Step && a.Files == b.Files && a.Bytes == b.Bytes && a.State == cluster.CheckpointWritten &&
		s.now.Sub(a.Committed) <= hashingTime
}

// isProgress reports whether a new checkpoint of a job resets its counts of failures: it is of a later step than
// all others, or the attempt has run for cluster.ProgressTime. A job that saves its work at once and then fails
// makes no progress.
func (s *State) isProgress(j *cluster.Job, x *cluster.Checkpoint) bool {
	if x.Step == cluster.NoStep {
		return s.now.Sub(j.Started) >= cluster.ProgressTime
	}
	return !slices.ContainsFunc(j.Checkpoints, func(k *cluster.Checkpoint) bool { return k.Step >= x.Step })
}

// trimCheckpoints removes checkpoints above the limit: damaged ones first, then the oldest, but not the one that the
// current attempt resumed from. The list is changed. O(checkpoints).
func trimCheckpoints(list []*cluster.Checkpoint, resume uint32) []*cluster.Checkpoint {
	for _, damaged := range []bool{true, false} {
		for i := 0; len(list) > cluster.MaxCheckpoints && i < len(list)-1; {
			if list[i].Number == resume || damaged && list[i].State != cluster.CheckpointDamaged {
				i++
				continue
			}
			list = slices.Delete(list, i, i+1)
		}
	}
	return list
}

// maxEndedCheckpoints is the number of checkpoints that are kept of a job that has ended.
const maxEndedCheckpoints = 3

// endCheckpoints drops the records of a job that has ended, a value that is not shared yet, except its newest good
// ones. O(checkpoints).
func endCheckpoints(j *cluster.Job) {
	if len(j.Checkpoints) <= maxEndedCheckpoints {
		return
	}
	var kept []*cluster.Checkpoint
	for _, k := range slices.Backward(j.Checkpoints) {
		if k.State != cluster.CheckpointDamaged && len(kept) < maxEndedCheckpoints {
			kept = append(kept, k)
		}
	}
	slices.Reverse(kept)
	j.Checkpoints = kept
}

// Committing returns the job of an attempt if the actor may commit checkpoints for it, else a refusal.
func (v *View) Committing(id cluster.JobID, attempt cluster.Attempt, a command.Actor) (*cluster.Job, *command.Refusal) {
	return v.committing(id, attempt, a)
}

// committing returns the job of an attempt for its owner if the attempt is the current one, and runs or ends.
func (s *tables) committing(id cluster.JobID, attempt cluster.Attempt, a command.Actor) (*cluster.Job, *command.Refusal) {
	j, refusal := s.ownJob(id, a)
	switch {
	case refusal != nil:
		return nil, refusal
	case attempt < j.Attempt:
		return nil, command.Refusef(command.Conflict, "attempt %d of job %s was superseded by attempt %d: its checkpoints are not accepted", attempt, j.Ref(), j.Attempt)
	case attempt > j.Attempt:
		return nil, command.Refusef(command.InvalidArgument, "job %s has no attempt %d yet", j.Ref(), attempt)
	case j.State.Final(), j.State == cluster.Pending:
		return nil, command.Refusef(command.Conflict, "attempt %d of job %s has ended: its checkpoints are not accepted", attempt, j.Ref())
	}
	return j, nil
}

// ownJob returns a job of the actor.
func (s *tables) ownJob(id cluster.JobID, a command.Actor) (*cluster.Job, *command.Refusal) {
	ref := cluster.JobRef{ID: id, Index: cluster.NoIndex}
	j, found := s.job(id)
	switch {
	case !found, s.policy.Private && !a.Owns(j.Spec.Owner) && !a.Has(command.RoleOperator):
		return nil, unknownJob(ref)
	case !a.Owns(j.Spec.Owner):
		return nil, command.Refusef(command.Denied, "job %s belongs to %s: only its owner can change its checkpoints", j.Ref(), j.Spec.Owner.User)
	}
	return j, nil
}

// checkCommit refuses a checkpoint with impossible values.
func checkCommit(x *cluster.Checkpoint) *command.Refusal {
	if err := cluster.CheckCheckpointDir(x.Dir); err != nil {
		return command.Refuse(command.InvalidArgument, err.Error(), "")
	}
	switch {
	case x.Step < cluster.NoStep:
		return command.Refusef(command.InvalidArgument, "checkpoint step must be at least 0, got %d", x.Step)
	case x.Files < 1 || x.Bytes < 0:
		return command.Refusef(command.InvalidArgument, "invalid checkpoint size: %d files, %d bytes", x.Files, x.Bytes)
	case x.State != cluster.CheckpointWritten && x.State != cluster.CheckpointVerified:
		return command.Refusef(command.InvalidArgument, "a new checkpoint cannot be %s", x.State)
	case x.Digest.IsZero():
		return command.Refusef(command.InvalidArgument, "manifest digest missing")
	}
	return nil
}

// setCheckpoint records the result of a verification, or drops a checkpoint.
func (s *State) setCheckpoint(c *command.SetCheckpoint) command.Result {
	return s.once(c.Request, func() (*command.Refusal, bool) {
		old, refusal := s.ownJob(c.Job, c.Actor)
		if refusal != nil {
			return refusal, false
		}
		at := slices.IndexFunc(old.Checkpoints, func(k *cluster.Checkpoint) bool { return k.Number == c.Number })
		switch {
		case old.State.Final():
			return command.WithHint(command.Refusef(command.Conflict, "job %s has ended (%s): the records of its checkpoints cannot be changed", old.Ref(), old.State),
				"delete directories that are not needed; no attempt resumes from them"), false
		case at < 0:
			return command.WithHint(command.Refusef(command.NotFound, "job %s has no checkpoint %d", old.Ref(), c.Number), "gctl checkpoint list %s lists them", old.Ref()), false
		case c.Action == command.DropCheckpoint && c.Number == old.Resume && old.State.HasAllocation():
			return command.Refusef(command.Conflict, "the current attempt of job %s resumed from checkpoint %d", old.Ref(), c.Number), false
		}
		j := *old
		j.Checkpoints = slices.Clone(old.Checkpoints)
		k := *old.Checkpoints[at]
		switch {
		case c.Action == command.DropCheckpoint:
			j.Checkpoints = slices.Delete(j.Checkpoints, at, at+1)
		case k.Digest != c.Digest:
			return command.Refusef(command.Conflict, "checkpoint %d of job %s was committed again meanwhile", c.Number, old.Ref()), false
		case c.Action == command.VerifyCheckpoint:
			k.Verified, k.Detail = s.now, ""
			if k.State == cluster.CheckpointDamaged { // a file system that was away, or a file that was repaired
				k.State = cluster.CheckpointVerified
			}
			j.Checkpoints[at] = &k
			if j.Reason == cluster.ReasonCheckpoint && j.Hold == cluster.HeldByUser && j.State == cluster.Pending {
				j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
				if j.Eligible > s.now {
					j.Reason = cluster.ReasonBeginTime
				}
				s.fund(&j) // a held job had no credits set aside
			}
		case c.Action == command.DamageCheckpoint:
			damage(&k, c.Detail)
			j.Checkpoints[at] = &k
			holdWithoutCheckpoint(&j, fmt.Sprintf("checkpoint %d: %s", k.Number, k.Detail))
		}
		s.put(old, &j)
		return nil, true
	})
}

// damage marks a checkpoint, a value that is not shared yet, as damaged.
func damage(k *cluster.Checkpoint, detail string) {
	k.State = cluster.CheckpointDamaged
	k.Detail = cluster.Sanitize(detail, cluster.MaxDamageDetail)
}

// damageResumed marks the checkpoint that the current attempt resumed from as damaged, and those that the
// attempt committed: they may contain the damage. j is not shared yet. O(checkpoints).
func damageResumed(j *cluster.Job, detail string) {
	j.Checkpoints = slices.Clone(j.Checkpoints)
	for i, old := range j.Checkpoints {
		k := *old
		switch {
		case k.Number == j.Resume:
			damage(&k, detail)
		case k.Attempt == j.Attempt:
			damage(&k, fmt.Sprintf("written by attempt %d, which resumed from checkpoint %d", j.Attempt, j.Resume))
		}
		j.Checkpoints[i] = &k
	}
}

// damagedShares returns what the nodes of an attempt found damaged in the checkpoint to resume from, each in the
// part that it verified; "" if nothing. O(nodes).
func damagedShares(j *cluster.Job) string {
	var found []string
	for _, t := range j.Tasks.All() {
		what := strings.TrimPrefix(t.Message, fmt.Sprintf("checkpoint %d: ", j.Resume))
		if t.Cause == cluster.CheckpointFailed && !slices.Contains(found, what) {
			found = append(found, what)
		}
	}
	return strings.Join(found, "; ")
}

// holdWithoutCheckpoint holds a pending job, a value that is not shared yet, all of whose checkpoints are
// damaged, unless it may start from the beginning. why describes the last damage.
func holdWithoutCheckpoint(j *cluster.Job, why string) {
	if j.State != cluster.Pending || j.Hold != cluster.NotHeld || j.Spec.FromScratch || len(j.Checkpoints) == 0 || j.ResumePoint() != nil {
		return
	}
	j.Hold, j.Reason, j.Planned, j.Promise = cluster.HeldByUser, cluster.ReasonCheckpoint, 0, nil
	j.Detail = "all checkpoints are damaged: " + why
}
