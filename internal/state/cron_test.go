package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// cron runs the verbs about recurring jobs: "set USER NAME SCHEDULE", an action with USER OWNER NAME...,
// "record OWNER NAME", and "list".
func (x *script) cron(w scriptLine) string {
	switch verb := w.plain[0]; verb {
	case "set":
		return x.apply(&command.SetCron{Request: request16(w), Actor: actor(w.plain[1]), Replace: w.has("replace"), Entry: command.CronEntry{
			Name: w.plain[2], Schedule: w.keys["schedule"], Zone: w.keys["zone"], Queue: w.has("queue"), Job: make([]byte, w.number("job", 1)),
		}})
	case "hold", "release", "remove":
		action := map[string]command.CronAction{"hold": command.HoldCron, "release": command.ReleaseCron, "remove": command.RemoveCron}
		return x.apply(&command.UpdateCron{Request: request16(w), Actor: actor(w.plain[1]), User: w.plain[2], Names: w.plain[3:], Action: action[verb]})
	case "record":
		version := uint64(w.number("version", 0))
		if e, known := x.s.View().Crontab().Get(w.plain[1], w.plain[2]); known && version == 0 {
			version = e.Version
		}
		return x.apply(&command.RecordCron{User: w.plain[1], Name: w.plain[2], Version: version, Checked: cluster.Instant(w.duration("checked")), Job: cluster.JobID(w.number("job", 0)), Error: w.keys["error"]})
	}
	var b strings.Builder
	for e := range x.s.View().Crontab().All() {
		fmt.Fprintf(&b, "%s/%s %q %s queue=%v held=%v checked=%s", e.Owner.User, e.Name, e.Schedule, e.Zone, e.Queue, e.Held, e.Checked.Sub(1))
		if e.Last > 0 {
			fmt.Fprintf(&b, " job=%d last=%s %s", e.LastJob, e.Last.Sub(1), e.Error)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TestSnapshotHasRecurringJobs checks that recurring jobs are part of a snapshot and of the digest.
func TestSnapshotHasRecurringJobs(t *testing.T) {
	x := newScript(t)
	without := x.s.Digest()
	for _, line := range []string{"cron set ann nightly schedule=@daily job=70000", "cron set bob nightly schedule=@hourly zone=Europe/Berlin queue", "cron record ann nightly checked=1h job=7", "cron hold bob bob nightly"} {
		if out := x.run(line); out != "" {
			t.Fatalf("%s: %s", line, out)
		}
	}
	if x.s.Digest() == without {
		t.Error("the digest does not cover recurring jobs")
	}
	got, err := decode(bytes.NewReader(encode(t, x.s)), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	again := &script{t: t, s: got}
	if before, after := x.run("cron list"), again.run("cron list"); before != after || got.Digest() != x.s.Digest() {
		t.Errorf("read from the snapshot:\n%s\nwritten:\n%s", after, before)
	}
}
