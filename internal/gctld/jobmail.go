package gctld

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/jobmail"
	alerts "github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/report/deliver"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// mailSpacing is the interval in which events of jobs are collected, and the first pause after a
	// failed delivery.
	mailSpacing = 5 * time.Second
	// mailOverlap is how far back a new leader begins: what the last one did not send any more. Events
	// of this time may be sent twice, with the same identifier.
	mailOverlap = 2 * mailSpacing
	mailTries   = 9      // of one delivery, with doubling pauses: 40 minutes
	maxNotices  = 10_000 // that wait for delivery
	maxArrays   = 10_000 // whose events are remembered after their end
)

// jobMail notifies users of events of their jobs while this controller leads.
type jobMail struct {
	view    func() *state.View
	leading func() (context.Context, bool)
	send    func(ctx context.Context, to string, a alerts.Alert) error // nil: nothing is sent
	domain  string
	clock   func() time.Time
	log     *slog.Logger

	queue  []notice
	arrays map[cluster.JobID]cluster.MailTypes // events that arrays as a whole had
	seq    uint64                              // of the last finished job that was seen
	full   bool                                // notices were dropped since the queue was full
}

// notice is one notification that is not delivered yet.
type notice struct {
	to    string
	alert alerts.Alert
	due   time.Time
	tries int
}

// newJobMail returns what sends over the configured channels.
func (d *Daemon) newJobMail() *jobMail {
	m := &jobMail{view: d.store.replica.View, leading: d.loops.Leading, domain: d.cfg.Mail.Domain, clock: clock, log: d.log}
	if d.cfg.Mail.Enabled() {
		m.send = mailChannel(d.cfg.Mail, d.trust.ClusterID(), d.log)
	}
	return m
}

// mailChannel returns a function that sends by mail, by webhook, or by both.
func mailChannel(cfg config.Mail, clusterID string, log *slog.Logger) func(context.Context, string, alerts.Alert) error {
	var key []byte
	if cfg.WebhookKeyFile != "" {
		var err error
		if key, err = os.ReadFile(cfg.WebhookKeyFile); err != nil {
			log.Error("job notifications are not signed", "err", err)
		}
	}
	return func(ctx context.Context, to string, a alerts.Alert) error {
		if cfg.Webhook != "" {
			w := &deliver.Webhook{URL: cfg.Webhook, Key: []byte(strings.TrimSpace(string(key))), Clock: clock}
			if err := w.Send(ctx, a); err != nil {
				return err
			}
		}
		if cfg.SMTP == "" && cfg.Sendmail == "" {
			return nil
		}
		m := &deliver.Mail{Cluster: clusterID, From: cfg.From, To: []string{to}, Relay: cfg.SMTP, Sendmail: cfg.Sendmail, Clock: clock}
		return m.Send(ctx, a)
	}
}

// run sends until ctx ends. Without a channel it returns at once.
func (m *jobMail) run(ctx context.Context) {
	if m.send == nil {
		return
	}
	ticker := time.NewTicker(mailSpacing)
	defer ticker.Stop()
	for {
		if term, leads := m.leading(); leads {
			m.follow(ctx, term, ticker.C)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// follow sends the events from shortly before a term on, until the term ends.
func (m *jobMail) follow(ctx, term context.Context, tick <-chan time.Time) {
	v := m.view()
	last := v.Now().Add(-mailOverlap)
	m.queue, m.arrays, m.seq = nil, map[cluster.JobID]cluster.MailTypes{}, 0
	m.collect(v, 0, last, func(notice) {}) // which events arrays had before
	m.seq = 0
	for ctx.Err() == nil && term.Err() == nil {
		v := m.view()
		m.collect(v, last, v.Now(), m.add)
		last = v.Now()
		m.deliver(ctx)
		select {
		case <-ctx.Done():
		case <-term.Done():
		case <-tick:
		}
	}
}

// collect calls add for the events after from and up to to. O(active jobs).
func (m *jobMail) collect(v *state.View, from, to cluster.Instant, add func(notice)) {
	one := func(j *cluster.Job) {
		if j.Spec.MailTypes == 0 {
			return
		}
		for _, e := range jobmail.Of(j, from, to) {
			m.event(v, j, e, add)
		}
	}
	for j := range v.Active() {
		one(j)
	}
	for f := range v.Tail(m.seq) {
		one(f.Job)
	}
	m.seq = v.FinishedSeq()
	for array := range m.arrays {
		if len(m.arrays) <= maxArrays {
			break
		}
		if !runsOn(v, array) {
			delete(m.arrays, array)
		}
	}
}

// event calls add for one event. Events of the elements of an array count once for the array,
// unless the user asked for them, and its end is that of the last element.
func (m *jobMail) event(v *state.View, j *cluster.Job, e jobmail.Event, add func(notice)) {
	if j.Array == 0 || j.Spec.MailTypes&cluster.MailArrayTasks != 0 {
		add(m.notice(j, j.ID, "job "+j.Ref().String(), e))
		return
	}
	once := func(e jobmail.Event, what string) {
		if m.arrays[j.Array]&e.Type == 0 {
			m.arrays[j.Array] |= e.Type
			add(m.notice(j, j.Array, what, e))
		}
	}
	array := "array " + j.Array.String()
	switch e.Type {
	case cluster.MailBegin:
		once(e, array)
	case cluster.MailEnd, cluster.MailFail:
		if e.Type == cluster.MailFail {
			once(e, "element "+j.Ref().String())
		}
		if e.Type = cluster.MailEnd; j.Spec.MailTypes&e.Type != 0 && !runsOn(v, j.Array) {
			e.Detail, e.Exit, e.Ran, e.Nodes = "", cluster.Exit{}, 0, "" // of one element
			once(e, array)
		}
	default:
		once(e, "element "+j.Ref().String())
	}
}

// runsOn reports whether an element of an array has not ended. O(elements that are being cleaned up).
func runsOn(v *state.View, array cluster.JobID) bool {
	for j := range v.Jobs(array - 1) {
		if j.Array != array {
			return false
		}
		if j.State != cluster.Completing || j.Returns {
			return true
		}
	}
	return false
}

// notice returns the notification of an event.
func (m *jobMail) notice(j *cluster.Job, id cluster.JobID, what string, e jobmail.Event) notice {
	to := cmp.Or(j.Spec.MailUser, j.Spec.Owner.User)
	if m.domain != "" && !strings.Contains(to, "@") {
		to += "@" + m.domain
	}
	if j.Spec.Name != "" {
		what += " (" + j.Spec.Name + ")"
	}
	ran := ""
	if j.Started > 0 && e.At >= j.Started {
		ran = cluster.FormatElapsed(e.At.Sub(j.Started))
	}
	return notice{to: to, due: m.clock(), alert: alerts.Alert{
		ID: fmt.Sprintf("job %d attempt %d %s", id, e.Attempt, e.Type), Rule: "job." + strings.ToLower(e.Type.String()), Scope: j.Spec.Owner.User,
		Period: e.At.Time().UTC().Format(time.RFC3339), Value: ran, Limit: cluster.FormatLimit(j.Spec.TimeLimit), Text: e.Text(what),
		Body: e.Sentences(j.Spec, id.String()),
	}}
}

// add queues a notification.
func (m *jobMail) add(n notice) {
	if len(m.queue) < maxNotices {
		m.queue = append(m.queue, n)
		return
	}
	if !m.full {
		m.log.Warn("notifications of jobs are dropped", "waiting", len(m.queue))
	}
	m.full = true
}

// deliver sends what is due. The first failure ends it: others probably fail too.
func (m *jobMail) deliver(ctx context.Context) {
	now, failed := m.clock(), false
	var left []notice
	for _, n := range m.queue {
		if failed || n.due.After(now) {
			left = append(left, n)
			continue
		}
		err := m.send(ctx, n.to, n.alert)
		if err == nil {
			continue
		}
		failed = true
		n.due = m.clock().Add(mailSpacing << n.tries)
		if n.tries++; n.tries == mailTries {
			m.log.Warn("cannot notify a user", "id", n.alert.ID, "err", err)
			continue
		}
		left = append(left, n)
	}
	m.queue, m.full = left, m.full && len(left) >= maxNotices
}
