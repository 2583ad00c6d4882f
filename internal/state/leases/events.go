package leases

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The deadlines of states that the policy does not set.
const (
	requestWithin = 10 * time.Minute // until a request for a planned lease is sent
	reclaimMargin = time.Minute      // from the deadline of a reclaim until the instance is ended: the cloud does it itself
)

// moved returns a lease in a later state. why replaces the reason unless it is "".
func (e *Env) moved(l *cluster.Lease, to cluster.LeaseState, why string) *cluster.Lease {
	n := *l
	n.State, n.Since = to, e.Now
	if why != "" {
		n.Why = command.Sanitize(why)
	}
	if to >= cluster.LeaseDraining {
		n.For = 0
	}
	if to == cluster.LeaseGone {
		n.Reserved, n.IdleSince, n.NodeGone = 0, 0, true
		n.Ended = cmp.Or(n.Ended, e.Now)
	}
	n.Deadline = e.deadline(&n)
	return &n
}

// deadline returns when the state of a lease ends at the latest.
func (e *Env) deadline(l *cluster.Lease) cluster.Instant {
	switch l.State {
	case cluster.LeasePlanned:
		return l.Since.Add(requestWithin)
	case cluster.LeaseRequested, cluster.LeaseLaunched:
		return l.Since.Add(e.bootTimeout())
	case cluster.LeaseJoined, cluster.LeaseRunning:
		switch {
		case l.IdleSince == 0:
			return l.Expires
		case l.For != 0: // the other nodes of the launch join within this time, or the launch has failed
			return min(l.Expires, l.IdleSince.Add(2*e.bootTimeout()))
		}
		return min(l.Expires, l.IdleSince.Add(e.IdleTime(l)))
	case cluster.LeaseDraining:
		if l.Reclaim > 0 {
			return min(l.Expires, l.Reclaim.Add(reclaimMargin))
		}
		return l.Expires
	}
	return 0
}

// IdleTime returns how long an idle node is kept: as long as one of its kind takes to join, unless the policy says.
func (e *Env) IdleTime(l *cluster.Lease) time.Duration {
	return cmp.Or(e.Policy.Burst.IdleTime, l.Offer.Boot, e.bootTimeout())
}

// Ended returns a lease that is to end: its instance ends, or is GONE at once if no request was sent for it.
func (e *Env) Ended(l *cluster.Lease, why string) *cluster.Lease {
	if l.State == cluster.LeasePlanned {
		return e.moved(l, cluster.LeaseGone, why)
	}
	return e.moved(l, cluster.LeaseTerminating, why)
}

// Drained returns a lease whose node takes no new jobs.
func (e *Env) Drained(l *cluster.Lease, why string) *cluster.Lease {
	return e.moved(l, cluster.LeaseDraining, why)
}

// Joined returns a lease whose node has registered.
func (e *Env) Joined(l *cluster.Lease) *cluster.Lease {
	n := *l
	n.Joined, n.IdleSince = e.Now, e.Now
	if l.State == cluster.LeaseDraining { // the cloud takes it back already
		return &n
	}
	return e.moved(&n, cluster.LeaseJoined, "")
}

// Busy returns a lease whose node has a job.
func (e *Env) Busy(l *cluster.Lease) *cluster.Lease {
	n := *l
	n.IdleSince, n.For = 0, 0
	if l.State == cluster.LeaseJoined {
		return e.moved(&n, cluster.LeaseRunning, "")
	}
	n.Deadline = e.deadline(&n)
	return &n
}

// Idle returns a lease whose node has no job any longer.
func (e *Env) Idle(l *cluster.Lease) *cluster.Lease {
	n := *l
	n.IdleSince = e.Now
	n.Deadline = e.deadline(&n)
	return &n
}

// Freed returns a lease that no job waits for: one without a request ends, another may be used by other jobs.
func (e *Env) Freed(l *cluster.Lease, why string) *cluster.Lease {
	if l.State <= cluster.LeaseRequested {
		return e.Ended(l, why)
	}
	n := *l
	n.For = 0
	n.Deadline = e.deadline(&n)
	return &n
}

// Kept returns an idle lease whose node is needed until about an instant.
func (e *Env) Kept(l *cluster.Lease, until cluster.Instant) *cluster.Lease {
	n := *l
	n.Deadline = min(l.Expires, max(until, e.Now+1))
	return &n
}

// Overdue returns what becomes of a lease whose deadline is over, where that follows from the lease alone: of one whose
// node is idle it is nil.
func (e *Env) Overdue(l *cluster.Lease) *cluster.Lease {
	switch {
	case l.State == cluster.LeasePlanned:
		return e.Ended(l, fmt.Sprintf("not requested within %s", cluster.FormatElapsed(requestWithin)))
	case l.State == cluster.LeaseRequested:
		return e.Ended(l, fmt.Sprintf("the provider did not confirm an instance within %s", cluster.FormatElapsed(l.Deadline.Sub(l.Since))))
	case l.State == cluster.LeaseLaunched:
		return e.Ended(l, fmt.Sprintf("node did not join within %s", cluster.FormatElapsed(l.Deadline.Sub(l.Since))))
	case l.State == cluster.LeaseDraining && l.Reclaim > 0:
		return e.Ended(l, "")
	case l.Expires <= e.Now:
		return e.Ended(l, fmt.Sprintf("lease lifetime of %s is over", cluster.FormatElapsed(l.Lifetime)))
	case l.State == cluster.LeaseDraining:
		return e.Ended(l, "")
	case l.For != 0:
		return e.Freed(l, "")
	}
	return nil
}

// Reclaimed returns a lease whose instance the cloud takes back at an instant; nil if that is known, or no longer
// matters. The first notice counts.
func (e *Env) Reclaimed(l *cluster.Lease, at cluster.Instant) *cluster.Lease {
	if l.Reclaim != 0 || at <= 0 || l.State < cluster.LeaseLaunched || l.State > cluster.LeaseDraining {
		return nil
	}
	n := *l
	n.Reclaim = at
	return e.moved(&n, cluster.LeaseDraining, "reclaim notice: instance ends at "+at.Time().Format("2006-01-02 15:04:05")+" UTC")
}

// Events returns the leases that an event changes, as they are afterwards. An event that does not fit the state of a
// lease changes nothing; nor does one that was reported before.
func (x *Leases) Events(e *Env, u *command.LeaseUpdate) (list []*cluster.Lease) {
	add := func(l *cluster.Lease) {
		if l != nil {
			list = append(list, l)
		}
	}
	switch u.Event {
	case command.LaunchRequested, command.LaunchDelayed, command.LaunchFailed:
		for _, l := range x.OfLaunch(u.Lease) {
			add(e.launchEvent(l, u))
		}
		return list
	}
	l, known := x.Get(u.Lease)
	if !known {
		return nil
	}
	switch u.Event {
	case command.LeaseStarted:
		add(x.started(e, l, u))
	case command.LeaseReclaimed:
		add(e.Reclaimed(l, u.Reclaim))
	case command.LeaseEnded:
		add(e.gone(l, u))
	case command.LeaseMismatched:
		add(e.mismatched(l, u))
	case command.LeaseConsole:
		if l.State >= cluster.LeaseLaunched && l.Console == "" && u.Console != "" {
			n := *l
			n.Console = strings.ToValidUTF8(u.Console[max(0, len(u.Console)-cluster.MaxConsole):], "")
			add(&n)
		}
	}
	return list
}

// mismatchNotice is the time that jobs have to save their work on an instance that is not what was requested.
const mismatchNotice = 2 * time.Minute

// mismatched returns a lease whose instance is not what was requested; nil if it does not change. It ends at once, unless
// its node has jobs: these get a notice first, as if the cloud took the instance back.
func (e *Env) mismatched(l *cluster.Lease, u *command.LeaseUpdate) *cluster.Lease {
	if l.State < cluster.LeaseLaunched || l.State > cluster.LeaseDraining || l.Reclaim != 0 {
		return nil
	}
	n := *l
	n.Mismatch = true
	if u.Price > l.MaxPrice {
		n.Price = min(u.Price, cluster.MaxOfferPrice)
	}
	why := cmp.Or(u.Why, "its instance is not what was requested")
	if l.Joined == 0 || l.IdleSince > 0 {
		return e.moved(&n, cluster.LeaseTerminating, why)
	}
	n.Reclaim = e.Now.Add(mismatchNotice)
	return e.moved(&n, cluster.LeaseDraining, why)
}

// launchEvent returns a lease after an event of its launch; nil if it does not change.
func (e *Env) launchEvent(l *cluster.Lease, u *command.LeaseUpdate) *cluster.Lease {
	requested := l.Try == u.Try && l.Instance == "" && (l.State == cluster.LeaseRequested || l.State == cluster.LeaseTerminating)
	switch u.Event {
	case command.LaunchRequested:
		if l.State != cluster.LeasePlanned || u.Try != l.Try+1 || u.Token.IsZero() {
			return nil
		}
		n := *l
		n.Try, n.Token = u.Try, u.Token
		return e.moved(&n, cluster.LeaseRequested, "")
	case command.LaunchDelayed:
		if why := command.Sanitize(u.Why); requested && l.State == cluster.LeaseRequested && l.Why != why {
			n := *l
			n.Why = why
			return &n
		}
	case command.LaunchFailed:
		if requested {
			return e.moved(l, cluster.LeaseGone, cmp.Or(u.Why, "no instance was created"))
		}
	}
	return nil
}

// started returns a lease whose instance exists; nil if it does not change. No two leases have one instance.
func (x *Leases) started(e *Env, l *cluster.Lease, u *command.LeaseUpdate) *cluster.Lease {
	if l.Adopted && l.Price == 0 && l.Instance == u.Instance && l.Live() {
		return e.priced(l, u)
	}
	if l.Instance != "" && l.Instance == u.Instance && l.Live() {
		if n := *l; u.Address != "" && l.Address != command.Sanitize(u.Address) {
			n.Address = command.Sanitize(u.Address)
			return &n
		}
		return nil
	}
	awaited := l.State == cluster.LeaseRequested || l.State == cluster.LeaseTerminating
	if !awaited || l.Instance != "" || l.Try != u.Try || !validInstance(u.Instance) || x.hasInstance(u.Instance) {
		return nil
	}
	n := *l
	n.Instance, n.Address = u.Instance, command.Sanitize(u.Address)
	n.Price = min(max(u.Price, 0), l.MaxPrice)
	n.Launched = e.Now
	if u.At > 0 {
		n.Launched = min(max(u.At, l.Created), e.Now)
	}
	n.Expires = n.Launched.Add(l.Lifetime)
	if l.State == cluster.LeaseTerminating {
		return &n
	}
	n.Why = ""
	return e.moved(&n, cluster.LeaseLaunched, "")
}

// maxInstance bounds an instance ID, in bytes.
const maxInstance = 256

// validInstance reports whether an instance ID is 1 to 256 printable ASCII characters without spaces.
func validInstance(name string) bool {
	return name != "" && len(name) <= maxInstance && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// hasInstance reports whether a lease that is kept has an instance. O(leases).
func (x *Leases) hasInstance(name string) bool {
	for _, l := range x.all.All() {
		if l.Instance == name {
			return true
		}
	}
	return false
}

// gone returns a lease whose instance does not exist any longer; nil if it does not change.
func (e *Env) gone(l *cluster.Lease, u *command.LeaseUpdate) *cluster.Lease {
	other := u.Instance != "" && u.Instance != l.Instance
	if l.State == cluster.LeasePlanned || !l.Live() || other {
		return nil
	}
	n := *l
	n.Interrupted = u.Interrupted
	n.Ended = e.Now
	if u.At > 0 {
		n.Ended = min(max(u.At, l.Launched, l.Created), e.Now)
	}
	n.Cost = costOf(&n, u.Cost)
	why := u.Why
	switch {
	case why != "" || l.Why != "":
	case u.Interrupted:
		why = "reclaimed by the cloud"
	case l.State < cluster.LeaseTerminating:
		why = "instance ended"
	}
	return e.moved(&n, cluster.LeaseGone, why)
}
