package server

import (
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/joblist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// resolveArchived removes the satisfied dependencies of a submission on jobs that only the archive
// has, and refuses those that can never be satisfied. The state has only the newest ended jobs.
// O(dependencies + elements of their arrays).
func (s *jobService) resolveArchived(c *call.Caller, cmd *command.SubmitJobs) error {
	v := s.cfg.State.View()
	known := make(map[cluster.JobRef]ending) // thousands of dependencies may name one array
	for i := range cmd.Jobs {
		spec := &cmd.Jobs[i].Spec
		var left []cluster.Dependency
		var never error // the first one that can never be satisfied
		satisfied := false
		for _, d := range spec.Depends {
			e, asked := known[d.Job]
			if !asked && d.Kind != cluster.Singleton {
				var err error
				if e, err = s.endingOf(v, c, d.Job); err != nil {
					return err
				}
				known[d.Job] = e
			}
			switch {
			case d.Kind == cluster.Singleton || !e.archived || d.Delay > 0 && e.started.Add(d.Delay) > v.Now():
				left = append(left, d)
			case d.Kind.Satisfied(e.bad):
				satisfied = true
			case never == nil:
				never = call.Refuse(command.Conflict, "resubmit that job and depend on the new one, or remove the dependency",
					"dependency %s can never be satisfied: in job %s %d succeeded and %d failed", d, d.Job, e.good, e.bad)
			}
		}
		anyOf := cluster.AnyOf(spec.Depends)
		switch {
		case anyOf && satisfied:
			left = nil
		case never != nil && (!anyOf || len(left) == 0):
			return never
		}
		spec.Depends = left
	}
	return nil
}

// ending is the outcome of the jobs that a dependency names.
type ending struct {
	archived  bool // all have ended, and the state does not have all of them
	good, bad int
	started   cluster.Instant // when the last of them started
}

// endingOf returns the outcome of jobs that the caller may see. O(elements of an array).
func (s *jobService) endingOf(v *state.View, c *call.Caller, ref cluster.JobRef) (e ending, err error) {
	if len(v.Resolve(ref)) == 1 {
		return e, nil
	}
	ids, err := joblist.Resolve(v, s.cfg.Archive, ref)
	if err != nil {
		return e, err
	}
	archived := false
	for _, id := range ids {
		j, err := joblist.Find(v, s.cfg.Archive, id)
		if err != nil || j == nil || !j.State.Final() || auth.ViewOf(v.Policy(), c.Caller, j.Spec.Owner) == auth.Hidden {
			return ending{}, err
		}
		_, known := v.Job(id)
		archived = archived || !known
		e.started = max(e.started, j.Started)
		if j.State == cluster.Completed && j.Exit.OK() {
			e.good++
		} else {
			e.bad++
		}
	}
	e.archived = archived
	return e, nil
}
