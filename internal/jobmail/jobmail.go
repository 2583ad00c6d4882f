// Package jobmail derives from a job's record the events that its user is notified of.
//
// It reads only records, so that a new leader finds the same events as the last one. It never
// decides how or to whom a notification is sent.
package jobmail

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
		c.add(Event{cluster.MailRequeue, a.Ended, a.Attempt, a.Outcome, a.Detail})
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
	switch {
	case over:
		if outcome == cluster.TimedOut && j.Reason != cluster.ReasonInactiveLimit {
			c.add(Event{cluster.MailTimeLimit, j.Ended, j.Attempt, outcome, ""})
		}
		c.end(Event{cluster.MailEnd, j.Ended, j.Attempt, outcome, j.Detail})
	case completing:
		c.add(Event{cluster.MailRequeue, j.Ended, j.Attempt, outcome, j.Detail})
	}
	for _, n := range j.History {
		if n.Reason == cluster.ReasonDependencyNeverSatisfied {
			c.add(Event{Type: cluster.MailInvalidDepend, At: n.At})
		}
	}
	slices.SortStableFunc(c.events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return c.events
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

// brief describes the event without the reason of an end.
func (e Event) brief(what string) string {
	switch e.Type {
	case cluster.MailBegin:
		return what + " started"
	case cluster.MailEnd:
		return fmt.Sprintf("%s ended: %s", what, e.Outcome)
	case cluster.MailFail:
		return fmt.Sprintf("%s failed: %s", what, e.Outcome)
	case cluster.MailRequeue:
		return fmt.Sprintf("%s was requeued: attempt %d ended %s", what, e.Attempt, e.Outcome)
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
