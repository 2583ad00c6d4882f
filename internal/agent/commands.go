package agent

import (
	"os"
	"path/filepath"

	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
)

// attemptOf returns the identity of the commands inside a task.
func attemptOf(id reconcile.ID) auth.Attempt {
	return auth.Attempt{Job: id.Job, Number: id.Attempt}
}

// addCommands gives a task the socket through which commands inside it reach the controllers. A
// task whose socket cannot be opened runs without one. It returns the directory of the socket on the node and
// in the task.
func (a *Agent) addCommands(spec *tasks.Spec, l *launch) (folder, inside string) {
	if a.cfg.Sockets == nil {
		return "", ""
	}
	folder, err := a.cfg.Sockets.Open(attemptOf(l.id), l.spec.GetUid())
	if err != nil {
		a.log.Warn("commands inside a task will not work", "job", l.id.Job, "attempt", l.id.Attempt, "err", err)
		return "", ""
	}
	inside = folder
	if a.cfg.Isolated {
		spec.Socket, inside = folder, tasks.SocketDir
	}
	spec.Env = append(spec.Env, config.SocketEnv+"="+filepath.Join(inside, auth.SocketFile))
	if l.spec.GetImage() == "" {
		return folder, inside
	}
	for _, program := range a.cfg.Programs {
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			spec.Programs = append(spec.Programs, program)
		}
	}
	return folder, inside
}

// reopenSockets serves the tasks that ran when this daemon started, and removes the sockets that an
// earlier daemon left for other tasks.
func (a *Agent) reopenSockets() {
	if a.cfg.Sockets == nil {
		return
	}
	a.cfg.Sockets.RemoveOthers(func(served auth.Attempt) bool {
		t := a.tasks[reconcile.ID{Job: served.Job, Attempt: served.Number}]
		return t != nil && t.Phase < reconcile.Ended
	})
	for _, t := range a.tasks {
		a.reopenSocket(t)
	}
}

// reopenSocket serves a running task. A task without a specification is served once the controllers
// have sent its owner.
func (a *Agent) reopenSocket(t *task) {
	if a.cfg.Sockets == nil || t.Phase != reconcile.Started || t.spec == nil {
		return
	}
	if _, err := a.cfg.Sockets.Open(attemptOf(t.ID), t.spec.GetUid()); err != nil {
		a.log.Warn("commands inside a task will not work", "job", t.ID.Job, "attempt", t.ID.Attempt, "err", err)
	}
}

// closeSocket revokes the identity of a task on this node.
func (a *Agent) closeSocket(id reconcile.ID) {
	if a.cfg.Sockets != nil {
		a.cfg.Sockets.Close(attemptOf(id))
	}
}

// stopSockets leaves the sockets to the next daemon.
func (a *Agent) stopSockets() {
	if a.cfg.Sockets != nil {
		a.cfg.Sockets.Stop()
	}
}
