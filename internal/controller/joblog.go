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
	changed := t.replica.hub.add(&Subscription{omit: unlogged})
	defer changed.Close()
	traceID := t.cfg.TraceID
	if traceID == nil {
		traceID = func(cluster.JobID) string { return "" }
	}
	flush := func() {
		changes, resync := changed.Take()
		logChanges(t.log, traceID, changes, resync)
	}
	defer flush()
	spacing := time.NewTicker(jobLogSpacing)
	defer spacing.Stop()
	for {
		select {
		case <-changed.C():
		case <-t.ctx.Done():
			return
		}
		flush()
		select {
		case <-spacing.C:
		case <-t.ctx.Done():
			return
		}
	}
}

// unlogged reports whether the log shows nothing of a change. Of the elements of an array that have not
// started, which can be a million, it shows only the first, whose ID is the array's.
func unlogged(c *state.Change) bool {
	return c.Kind != state.JobChanged || c.New != nil && c.New.Attempt == 0 && c.New.Array != 0 && c.New.ID != c.New.Array
}

// logChanges writes at most maxJobLines lines, and how many changes they leave out.
func logChanges(log *slog.Logger, traceID func(cluster.JobID) string, changes []state.Change, resync bool) {
	lines, omitted := 0, 0
	for i := range changes {
		for _, message := range jobEvents(changes[i].Old, changes[i].New) {
			if lines == maxJobLines {
				omitted++
				continue
			}
			lines++
			fields := jobFields(message, changes[i].New)
			if trace := traceID(changes[i].New.ID); trace != "" {
				fields = append(fields, "trace_id", trace)
			}
			log.Info(message, fields...)
		}
	}
	if resync {
		log.Info("job events omitted", "more_than", maxChanges)
	} else if omitted > 0 {
		log.Info("job events omitted", "count", omitted)
	}
}

// The events of a job in the log.
const (
	jobSubmitted = "job submitted"
	jobStarted   = "job started"
	jobResized   = "job resized"
	jobRequeued  = "job requeued"
	jobEnded     = "job ended"
)

// jobEvents names what happened to a job between two of its values, in order. Several attempts of one
// batch are one start.
func jobEvents(before, now *cluster.Job) (events []string) {
	if now == nil {
		return nil
	}
	if before == nil {
		events = append(events, jobSubmitted)
		before = &cluster.Job{}
	}
	if now.Restarts > before.Restarts {
		events = append(events, jobRequeued)
	}
	if now.Attempt > before.Attempt && now.State != cluster.Pending {
		events = append(events, jobStarted)
	}
	if now.Attempt == before.Attempt && now.Members != nil && before.Members != nil && now.Members.Epoch != before.Members.Epoch {
		events = append(events, jobResized)
	}
	if now.State.Final() && !before.State.Final() {
		events = append(events, jobEnded)
	}
	return events
}

// jobFields describes a job at an event, with the keys that all daemons use.
func jobFields(event string, j *cluster.Job) []any {
	fields := []any{"job", j.ID, "user", j.Spec.Owner.User, "account", j.Spec.Account, "index", j.Version}
	if j.Array != 0 {
		fields = append(fields, "element", j.Ref().String())
	}
	if event == jobSubmitted {
		return fields
	}
	fields = append(fields, "attempt", j.Attempt)
	if event == jobEnded {
		fields = append(fields, "outcome", j.State.String(), "exit_code", j.Exit.Code, "exit_signal", j.Exit.Signal)
	}
	if j.Reason != cluster.ReasonNone && event != jobStarted {
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
