package leased

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPowerOffReason(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	usual := facts{now: now, expires: now.Add(time.Hour), idleLimit: 15 * time.Minute, active: now}
	for _, c := range []struct {
		what string
		edit func(*facts)
		want string
	}{
		{"nothing", func(*facts) {}, ""},
		{"a second before the end", func(f *facts) { f.expires = now.Add(time.Second) }, ""},
		{"the end", func(f *facts) { f.expires = now }, "the lease of the node ended at 2026-11-27 12:00:00 UTC"},
		{"after the end", func(f *facts) { f.expires = now.Add(-time.Hour) }, "the lease of the node ended at 2026-11-27 11:00:00 UTC"},
		{"almost idle", func(f *facts) { f.active = now.Add(time.Second - f.idleLimit) }, ""},
		{"idle", func(f *facts) { f.active = now.Add(-f.idleLimit) }, "the node had no task and no contact with a controller for 15m0s (lease_idle_limit)"},
		{"refused", func(f *facts) { f.ended = "refused" }, "refused"},
		{"the end first", func(f *facts) { f.expires, f.ended = now, "refused" }, "the lease of the node ended at 2026-11-27 12:00:00 UTC"},
	} {
		f := usual
		c.edit(&f)
		if got := f.powerOffReason(); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// node is a node with a fake clock.
type node struct {
	began, reached time.Time
	busyUntil      time.Duration // since began
	endless        bool          // its task does not end
	answers        bool          // controllers answer
	ended          string
	failures       int // of the program
	reason         string
	runs           []time.Duration // of the program, since began
}

// guard watches the node for a time.
func (n *node) guard(lasts, expires time.Duration) string {
	n.began = time.Now()
	n.reached = n.began
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	g := Guard{
		Expires: n.began.Add(expires), IdleLimit: 15 * time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Ask: func(context.Context) (Contact, bool) {
			if n.answers {
				n.reached = time.Now()
			}
			busy := time.Since(n.began) < n.busyUntil && (n.reason == "" || n.endless)
			return Contact{Reached: n.reached, Busy: busy, Ended: n.ended}, true
		},
		End: func(reason string) { n.reason = reason },
		PowerOff: func(context.Context) error {
			n.runs = append(n.runs, time.Since(n.began))
			if n.failures--; n.failures >= 0 {
				return errors.New("no permission")
			}
			return nil
		},
	}
	g.Watch(ctx)
	return log.String()
}

func TestGuardPowersOff(t *testing.T) {
	for _, c := range []struct {
		what   string
		node   node
		lasts  time.Duration
		reason string
		runs   []time.Duration
	}{
		{"in contact", node{answers: true}, 2 * time.Hour, "", nil},
		{"without contact but with a task", node{busyUntil: 10 * time.Hour}, 2 * time.Hour, "", nil},
		{"without contact", node{}, 16*time.Minute + time.Second/2, "no task and no contact", []time.Duration{15 * time.Minute, 16 * time.Minute}},
		{"without contact after a task", node{busyUntil: time.Hour}, 75*time.Minute + 30*time.Second, "no task and no contact", []time.Duration{75*time.Minute - time.Second}},
		{"the end of the lease", node{answers: true, busyUntil: 4 * time.Hour}, 3*time.Hour + 5*time.Second, "ended at", []time.Duration{3*time.Hour + time.Second}},
		{"a task that does not end", node{answers: true, busyUntil: 4 * time.Hour, endless: true}, 3*time.Hour + 40*time.Second, "ended at", []time.Duration{3*time.Hour + 30*time.Second}},
		{"refused", node{ended: "refused"}, 90 * time.Second, "refused", []time.Duration{0, time.Minute}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := c.node
			n.guard(c.lasts, 3*time.Hour)
			if (c.reason == "") != (n.reason == "") || !strings.Contains(n.reason, c.reason) || !slices.Equal(n.runs, c.runs) {
				t.Errorf("%s: reason %q, program run at %v, want %v", c.what, n.reason, n.runs, c.runs)
			}
		})
	}
}

func TestGuardRepeatsAFailedProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{failures: 2}
		log := n.guard(150*time.Second, 0)
		if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(n.runs, want) {
			t.Errorf("run at %v, want %v", n.runs, want)
		}
		if strings.Count(log, "cannot power the node off") != 2 || !strings.Contains(log, "no permission") || strings.Count(log, "powering off") != 1 {
			t.Errorf("logged:\n%s", log)
		}
	})
}
