package gctld

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	commands "github.com/greylag/greylag/internal/command"
	alerts "github.com/greylag/greylag/internal/report"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestNoticesAreRetriedInOrder fails deliveries, which are repeated with growing pauses, and gives up
// on one after the last try.
func TestNoticesAreRetriedInOrder(t *testing.T) {
	now, refuse := time.Unix(1000, 0), 2
	var sent []string
	m := &jobMail{clock: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	m.send = func(_ context.Context, to string, a alerts.Alert) error {
		if refuse > 0 {
			refuse--
			return errors.New("relay away")
		}
		sent = append(sent, to+" "+a.ID)
		return nil
	}
	for i := range 3 {
		m.add(notice{to: "ada@example.org", due: now, alert: alerts.Alert{ID: fmt.Sprint(i)}})
	}
	m.deliver(t.Context()) // fails at the first one
	m.deliver(t.Context()) // fails at the second one
	m.deliver(t.Context())
	if fmt.Sprint(sent) != "[ada@example.org 2]" || len(m.queue) != 2 {
		t.Errorf("sent %v, %d wait", sent, len(m.queue))
	}
	now = now.Add(mailSpacing)
	m.deliver(t.Context())
	if fmt.Sprint(sent) != "[ada@example.org 2 ada@example.org 0 ada@example.org 1]" || len(m.queue) != 0 {
		t.Errorf("sent %v, %d wait", sent, len(m.queue))
	}
	refuse = 1000
	m.add(notice{due: now})
	for range 2 * mailTries {
		m.deliver(t.Context())
		now = now.Add(mailSpacing << mailTries)
	}
	if len(m.queue) != 0 || refuse != 1000-mailTries {
		t.Errorf("%d wait after %d tries", len(m.queue), 1000-refuse)
	}
	for range maxNotices + 5 {
		m.add(notice{due: now})
	}
	if len(m.queue) != maxNotices {
		t.Errorf("%d wait", len(m.queue))
	}
}

// TestArrayIsNotifiedOfOnce cancels the elements of two arrays one by one: the array as a whole ends
// with the last of them, also after a new leader began in between; with ARRAY_TASKS each one counts.
func TestArrayIsNotifiedOfOnce(t *testing.T) {
	s, now := state.New(), cluster.Instant(time.Hour)
	root := commands.Actor{Identity: cluster.Identity{User: "root"}, Role: commands.RoleAdmin}
	index := uint64(0)
	apply := func(c commands.Command) commands.Result {
		index++
		now = now.Add(time.Minute)
		r := s.Apply(index, now, c)
		s.Effects()
		return r
	}
	apply(&commands.Init{ClusterID: "c", Policy: cluster.DefaultPolicy()})
	script := []byte("#!/bin/sh\n")
	for _, types := range []cluster.MailTypes{cluster.MailEnd, cluster.MailEnd | cluster.MailArrayTasks} {
		spec := cluster.JobSpec{Name: "sweep", Owner: root.Identity, Script: sha256.Sum256(script), MailTypes: types, MailUser: "ada"}
		answer := apply(&commands.SubmitJobs{Actor: root, Jobs: []commands.Submission{{Spec: spec, Array: []commands.IndexRange{{First: 0, Last: 2, Step: 1}}}}, Blobs: [][]byte{script}})
		done, ok := answer.(*commands.Submitted)
		if !ok {
			t.Fatalf("%+v", answer)
		}
		var got []string
		m := &jobMail{domain: "example.org", clock: time.Now, arrays: map[cluster.JobID]cluster.MailTypes{}}
		for i := range int32(3) {
			last := now
			apply(&commands.CancelJobs{Actor: root, Jobs: []cluster.JobRef{{ID: done.First[0], Index: i}}})
			m.collect(s.View(), last, now, func(n notice) { got = append(got, n.to+" "+n.alert.Text) })
		}
		want := "[ada@example.org array 1 (sweep) ended: CANCELLED]"
		if types&cluster.MailArrayTasks != 0 {
			want = "[ada@example.org job 4_0 (sweep) ended: CANCELLED: cancelled by root ada@example.org job 4_1 (sweep) ended: CANCELLED: cancelled by root ada@example.org job 4_2 (sweep) ended: CANCELLED: cancelled by root]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", types, got, want)
		}
		later := &jobMail{domain: "example.org", clock: time.Now, arrays: map[cluster.JobID]cluster.MailTypes{}}
		later.collect(s.View(), 0, now, func(notice) {})
		later.seq = 0
		later.collect(s.View(), now, now.Add(time.Hour), func(n notice) { t.Errorf("a new leader sends %s again", n.alert.Text) })
	}
}
