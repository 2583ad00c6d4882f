package state

import (
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// fund sets credits aside for the next attempt of a job that waits, a value that nobody
// else has yet; without them it is held until there are enough. A job that is held by
// somebody is funded when it is released.
func (s *State) fund(j *cluster.Job) *command.Refusal {
	if j.Hold == cluster.HeldByUser || j.Hold == cluster.HeldByAdmin {
		return nil
	}
	if _, held := s.lienOf(j.ID, j.Attempt+1); held {
		return nil
	}
	claim, refusal := s.claimOf(j.Spec)
	if claim != nil {
		claim.ID = accounting.LienID{Job: j.ID, Attempt: j.Attempt + 1}
		_, err := s.credits.Place(s.natural(), *claim)
		refusal = s.unpaid(err)
	}
	switch {
	case refusal != nil:
		j.Hold, j.Reason, j.Detail, j.Planned = cluster.HeldForCredits, cluster.ReasonCredits, refusal.Message, 0
	case j.Hold == cluster.HeldForCredits:
		j.Hold, j.Reason, j.Detail = cluster.NotHeld, cluster.ReasonNone, ""
		if j.Eligible > s.now {
			j.Reason = cluster.ReasonBeginTime
		}
	}
	return refusal
}

// fundAtOnce is how many jobs one command may try to fund, in the order of their ids,
// and triesEach how many of one payer that has too little.
const fundAtOnce, triesEach = 1000, 4

// fundHeld tries again for the jobs that wait for credits, after some became free.
func (s *State) fundHeld() {
	if !s.released {
		return
	}
	s.released = false
	tries, failed := 0, map[accounting.NodeID]int{}
	waiting := s.unfunded.Clone() // what is funded leaves the other
	for id := range waiting.All() {
		old, waits := s.pending.Get(id)
		if !waits {
			continue
		}
		who := accounting.NodeID(old.Spec.Account + "/" + old.Spec.Owner.User)
		if failed[who] == triesEach {
			continue // that others are not kept waiting by who is broke
		}
		j := *old
		if s.fund(&j); j.Hold != old.Hold || j.Detail != old.Detail {
			s.put(old, &j)
		}
		if j.Hold == cluster.HeldForCredits {
			failed[who]++
		}
		if tries++; tries == fundAtOnce {
			break
		}
	}
}

// hopeAt is when jobs that wait for credits may get some without anybody's doing: when a
// bucket begins, or the day or month of a budget does.
func (v *View) hopeAt() cluster.Instant {
	if v.unfunded.Len() == 0 {
		return cluster.Never
	}
	day := v.now.Time().UTC().Truncate(24 * time.Hour)
	return min(cluster.InstantOf(day.Add(24*time.Hour)), v.Credits().NextDue())
}

// hope has jobs that wait for credits looked at when they may get some.
func (s *State) hope() {
	if s.unfunded.Len() > 0 {
		s.ledger().Advance(s.now)
		s.released = true
	}
}
