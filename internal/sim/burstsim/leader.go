package burstsim

import (
	"errors"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/reconcile/instances"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/pkg/cluster"
)

// leader is what the leading controller has in memory about leases.
type leader struct {
	term   int
	absent map[string]time.Duration
	asks   map[cluster.LeaseID]cluster.Instant // until when a launch is left alone
	listed cluster.Instant
}

// forget begins a new term.
func (l *leader) forget() {
	*l = leader{term: l.term + 1, absent: map[string]time.Duration{}, asks: map[cluster.LeaseID]cluster.Instant{}}
}

// The times of the leader.
const (
	listEvery   = time.Minute
	answerAfter = 3 * time.Second
	noAnswer    = time.Minute
	askAgain    = 10 * time.Second
)

// leaderRound lists the cloud, compares and acts, as often as a controller does.
func (x *simulation) leaderRound() error {
	for launch, until := range x.leader.asks {
		if until <= x.Now {
			delete(x.leader.asks, launch)
		}
	}
	if x.Now.Sub(x.leader.listed) < listEvery && !x.urgent() {
		return nil
	}
	x.leader.listed = x.Now
	sets := instances.Sets{Now: x.Now, Elapsed: x.Now.Sub(0), Instances: x.cloud.List(x.Now), Requests: map[cluster.LeaseID]struct{}{}, Absent: x.leader.absent}
	for launch := range x.leader.asks {
		sets.Requests[launch] = struct{}{}
	}
	for l := range x.State.View().Leases() {
		if l.Live() {
			sets.Leases = append(sets.Leases, l)
		}
	}
	actions := instances.Compare(&sets)
	term := x.leader.term
	if len(actions.Updates) > 0 {
		if err := x.Must(&command.UpdateLeases{Updates: actions.Updates}); err != nil {
			return err
		}
	}
	for _, id := range actions.Terminate {
		i := x.cloud.Find(id)
		if at, accepted := x.cloud.Terminate(x.Now); accepted {
			x.At(at, func() error { return x.powerOff(i, false) })
		}
	}
	for _, group := range actions.Launches {
		if x.leader.term != term { // the leader changed at its own command
			return nil
		}
		if err := x.request(group[0]); err != nil {
			return err
		}
	}
	return nil
}

// urgent reports whether a lease waits for a request.
func (x *simulation) urgent() bool {
	for l := range x.State.View().Leases() {
		_, asks := x.leader.asks[l.Launch]
		if !asks && (l.State == cluster.LeasePlanned || l.State == cluster.LeaseRequested) || l.State == cluster.LeaseTerminating {
			return true
		}
	}
	return false
}

// request makes the request of a launch.
func (x *simulation) request(l *cluster.Lease) error {
	term := x.leader.term
	if l.State == cluster.LeasePlanned {
		token := cluster.Digest{byte(l.Launch), byte(l.Launch >> 8), byte(l.Try + 1), 1}
		update := command.LeaseUpdate{Lease: l.Launch, Event: command.LaunchRequested, Try: l.Try + 1, Token: token}
		if err := x.Must(&command.UpdateLeases{Updates: []command.LeaseUpdate{update}}); err != nil {
			return err
		}
	}
	now, known := x.State.View().Lease(l.ID)
	if x.leader.term != term || !known || now.State != cluster.LeaseRequested {
		return nil
	}
	x.leader.asks[l.Launch] = cluster.Never
	made, err := x.cloud.Launch(x.Now, now)
	after := answerAfter
	if errors.Is(err, cloud.ErrNoAnswer) {
		x.r.LostAnswers++
		after = noAnswer
	}
	x.In(after, func() error { return x.answer(term, now, made, err) })
	return nil
}

// live schedules the life of a new instance.
func (x *simulation) live(i *cloud.Instance) {
	x.At(i.Expires, func() error { return x.powerOff(i, false) })
	if i.Joins < cluster.Never {
		x.At(i.Joins, func() error { return x.boot(i) })
	} else {
		x.r.NeverJoined++
	}
	if i.Notice < i.Expires {
		x.At(i.Notice, func() error { return x.takeBack(i, i.Sudden) })
	}
}

// takeBack takes an instance back: at once, or after a notice that its node reports.
func (x *simulation) takeBack(i *cloud.Instance, sudden bool) error {
	if i.Ended > 0 || i.Reclaim > 0 {
		return nil
	}
	if x.r.Reclaims++; sudden {
		return x.powerOff(i, true)
	}
	i.Reclaim = x.Now.Add(cloud.Notice)
	x.At(i.Reclaim, func() error { return x.powerOff(i, true) })
	if m := x.nodes[i.ID]; m != nil {
		m.reclaim = i.Reclaim
		x.In(actWithin, func() error { return x.checkReclaimed(m) })
		return x.report(m)
	}
	return nil
}

// answer records the answer to a request, if the leader that made it still leads.
func (x *simulation) answer(term int, l *cluster.Lease, made []*cloud.Instance, err error) error {
	if x.leader.term != term {
		return nil
	}
	delete(x.leader.asks, l.Launch)
	update := command.LeaseUpdate{Lease: l.Launch, Try: l.Try}
	switch {
	case err == nil:
		var list []cluster.Instance
		for _, i := range made {
			list = append(list, i.Instance)
		}
		updates := instances.Started(slices.Collect(x.State.View().Leases()), l, list)
		if len(updates) == 0 {
			return nil
		}
		return x.Must(&command.UpdateLeases{Updates: updates})
	case errors.Is(err, cloud.ErrThrottled), errors.Is(err, cloud.ErrNoAnswer):
		x.leader.asks[l.Launch] = x.Now.Add(askAgain)
		update.Event, update.Why = command.LaunchDelayed, err.Error()
	default:
		x.r.Refused++
		update.Event, update.Capacity, update.Why = command.LaunchFailed, true, err.Error()
	}
	return x.Must(&command.UpdateLeases{Updates: []command.LeaseUpdate{update}})
}
