package controller

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// tickSpacing is how often time passes at most: limits are in seconds.
const tickSpacing = time.Second

// formCheckSpacing is how often the members are asked whether all of them know a newer form of
// the journal.
const formCheckSpacing = 10 * time.Second

// ticks lets time pass in the state whenever something falls due, and only then.
func (t *term) ticks() {
	changed := t.replica.hub.subscribe("", func(c *state.Change) bool { return c.Kind != state.NodeChanged })
	defer changed.Close()
	var last time.Time
	for {
		view, now := t.replica.View(), time.Now()
		// Clocks may jump: an hour is the longest that one is believed.
		wait := min(view.NextDue().Sub(max(cluster.InstantOf(t.cfg.Clock()), view.Now())), time.Hour)
		if wait = max(wait, last.Add(tickSpacing).Sub(now)); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-changed.C():
				timer.Stop()
			case <-t.ctx.Done():
				timer.Stop()
				return
			}
			continue
		}
		last = now
		if _, _, err := t.Propose(t.ctx, &command.Tick{}); err != nil && !t.pause(tickSpacing, "tick", err) {
			return
		}
	}
}

// renew proposes the newest form of the journal of credits as soon as every member knows it:
// members of an older version would write another journal. It runs in parallel to the ticks,
// since each question waits for a member that is away.
func (t *term) renew() {
	for t.replica.View().Credits().Format() < t.replica.newest {
		wait := formCheckSpacing
		if t.cfg.Log.AllCompatible(t.ctx) {
			_, _, err := t.Propose(t.ctx, &command.Tick{Form: t.replica.newest})
			if err == nil {
				return
			}
			if !t.pause(tickSpacing, "journal format", err) {
				return
			}
			wait = 0
		}
		select {
		case <-time.After(wait):
		case <-t.ctx.Done():
			return
		}
	}
}
