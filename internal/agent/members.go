package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// membersFile names the nodes of an elastic job: a line with its version, and one with each host name. It is next to the
// task's socket, where only this daemon writes, and is removed with it.
const membersFile = "members"

// membersEnv is the variable with its path.
const membersEnv = "GREYLAG_MEMBERS"

// addMembers gives a task of an elastic job the members file. host and inside are the paths of the socket's directory on
// the node and in the task.
func (a *Agent) addMembers(spec *tasks.Spec, l *launch, host, inside string) error {
	if l.spec.GetElastic() == nil || host == "" {
		return nil
	}
	if err := writeMembers(filepath.Join(host, membersFile), l.spec.GetElastic()); err != nil {
		return fmt.Errorf("%w: %w", errPostpone, err)
	}
	spec.Env = append(spec.Env, membersEnv+"="+filepath.Join(inside, membersFile))
	return nil
}

// updateMembers writes the members file of a running task again if the nodes of its job have changed.
func (a *Agent) updateMembers(t *task) {
	e := a.specs[t.ID].GetElastic()
	if e == nil || a.cfg.Sockets == nil || t.Phase != reconcile.Started || t.members == e.GetVersion() {
		return
	}
	folder, err := a.cfg.Sockets.Open(attemptOf(t.ID), t.spec.GetUid())
	if err == nil {
		err = writeMembers(filepath.Join(folder, membersFile), e)
	}
	if err != nil { // the next set tries again
		a.log.Warn("the members file of a job is out of date", "job", t.ID.Job, "attempt", t.ID.Attempt, "version", e.GetVersion(), "err", err)
		return
	}
	t.members = e.GetVersion()
}

// writeMembers replaces a members file at once: a reader sees the old one or the new one.
func writeMembers(path string, e *greylagv1.ElasticTask) error {
	var text strings.Builder
	fmt.Fprintln(&text, e.GetVersion())
	for _, name := range e.GetMembers() {
		fmt.Fprintln(&text, name)
	}
	next := path + ".next"
	err := os.WriteFile(next, []byte(text.String()), 0o644)
	if err == nil {
		err = os.Chmod(next, 0o644) // whatever the umask
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write members: %w", err), os.RemoveAll(next))
	}
	return nil
}

// numberOf returns the number of a task's node in its job: its rank, unless the nodes of the job change.
func numberOf(w *greylagv1.WantedTask) int32 {
	if e := w.GetElastic(); e != nil {
		return e.GetNumber()
	}
	return w.GetRank()
}
