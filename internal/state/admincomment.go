package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAdminComment is the maximum size of an admin comment in bytes: the last ended jobs hold theirs in memory.
const maxAdminComment = 16 << 10

// setAdminComments sets the admin comment of jobs, ended ones included.
func (s *State) setAdminComments(c *command.UpdateJobs) command.Result {
	if refusal := s.checkAdminComment(c); refusal != nil {
		return refusal
	}
	answer := &command.Outcomes{Index: s.index}
	done := make(map[cluster.JobID]none, len(c.Jobs))
	for _, ref := range c.Jobs {
		ids := s.resolve(ref)
		if len(ids) == 0 {
			refusal := command.Refusef(command.NotFound, "job %s is not active and not one of the last %d ended jobs", ref, s.limits.tail)
			answer.Jobs = append(answer.Jobs, command.Outcome{Job: ref.ID, Ref: ref, Refused: refusal})
		}
		for _, id := range ids {
			if _, duplicate := done[id]; duplicate {
				continue
			}
			done[id] = none{}
			old, _ := s.job(id)
			j := *old
			j.AdminComment = c.AdminComment
			if old.State.Final() {
				s.amend(&j)
			} else {
				s.put(old, &j)
			}
			answer.Jobs = append(answer.Jobs, command.Outcome{Job: id, Ref: j.Ref(), State: j.State})
		}
	}
	return s.remember(c.Request, answer)
}

// checkAdminComment returns a refusal unless the actor is an operator and the comment is valid text within
// the limit.
func (s *State) checkAdminComment(c *command.UpdateJobs) *command.Refusal {
	switch {
	case !c.Actor.Has(command.RoleOperator):
		return command.Refuse(command.Denied, "an admin comment requires role operator", "for your own active job use gctl update JOB comment=TEXT")
	case len(c.Jobs) > maxRefs:
		return command.Refusef(command.InvalidArgument, "%d jobs are named, at most %d", len(c.Jobs), maxRefs)
	case len(c.AdminComment) > maxAdminComment:
		return command.Refusef(command.InvalidArgument, "the admin comment has %d bytes, at most %d", len(c.AdminComment), maxAdminComment)
	}
	return command.CheckText("the admin comment", c.AdminComment)
}

// amend replaces a job that has ended, here and in the archive.
func (s *State) amend(j *cluster.Job) {
	j.Version = s.index
	seq := s.replaceEnded(j)
	if !s.unwatched {
		s.effects.Amended = append(s.effects.Amended, Finished{Seq: seq, Job: j, Record: command.EncodeJob(j)})
	}
}

// replaceEnded replaces a job of the tail and returns its sequence number. O(log n).
func (x *jobTables) replaceEnded(j *cluster.Job) uint64 {
	seq, _ := x.ended.Get(j.ID)
	old, _ := x.tail.Get(seq)
	x.tail.Set(seq, j)
	x.digest ^= x.hashes.tail(seq, old) ^ x.hashes.tail(seq, j)
	return seq
}
