package state

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// rollsAhead is for how long ahead credits are set aside for a job without a time limit
// whose window was turned off: it cannot be paid for otherwise.
const rollsAhead = 24 * time.Hour

// extendLien sets more aside for a job whose lien lasts for less than half of the window,
// and ends it when nothing is left; without a window for one that lasts for less than
// its job may. Without a limit there is a window, whatever the policy says. A job whose
// lien was cut short by a promotion that ended also ends when nothing is left.
func (s *State) extendLien(id accounting.LienID) {
	old, runs := s.holding.Get(id.Job)
	if !runs || old.State == cluster.Completing {
		return
	}
	window, limit := s.policy.Credits.LienWindow, old.Limit()
	if window == 0 && limit == 0 {
		window = rollsAhead
	}
	n, _ := s.credits.Lien(id)
	need := s.lacks(&n, window, limit)
	if need <= 0 {
		return
	}
	_, err := s.credits.Resize(s.logStamp(), id, n.Amount+need)
	if err == nil {
		return
	}
	s.stretchSome(&n, err)
	if window == 0 && !n.CutShort { // all was set aside once: a higher price since then is owed
		return
	}
	if s.lasts(id) {
		s.warnOfCredits(old, id)
		return
	}
	j := *old
	s.end(&j, ending{outcome: cluster.TimedOut, reason: cluster.ReasonCredits, detail: command.OneLine(err)})
	s.settle(&j)
	s.put(old, &j)
}

// meteredEvery is how often the controllers sample running jobs.
const meteredEvery = 30 * time.Second

// warnOfCredits sends a job its --signal before its credits run out, if that is before its time
// limit: at the last sample that leaves the requested lead time.
func (s *State) warnOfCredits(old *cluster.Job, id accounting.LienID) {
	signal := old.Spec.Signal
	if signal.Number == 0 || old.Warned {
		return
	}
	n, _ := s.credits.Lien(id)
	if s.credits.FundedUntil(&n, cluster.Never).Sub(s.now) > signal.Before+meteredEvery {
		return
	}
	j := *old
	j.Warned = true
	s.send(s.index, j.ID, signal.Number, signal.BatchOnly)
	s.put(old, &j)
}

// lacks is what is to be set aside besides: nothing while a lien lasts for half of the window,
// then what the whole of it comes to; without one what the rest of the limit does.
func (s *State) lacks(n *accounting.Lien, window time.Duration, limit cluster.Instant) accounting.Credits {
	within := func(ahead time.Duration) cluster.Instant {
		if at := s.now.Add(ahead); window > 0 && (limit == 0 || at < limit) {
			return at
		}
		return max(limit, s.now)
	}
	if s.credits.Lacks(n, within(window/2)) <= 0 {
		return 0
	}
	return s.credits.Lacks(n, within(window))
}

// stretchSome sets aside what there is, where that is less than was asked for: first a budget
// may bind, and within it credits.
func (s *State) stretchSome(n *accounting.Lien, err error) {
	for range 2 {
		short, is := errors.AsType[*accounting.Shortfall](err)
		if !is || short.Available <= 0 {
			return
		}
		if _, err = s.credits.Resize(s.logStamp(), n.ID, n.Amount+short.Available); err == nil {
			return
		}
	}
}

// lasts reports whether a lien pays for more than what its job has had until now.
func (s *State) lasts(id accounting.LienID) bool {
	n, _ := s.credits.Lien(id)
	return s.credits.Lacks(&n, s.now.Add(time.Millisecond)) <= 0
}
