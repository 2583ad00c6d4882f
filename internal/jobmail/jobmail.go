// Package jobmail derives from a job's record the events that its user is notified of.
//
// It reads only records, so that a new leader finds the same events as the last one. It never
// decides how or to whom a notification is sent.
package jobmail

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Event is one event of a job.
type Event struct {
	Type    cluster.MailTypes // one of the types
	At      cluster.Instant
	Attempt cluster.Attempt
	Outcome cluster.JobState // of the attempt, where it ended
	Detail  string           // why it ended; of a warning, what is wrong; "" for other events

	Exit  cluster.Exit  // of a job that ended
	Ran   time.Duration // run time of the attempt until then; 0 where it is unknown
	Nodes string        // host list of the attempt's nodes; "" where they are unknown
}

// collector collects the events of one job.
type collector struct {
	types    cluster.MailTypes
	from, to cluster.Instant
	events   []Event
}

func (c *collector) add(e Event) {
	if c.types&e.Type != 0 && e.At > c.from && e.At <= c.to {
		c.events = append(c.events, e)
	}
}

// Of returns the events that a job's user asked for, after from and up to to, oldest first.
// O(attempts + notes).
func Of(j *cluster.Job, from, to cluster.Instant) []Event {
	c := &collector{types: j.Spec.MailTypes, from: from, to: to}
	for i := range j.Attempts {
		a := &j.Attempts[i]
		c.run(j, a.Attempt, a.Started, a.Ended)
		c.add(Event{Type: cluster.MailRequeue, At: a.Ended, Attempt: a.Attempt, Outcome: a.Outcome, Detail: a.Detail, Ran: ranFor(a.Started, a.Ended)})
	}
	if a := j.Activity.Value(); a.Warns != 0 {
		c.add(Event{Type: cluster.MailWarning, At: a.NoticedAt, Attempt: j.Attempt, Detail: warningOf(j, to)})
	}
	completing := j.State == cluster.Completing
	over := j.State.Final() || completing && !j.Returns
	if j.Started > 0 && j.State != cluster.Pending {
		end := to
		if over || completing {
			end = j.Ended
		}
		c.run(j, j.Attempt, j.Started, end)
	}
	outcome := j.State
	if completing {
		outcome = j.Outcome
	}
	ended := Event{At: j.Ended, Attempt: j.Attempt, Outcome: outcome, Detail: j.Detail, Exit: j.Exit, Ran: ranFor(j.Started, j.Ended), Nodes: nodesOf(j)}
	switch {
	case over:
		if outcome == cluster.TimedOut && j.Reason != cluster.ReasonInactiveLimit {
			limit := ended
			limit.Type, limit.Detail = cluster.MailTimeLimit, ""
			c.add(limit)
		}
		ended.Type = cluster.MailEnd
		c.end(ended)
	case completing:
		ended.Type = cluster.MailRequeue
		c.add(ended)
	}
	for _, n := range j.History {
		if n.Reason == cluster.ReasonDependencyNeverSatisfied {
			c.add(Event{Type: cluster.MailInvalidDepend, At: n.At})
		}
	}
	slices.SortStableFunc(c.events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return c.events
}

// ranFor returns the run time of an attempt; 0 if it did not start.
func ranFor(started, ended cluster.Instant) time.Duration {
	if started == 0 || ended < started {
		return 0
	}
	return ended.Sub(started)
}

// nodesOf returns the host list of a job's nodes; "" for none.
func nodesOf(j *cluster.Job) string {
	if j.Alloc == nil {
		return ""
	}
	names := make([]string, len(j.Alloc.Nodes))
	for i := range j.Alloc.Nodes {
		names[i] = j.Alloc.Nodes[i].Node
	}
	return hostlist.Compress(names)
}

// warningOf returns the text of the warnings about a job; "" without any.
func warningOf(j *cluster.Job, now cluster.Instant) string {
	text, idle := j.Warning(), j.Activity.Value().Idle
	if text == "" || idle.GPUs == 0 {
		return text
	}
	return text + "; idle so far: " + accounting.IdleText(&idle, now)
}

// run adds the start of an attempt, and the parts of the time limit that it has used.
func (c *collector) run(j *cluster.Job, attempt cluster.Attempt, started, end cluster.Instant) {
	c.add(Event{Type: cluster.MailBegin, At: started, Attempt: attempt})
	if j.Spec.TimeLimit == 0 {
		return
	}
	for _, part := range [...]struct {
		percent time.Duration
		is      cluster.MailTypes
	}{{50, cluster.MailTimeLimit50}, {80, cluster.MailTimeLimit80}, {90, cluster.MailTimeLimit90}} {
		if at := started.Add(j.Spec.TimeLimit / 100 * part.percent); at <= end {
			c.add(Event{Type: part.is, At: at, Attempt: attempt})
		}
	}
}

// end adds the end of a job as sbatch reports it: a failure as such where the user asked for
// failures, else as an end.
func (c *collector) end(e Event) {
	if e.Failed() && c.types&cluster.MailFail != 0 {
		e.Type = cluster.MailFail
	}
	c.add(e)
}

// Failed reports whether the attempt ended otherwise than by itself or by its user.
func (e Event) Failed() bool {
	return e.Outcome.Final() && e.Outcome != cluster.Completed && e.Outcome != cluster.Cancelled
}

// Text describes the event of what, a job or an array, in one line.
func (e Event) Text(what string) string {
	text := e.brief(what)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// ending describes the outcome of an attempt with its exit status, run time and nodes.
func (e Event) ending() string {
	text := e.Outcome.String()
	if status := e.status(); status != "" {
		text += ", " + status
	}
	if e.Ran > 0 {
		text += ", run time " + cluster.FormatElapsed(e.Ran)
	}
	if e.Nodes != "" {
		text += " on " + e.Nodes
	}
	return text
}

// status describes the exit status or the signal of a job that did not succeed; "" for others.
func (e Event) status() string {
	switch {
	case e.Exit.Signal != 0:
		return fmt.Sprintf("signal %d (%s)", e.Exit.Signal, cluster.SignalName(e.Exit.Signal))
	case e.Exit.Code != 0:
		return fmt.Sprintf("exit status %d", e.Exit.Code)
	}
	return ""
}

// Sentences describes the event of a job or an array with this ID for the text of a mail.
func (e Event) Sentences(spec *cluster.JobSpec, id string) string {
	var lines []string
	if e.Outcome != 0 && e.Ran > 0 {
		line := fmt.Sprintf("Attempt %d ran for %s", e.Attempt, cluster.FormatElapsed(e.Ran))
		if e.Nodes != "" {
			line += " on " + e.Nodes
		}
		if status := e.status(); status != "" {
			line += ", and ended with " + status
		}
		lines = append(lines, line+".")
	}
	if limit := spec.TimeLimit; limit > 0 {
		lines = append(lines, "The time limit of an attempt is "+cluster.FormatLimit(limit)+".")
	} else {
		lines = append(lines, "The job has no time limit.")
	}
	lines = append(lines, fmt.Sprintf("User: %s. Time: %s.", spec.Owner.User, e.At.Time().UTC().Format(time.RFC3339)),
		fmt.Sprintf("Details: gctl show job %s. Output: gctl logs %s.", id, id))
	return strings.Join(lines, "\n")
}

// brief describes the event without the reason of an end.
func (e Event) brief(what string) string {
	switch e.Type {
	case cluster.MailBegin:
		return what + " started"
	case cluster.MailEnd:
		return fmt.Sprintf("%s ended: %s", what, e.ending())
	case cluster.MailFail:
		return fmt.Sprintf("%s failed: %s", what, e.ending())
	case cluster.MailRequeue:
		return fmt.Sprintf("%s was requeued: attempt %d ended %s", what, e.Attempt, e.ending())
	case cluster.MailInvalidDepend:
		return what + " cannot start: its dependency can never be satisfied"
	case cluster.MailWarning:
		return what + " has a warning"
	case cluster.MailTimeLimit:
		return what + " reached its time limit"
	case cluster.MailTimeLimit90:
		return what + " has used 90 % of its time limit"
	case cluster.MailTimeLimit80:
		return what + " has used 80 % of its time limit"
	case cluster.MailTimeLimit50:
		return what + " has used 50 % of its time limit"
	}
	return what
}
