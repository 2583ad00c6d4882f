package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/leased"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// reclaimAt returns the deadline in the newest report; zero without one.
func (n *node) reclaimAt() time.Time {
	if len(n.reports) == 0 || n.reports[len(n.reports)-1].GetReclaimAt() == nil {
		return time.Time{}
	}
	return n.reports[len(n.reports)-1].GetReclaimAt().AsTime()
}

// TestReclaimIsReportedBeforeSignals: the first deadline of a source whose time moves is reported at once, before the task
// gets any signal, and does not change, also after a restart of the daemon.
func TestReclaimIsReportedBeforeSignals(t *testing.T) {
	t.Parallel()
	var notice atomic.Int32 // 1: rebalance, 2: reclaim
	var asked atomic.Int32  // since the reclaim
	n := newNode(t, "process", func(n *node) {
		n.cfg.Report = time.Hour // reports only come with changes
		n.cfg.Lease = &Lease{Expires: time.Now().Add(time.Hour), IdleLimit: time.Hour, PowerOff: []string{"/bin/false"},
			Notices: func(context.Context) (leased.Notice, error) {
				if notice.Load() < 2 {
					return leased.Notice{Rebalance: notice.Load() == 1}, nil
				}
				asked.Add(1)
				return leased.Notice{Reclaim: time.Now().Add(2 * time.Minute)}, nil
			}}
	})
	n.want(at(1, 1), "#!/bin/sh\ntrap 'touch "+n.home+"/signalled; exit 0' TERM\ntouch "+n.home+"/ready\nwhile :; do sleep 0.02; done\n", nil)
	n.reach(at(1, 1), "started")
	notice.Store(1)
	n.until("a condition", func() bool {
		return strings.HasPrefix(n.condition(causeRebalance), "drains 0: ") && n.reclaimAt().IsZero()
	})
	notice.Store(2)
	n.until("a deadline", func() bool { return !n.reclaimAt().IsZero() })
	first := n.reclaimAt()
	if _, err := os.Stat(filepath.Join(n.home, "signalled")); err == nil || n.last(at(1, 1)).GetPhase() != greylagv1.TaskPhase_TASK_PHASE_STARTED {
		t.Error("the task was signalled before the report")
	}
	if left := time.Until(first); left > 2*time.Minute || left < time.Minute {
		t.Errorf("the deadline is in %v", left)
	}
	n.change(func() { n.wanted[at(1, 1)].Signals = []*greylagv1.Signal{{Id: 1, Number: 15}} })
	if end := n.settled(at(1, 1)); end.GetExitCode() != 0 || !n.reclaimAt().Equal(first) {
		t.Errorf("end %v, deadline %v, want %v", end, n.reclaimAt(), first)
	}
	n.stop()
	before := asked.Load()
	n.change(func() { n.reports = nil })
	n.start()
	n.until("a later deadline of the source", func() bool { return asked.Load() > before && len(n.reports) > 0 })
	if !n.reclaimAt().Equal(first) {
		t.Errorf("after a restart the deadline is %v, want %v", n.reclaimAt(), first)
	}
}

// powersOff returns a lease whose program writes a file, and a function that reports whether it ran.
func powersOff(t *testing.T, n *node, l Lease) (lease *Lease, ran func() bool) {
	l.PowerOff = []string{program(t, n, "#!/bin/sh\ntouch "+n.dir+"/off\n")}
	return &l, func() bool {
		_, err := os.Stat(filepath.Join(n.dir, "off"))
		return err == nil
	}
}

// TestLeaseEndsTheTasks: at the end of the lease the tasks end because of their node, which takes no more, and then the
// program runs.
func TestLeaseEndsTheTasks(t *testing.T) {
	t.Parallel()
	var off func() bool
	n := newNode(t, "process", func(n *node) {
		n.cfg.Lease, off = powersOff(t, n, Lease{Expires: time.Now().Add(4 * time.Second), IdleLimit: time.Hour})
	})
	n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", nil)
	n.reach(at(1, 1), "started")
	if off() {
		t.Error("powered off while the lease lasts")
	}
	end := n.settled(at(1, 1))
	if end.GetCause() != greylagv1.TaskCause_TASK_CAUSE_NODE || !strings.HasPrefix(end.GetMessage(), "the node powers off: the lease of the node ended at ") {
		t.Errorf("end: %v", end)
	}
	n.until("a fault", func() bool { return strings.HasPrefix(n.reports[len(n.reports)-1].GetFault(), poweringOff) })
	n.until("the program", off)
}

// TestRefusedRegistrationPowersOff: a node powers off if the controllers say that its lease has ended, and not for another
// error of a registration.
func TestRefusedRegistrationPowersOff(t *testing.T) {
	t.Parallel()
	ended := errors.New("the lease of node cloud-1 is TERMINATING")
	var off func() bool
	n := newNode(t, "process", func(n *node) {
		n.cfg.Lease, off = powersOff(t, n, Lease{
			Expires: time.Now().Add(time.Hour), IdleLimit: time.Hour, Ended: func(err error) bool { return errors.Is(err, ended) },
		})
	})
	n.want(at(1, 1), "#!/bin/sh\nsleep 1000\n", nil)
	n.reach(at(1, 1), "started")
	refusals := 0
	refuse := func(err error) {
		n.change(func() { n.refused, refusals = err, 0; n.lives++ })
	}
	refuse(errDown)
	n.until("two refusals", func() bool { refusals++; return refusals > 2 })
	if off() || !n.alive(t, at(1, 1)) {
		t.Error("powered off after another error")
	}
	refuse(ended)
	n.until("the program", off)
	if n.alive(t, at(1, 1)) {
		t.Error("the program ran before the task had ended")
	}
}

// TestUnblockedMetadataIsAFault: the node takes no tasks while the metadata service cannot be blocked.
func TestUnblockedMetadataIsAFault(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		n.cfg.Lease = &Lease{Expires: time.Now().Add(time.Hour), IdleLimit: time.Hour, Block: func(context.Context) error {
			return errors.New("nft is not installed")
		}}
	})
	n.until("a registration", func() bool { return len(n.registry) > 0 })
	if fault := n.registry[0].GetFault(); fault != "nft is not installed" {
		t.Errorf("fault %q", fault)
	}
}

// TestRootIsRefusedWhereMetadataIsBlocked: the rule that blocks the metadata service does not concern root.
func TestRootIsRefusedWhereMetadataIsBlocked(t *testing.T) {
	t.Parallel()
	n := newNode(t, "process", func(n *node) {
		n.cfg.Lease = &Lease{Expires: time.Now().Add(time.Hour), IdleLimit: time.Hour, Block: func(context.Context) error { return nil }}
	})
	n.want(at(1, 1), "#!/bin/sh\nexit 0\n", func(w *greylagv1.WantedTask) { w.Uid, w.Gid = 0, 0 })
	if end := n.settled(at(1, 1)); wire.Word(end.GetCause()) != cluster.LaunchFailed.String() || !strings.Contains(end.GetMessage(), "root's jobs do not run on leased nodes") {
		t.Errorf("%v", end)
	}
}
