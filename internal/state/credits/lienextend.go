package credits

import (
	"errors"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Meter records how long an attempt of j has run on its present nodes, as they count; j is nil if the job does not
// run. When an hour is over, the attempt is charged what it came to, so that a day's report has
// the day's. A lien that only lasts for a window ahead is extended. warn reports whether the job is
// to be signalled since its credits run out; end is why it ends, if nothing is left for it.
func (x *Credits) Meter(e *Env, s *command.JobSample, j *cluster.Job) (warn bool, end error) {
	n, open := x.OpenLien(s.Job, s.Attempt)
	last := len(n.Segments) - 1
	if !open || last < 0 || int(s.Segment) != last { // its nodes have changed since: what it counts is charged
		return false, nil
	}
	count := s.GPUms
	if j != nil && j.Spec.TimeLimit > 0 {
		count = min(count, accounting.Millis(n.Segments[last].GPUs, max(0, j.Spec.TimeLimit-billedBefore(j, &n))))
	}
	before := n.Segments[last].Seen
	x.ledger.Meter(e.Now, []accounting.Sample{{Lien: n.ID, Segment: last, Epoch: s.Epoch, Number: s.Number, Count: count}})
	if before.Time().Truncate(time.Hour) != e.Now.Time().Truncate(time.Hour) {
		if _, err := x.ledger.ChargeAccrued(logStamp(e.Now), n.ID); err != nil {
			x.fault("lien %s: %w", n.ID, err)
		}
	}
	if j == nil || j.State == cluster.Completing {
		return false, nil
	}
	return x.extendLien(e, n.ID, j)
}

// rollsAhead is the time that the lien of a job without a time limit covers if its window was
// turned off.
const rollsAhead = 24 * time.Hour

// extendLien sets more aside for a running job whose lien lasts for less than half of the window,
// and ends it when nothing is left; without a window, for one whose lien lasts for less than its
// time limit. A job without a limit always has a window. A job whose lien was cut short by a
// promotion that ended also ends when nothing is left. It returns what Meter does.
func (x *Credits) extendLien(e *Env, id accounting.LienID, j *cluster.Job) (warn bool, end error) {
	window, limit := e.Policy.Credits.LienWindow, j.Limit()
	if window == 0 && limit == 0 {
		window = rollsAhead
	}
	n, _ := x.ledger.Lien(id)
	need := x.lacks(e.Now, &n, window, limit)
	if need <= 0 {
		return false, nil
	}
	_, err := x.ledger.Resize(logStamp(e.Now), id, n.Amount+need)
	if err == nil {
		return false, nil
	}
	x.extendSome(e.Now, &n, err)
	if window == 0 && !n.CutShort { // all was set aside once: a higher price since then is owed
		return false, nil
	}
	n, _ = x.ledger.Lien(id)
	if x.ledger.MissingCredits(&n, e.Now.Add(time.Millisecond)) > 0 { // not even what the job has had until now
		return false, err
	}
	signal := j.Spec.PreemptSignal() // due at the last sample that leaves the requested lead time
	return signal.Number != 0 && !j.Warned && x.ledger.FundedUntil(&n, cluster.Never).Sub(e.Now) <= signal.Before+meteredEvery, nil
}

// meteredEvery is the interval at which the controllers sample running jobs.
const meteredEvery = 30 * time.Second

// lacks returns the amount by which to extend a lien: nothing while it lasts for half of the
// window, then a whole window. Without a window it is the rest of the limit.
func (x *Credits) lacks(now cluster.Instant, n *accounting.Lien, window time.Duration, limit cluster.Instant) accounting.Credits {
	within := func(ahead time.Duration) cluster.Instant {
		if at := now.Add(ahead); window > 0 && (limit == 0 || at < limit) {
			return at
		}
		return max(limit, now)
	}
	if x.ledger.MissingCredits(n, within(window/2)) <= 0 {
		return 0
	}
	return x.ledger.MissingCredits(n, within(window))
}

// extendSome extends the lien by the available amount, if that is less than requested: first a
// budget may limit it, then the credits within the budget.
func (x *Credits) extendSome(now cluster.Instant, n *accounting.Lien, err error) {
	for range 2 {
		short, is := errors.AsType[*accounting.Shortfall](err)
		if !is || short.Available <= 0 {
			return
		}
		if _, err = x.ledger.Resize(logStamp(now), n.ID, n.Amount+short.Available); err == nil {
			return
		}
	}
}
