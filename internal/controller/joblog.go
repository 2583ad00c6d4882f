package controller

import (
	"log/slog"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// jobLogSpacing is the pause between two batches of lines, in which the changes of a job become one.
	jobLogSpacing = time.Second
	// maxJobLines bounds the lines of one batch, below the 10,000 lines in 30 s at which journald drops.
	maxJobLines = 300
)

// logJobs writes one line to this controller's log for each job that was submitted, started, was
// requeued or ended, while it leads.
func (t *term) logJobs() {
	changed := t.replica.Subscribe()
	defer changed.Close()
	spacing := time.NewTicker(jobLogSpacing)
	defer spacing.Stop()
	for {
		select {
		case <-changed.C():
		case <-t.ctx.Done():
			return
		}
		changes, resync := changed.Take()
		logChanges(t.log, t.cfg.TraceID, changes, resync)
		select {
		case <-spacing.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// logChanges writes at most maxJobLines lines, and how many changes they leave out.
func logChanges(log *slog.Logger, traceID func(cluster.JobID) string, changes []state.Change, resync bool) {
	lines, omitted := 0, 0
	for i := range changes {
		message := jobEvent(changes[i].Old, changes[i].New)
		switch {
		case message == "":
		case lines == maxJobLines:
			omitted++
		default:
			lines++
			fields := jobFields(changes[i].New)
			if traceID != nil {
				fields = append(fields, "trace_id", traceID(changes[i].New.ID))
			}
			log.Info(message, fields...)
		}
	}
	if resync {
		log.Info("more jobs changed than the log shows", "more_than", maxChanges)
	} else if omitted > 0 {
		log.Info("more jobs changed than the log shows", "omitted", omitted)
	}
}

// jobEvent names what happened to a job; "" if none of the logged events did.
func jobEvent(before, now *cluster.Job) string {
	switch {
	case now == nil:
		return ""
	case now.State.Final() && (before == nil || !before.State.Final()):
		return "job ended"
	case before == nil:
		return "job submitted"
	case now.Attempt > before.Attempt && now.State == cluster.Running:
		return "job started"
	case now.Restarts > before.Restarts:
		return "job requeued"
	}
	return ""
}

// jobFields describes a job with the keys that all daemons use.
func jobFields(j *cluster.Job) []any {
	fields := []any{"job", j.ID, "attempt", j.Attempt, "user", j.Spec.Owner.User, "account", j.Spec.Account, "index", j.Version}
	if j.Array != 0 {
		fields = append(fields, "element", j.Ref().String())
	}
	if j.State.Final() {
		fields = append(fields, "outcome", j.State.String(), "exit_code", j.Exit.Code, "exit_signal", j.Exit.Signal)
	}
	if j.Reason != cluster.ReasonNone {
		fields = append(fields, "reason", j.Reason.String())
	}
	if j.Alloc != nil {
		names := make([]string, len(j.Alloc.Nodes))
		for i := range j.Alloc.Nodes {
			names[i] = j.Alloc.Nodes[i].Node
		}
		fields = append(fields, "node", hostlist.Compress(names))
	}
	return fields
}
