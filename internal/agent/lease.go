package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/leased"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/pkg/cluster"
)

// Lease is what a leased node does because it is leased.
type Lease struct {
	Instance  string        // the cloud's name of the node
	Expires   time.Time     // the node powers off then at the latest
	IdleLimit time.Duration // the node powers off without a task and without an answer of a controller for this time
	// PowerOff is the program with its arguments that powers the node off; nil: systemctl poweroff.
	PowerOff []string
	// Notices is the source of the cloud's notices; nil: none.
	Notices leased.Source
	// Block keeps users from the metadata service of the cloud; nil: they may use it.
	Block func(context.Context) error
	// WorkDir is the parent of the working directories of jobs whose own do not exist on the node; "": they have none.
	WorkDir string
	// Ended reports whether the error of a registration says that the lease has ended.
	Ended func(error) bool
}

const (
	// poweringOff begins the reason of tasks that the node ended because it powers off.
	poweringOff = "the node powers off: "
	// powerOffLimit is how long one run of the program may take.
	powerOffLimit = 50 * time.Second

	// blockInterval is the interval at which the metadata service is blocked again: other programs may remove the rules.
	blockInterval = time.Minute
	// blockLimit is how long that may take.
	blockLimit = 15 * time.Second

	// causeRebalance is the cause of the condition of a node that the cloud expects to take back.
	causeRebalance = "rebalance"
	// reclaimFile in StateDir contains the boot and the deadline of the first notice, for the next daemon.
	reclaimFile = "reclaim"
)

// watchLease powers a leased node off.
func (a *Agent) watchLease(ctx context.Context) {
	l := a.cfg.Lease
	if l == nil {
		return
	}
	g := leased.Guard{
		Expires: l.Expires, IdleLimit: l.IdleLimit, Log: a.log,
		Ask: func(ctx context.Context) (c leased.Contact, ok bool) {
			c.Reached = a.began.Add(time.Duration(a.reachedAt.Load()))
			err := a.ask(ctx, func() { c.Busy, c.Ended = !a.isIdle(), a.leaseEnded })
			return c, err == nil
		},
		End: func(reason string) { a.post(func() { a.endForPowerOff(reason) }) },
		PowerOff: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), powerOffLimit) // the daemon can end before it
			defer cancel()
			_, err := leased.Run(ctx, l.PowerOff, "")
			return err
		},
	}
	g.Watch(ctx)
}

// endForPowerOff marks all tasks to be killed, and takes no more. It runs in the loop.
func (a *Agent) endForPowerOff(reason string) {
	a.setFault("lease", poweringOff+reason)
	for _, t := range a.tasks {
		if t.Phase >= reconcile.Ended || t.Doomed != "" {
			continue
		}
		t.Doomed = poweringOff + reason
		a.dirty[t.ID] = true
		a.log.Error("killing task: the node powers off", "job", t.ID.Job, "attempt", t.ID.Attempt, "reason", reason)
	}
}

// checkLeaseEnded takes the error of a registration.
func (a *Agent) checkLeaseEnded(err error) {
	if l := a.cfg.Lease; l != nil && l.Ended != nil && l.Ended(err) {
		a.post(func() { a.leaseEnded = "the controllers refuse the node: " + err.Error() })
	}
}

// watchNotices reads the notices of the cloud.
func (a *Agent) watchNotices(ctx context.Context) {
	if l := a.cfg.Lease; l != nil && l.Notices != nil {
		leased.WatchNotices(ctx, l.Notices, a.log, func(n leased.Notice) { a.post(func() { a.applyNotice(n) }) })
	}
}

// applyNotice takes what the cloud says now. The first deadline counts: that of some sources moves with every answer. It
// runs in the loop.
func (a *Agent) applyNotice(n leased.Notice) {
	switch {
	case n.Rebalance:
		a.setCondition(causeRebalance, cluster.Condition{Effect: cluster.Drains, Message: "the cloud is likely to reclaim the node (rebalance recommendation)"})
	case a.reclaim == 0:
		a.setCondition(causeRebalance, cluster.Condition{})
	}
	if n.Reclaim.IsZero() || a.reclaim != 0 {
		return
	}
	a.reclaim = cluster.InstantOf(n.Reclaim)
	a.log.Warn("reclaim notice: the instance ends", "at", n.Reclaim)
	nudge(a.reports)
	text := a.boot() + " " + strconv.FormatInt(int64(a.reclaim), 10)
	if err := os.WriteFile(filepath.Join(a.cfg.StateDir, reclaimFile), []byte(text), 0o600); err != nil {
		a.log.Warn("cannot store the reclaim notice: a restart of gnoded loses it", "err", err)
	}
}

// loadReclaim reads the deadline that an earlier daemon of this boot has seen.
func (a *Agent) loadReclaim() {
	if a.cfg.Lease == nil {
		return
	}
	text := firstBytes(filepath.Join(a.cfg.StateDir, reclaimFile), maxHookOutput)
	boot, at, _ := strings.Cut(text, " ")
	if n, err := strconv.ParseInt(at, 10, 64); err == nil && boot == a.boot() {
		a.reclaim = cluster.Instant(n)
	}
}

// watchBlock keeps users from the metadata service.
func (a *Agent) watchBlock(ctx context.Context) {
	if l := a.cfg.Lease; l == nil || l.Block == nil {
		return
	}
	ticker := time.NewTicker(blockInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := a.blockMetadata(ctx)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.applyBlock(err) })
	}
}

// blockMetadata keeps users from the metadata service, if the node is to.
func (a *Agent) blockMetadata(ctx context.Context) error {
	l := a.cfg.Lease
	if l == nil || l.Block == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, blockLimit)
	defer cancel()
	return l.Block(ctx)
}

// applyBlock takes the result: a node whose jobs could read the credentials of the instance takes none. It runs before
// the loop, or posted to it.
func (a *Agent) applyBlock(err error) {
	if err == nil {
		a.setFault("metadata", "")
		return
	}
	a.setFault("metadata", fmt.Sprint(err))
}
