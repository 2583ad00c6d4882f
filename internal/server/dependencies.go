package server

import (
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// resolveArchived removes the dependencies of a submission that are satisfied by jobs that only the
// archive has, and refuses those that can never be satisfied. The state has only the newest ended jobs.
// O(dependencies × elements of their arrays).
func (s *jobService) resolveArchived(c *caller, cmd *command.SubmitJobs) error {
	v := s.cfg.State.View()
	for i := range cmd.Jobs {
		spec := &cmd.Jobs[i].Spec
		var left []cluster.Dependency
		for _, d := range spec.Depends {
			held, err := s.archiveSatisfies(v, c, d)
			if err != nil {
				return err
			}
			if !held {
				left = append(left, d)
			}
		}
		spec.Depends = left
	}
	return nil
}

// archiveSatisfies reports whether a dependency is satisfied by jobs that have all ended, of which the
// state does not have all. The error refuses one that can never be satisfied.
func (s *jobService) archiveSatisfies(v *state.View, c *caller, d cluster.Dependency) (bool, error) {
	if d.Kind == cluster.Singleton || len(v.Resolve(d.Job)) == 1 {
		return false, nil
	}
	ids, err := resolve(v, s.cfg.Archive, d.Job)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	good, bad, archived := 0, 0, false
	for _, id := range ids {
		j, err := find(v, s.cfg.Archive, id)
		if err != nil || j == nil || !j.State.Final() || auth.ViewOf(v.Policy(), c.Caller, j.Spec.Owner) == auth.Hidden {
			return false, err
		}
		_, known := v.Job(id)
		archived = archived || !known
		if d.Delay > 0 && j.Started.Add(d.Delay) > v.Now() {
			return false, nil
		}
		if j.State == cluster.Completed && j.Exit.OK() {
			good++
		} else {
			bad++
		}
	}
	if !archived {
		return false, nil
	}
	if d.Kind.Satisfied(good, bad) {
		return true, nil
	}
	return false, refused(command.Conflict, "resubmit that job and depend on the new one, or remove the dependency",
		"dependency %s can never be satisfied: in job %s %d succeeded and %d failed", d, d.Job, good, bad)
}
