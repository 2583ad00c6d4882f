package leased

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	// guardInterval is the interval of the checks, and powerOffInterval that of the runs of the program.
	guardInterval, powerOffInterval = time.Second, time.Minute
	// endTime is how long tasks may take to end before the program runs.
	endTime = 30 * time.Second
)

// Contact is what the agent knows when it is asked.
type Contact struct {
	Reached time.Time // when the last call was sent that a controller answered; else when the daemon began
	Busy    bool      // a task is on the node
	Ended   string    // why the controllers refuse the node: its lease has ended; else ""
}

// facts decide whether the node powers off.
type facts struct {
	now, expires time.Time
	idleLimit    time.Duration
	// active is when the node last had a task or an answer of a controller.
	active time.Time
	ended  string
}

// powerOffReason returns why the node powers off now; "" if it does not.
func (f *facts) powerOffReason() string {
	switch {
	case !f.now.Before(f.expires):
		return "the lease of the node ended at " + f.expires.UTC().Format("2006-01-02 15:04:05") + " UTC"
	case f.ended != "":
		return f.ended
	case f.now.Sub(f.active) >= f.idleLimit:
		return fmt.Sprintf("the node had no task and no contact with a controller for %s (lease_idle_limit)", f.idleLimit)
	}
	return ""
}

// Guard powers a leased node off. All fields must be set.
type Guard struct {
	Expires   time.Time
	IdleLimit time.Duration
	// Ask returns false when the daemon ends.
	Ask func(context.Context) (Contact, bool)
	// End ends all tasks, and keeps new ones away, for a reason. It does not wait for the tasks.
	End func(reason string)
	// PowerOff runs the program.
	PowerOff func(context.Context) error
	Log      *slog.Logger
}

// Watch checks the node until ctx ends. Once there is a reason to power off, it ends the tasks, waits for them for
// endTime, and runs the program every minute until the node is off.
func (g *Guard) Watch(ctx context.Context) {
	ticker := time.NewTicker(guardInterval)
	defer ticker.Stop()
	var active, since, ran time.Time
	var reason string
	for {
		contact, ok := g.Ask(ctx)
		if !ok {
			return
		}
		now := time.Now()
		if contact.Busy {
			active = now
		}
		if contact.Reached.After(active) {
			active = contact.Reached
		}
		if reason == "" {
			f := facts{now: now, expires: g.Expires, idleLimit: g.IdleLimit, active: active, ended: contact.Ended}
			if reason = f.powerOffReason(); reason != "" {
				since = now
				g.Log.Warn("powering off", "reason", reason)
			}
		}
		if reason != "" {
			g.End(reason) // again: tasks may have come meanwhile
			if (!contact.Busy || now.Sub(since) >= endTime) && (ran.IsZero() || now.Sub(ran) >= powerOffInterval) {
				ran = now
				if err := g.PowerOff(ctx); err != nil && ctx.Err() == nil {
					g.Log.Error("cannot power the node off", "err", err, "retry_in", powerOffInterval)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// outputOf returns the output of a program for a message.
func outputOf(text []byte) string {
	const most = 200
	line := strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " ")
	return line[:min(len(line), most)]
}
