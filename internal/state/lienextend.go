package state

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// rollsAhead is the time that the lien of a job without a time limit covers if its window was
// turned off.
const rollsAhead = 24 * time.Hour

// extendLien extends the lien of a job that lasts for less than half of the window, and ends the
// job when no credits are left. Without a window it extends a lien that lasts for less than the job
// may run. A job without a limit always has a window, whatever the policy says. A job whose lien
// was cut short by the end of a promotion also ends when no credits are left.
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
	if window == 0 && !n.CutShort { // all was reserved once: a higher price since then is owed
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

// meteredEvery is the interval at which the controllers sample running jobs.
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

// lacks returns the amount by which to extend a lien: nothing while it lasts for half of the
// window, then a whole window. Without a window it is the rest of the limit.
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

// stretchSome extends the lien by the available amount, if that is less than requested: first a
// budget may limit it, then the credits within the budget.
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

// lasts reports whether a lien pays for more than the time that its job has run.
func (s *State) lasts(id accounting.LienID) bool {
	n, _ := s.credits.Lien(id)
	return s.credits.Lacks(&n, s.now.Add(time.Millisecond)) <= 0
}
