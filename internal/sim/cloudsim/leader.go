package cloudsim

import (
	"errors"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/reconcile/instances"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxRounds bounds the rounds of an instant.
const maxRounds = 8

// lead does what the leader does about leases, until nothing is left to do: it lists the cloud, compares, and acts. The cloud answers
// at once.
func (x *replay) lead() error {
	for range maxRounds {
		work := x.State.Peek().LeaseWork()
		x.leases = len(work) > 0
		if !x.leases {
			return nil
		}
		sets := instances.Sets{Now: x.Now, Elapsed: x.Now.Sub(0), Leases: work, Instances: x.cloud.List(x.Now), Absent: x.absent}
		todo := instances.Compare(&sets)
		if len(todo.Updates)+len(todo.Launches)+len(todo.Terminate) == 0 {
			return nil
		}
		if err := x.update(todo.Updates); err != nil {
			return err
		}
		for _, id := range todo.Terminate {
			if err := x.off(x.cloud.Find(id), false); err != nil {
				return err
			}
		}
		for _, group := range todo.Launches {
			if err := x.request(group[0]); err != nil {
				return err
			}
		}
		if err := x.flush(); err != nil {
			return err
		}
	}
	return nil
}

// update records what happened to leases, and what those that ended have cost.
func (x *replay) update(list []command.LeaseUpdate) error {
	if len(list) == 0 {
		return nil
	}
	if err := x.Must(&command.UpdateLeases{Updates: list}); err != nil {
		return err
	}
	view := x.State.Peek()
	for i := range list {
		l, known := view.Lease(list[i].Lease)
		if list[i].Event != command.LeaseEnded || !known || l.Live() {
			continue
		}
		x.summary.Cost += l.Cost
		if x.summary.Leases++; l.Joined == 0 {
			x.summary.Unused++
		}
		if old := x.cloud.Find(l.Instance); old != nil {
			x.cloud.Forget(old)
		}
	}
	return nil
}

// request makes the request of the launch of a lease.
func (x *replay) request(l *cluster.Lease) error {
	token := cluster.Digest{1, byte(l.Launch), byte(l.Launch >> 8), byte(l.Launch >> 16), byte(l.Try + 1)}
	if l.State == cluster.LeasePlanned {
		x.summary.Launches++
		u := command.LeaseUpdate{Lease: l.Launch, Event: command.LaunchRequested, Try: l.Try + 1, Token: token}
		if err := x.update([]command.LeaseUpdate{u}); err != nil {
			return err
		}
	}
	now, known := x.State.Peek().Lease(l.ID)
	if !known || now.State != cluster.LeaseRequested {
		return nil
	}
	made, err := x.cloud.Launch(x.Now, now)
	if err != nil {
		x.summary.Refused++
		capacity := errors.Is(err, cloud.ErrNoCapacity) || errors.Is(err, cloud.ErrPrice)
		return x.update([]command.LeaseUpdate{{Lease: now.Launch, Try: now.Try, Event: command.LaunchFailed, Capacity: capacity, Why: err.Error()}})
	}
	list := make([]cluster.Instance, len(made))
	for i, m := range made {
		list[i] = m.Instance
	}
	return x.update(instances.Started(x.State.Peek().LeaseWork(), now, list))
}

// liveHours returns for how long the instances that exist have existed.
func (x *replay) liveHours() (sum float64) {
	for _, i := range x.cloud.All() {
		if i.Ended == 0 {
			sum += i.Hours(x.Now)
		}
	}
	return sum
}
