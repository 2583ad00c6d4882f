package cloudsim

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Before does nothing.
func (x *replay) Before(uint64, cluster.Instant, command.Command) {}

// After has the nodes of the jobs that a command changed do what is wanted of them.
func (x *replay) After(c command.Command, _ command.Result, e *state.Effects) error {
	if p, is := c.(*command.CommitPlan); is {
		x.launches += len(p.Plan.Launches)
	}
	for i := range e.Changed {
		ch := &e.Changed[i]
		if ch.Kind != state.JobChanged || ch.New == nil {
			continue
		}
		if at, known := x.ResultOf[ch.Job]; known {
			if x.changed = x.Now; ch.Old == nil || ch.Old.State != ch.New.State {
				x.moved, x.launches = x.Now, 0
			}
			x.follow(at, ch.Old, ch.New)
		}
	}
	return nil
}

// follow records the change of a job.
func (x *replay) follow(at int, old, j *cluster.Job) {
	res := &x.Results[at]
	switch {
	case j.State == cluster.Configuring && (old == nil || old.State == cluster.Pending):
		x.begin(at, j)
	case j.State == cluster.Completing && old.State != cluster.Completing:
		for rank := range j.Alloc.Nodes { // those that have ended before report so again
			x.end(j, rank, cluster.Stopped)
		}
	case j.State == cluster.Pending && old != nil && old.State.HasAllocation():
		x.summary.Restarts++
		res.Start, res.End, res.Nodes, res.LatestPromise = 0, 0, nil, 0
	case j.State.Final():
		res.End, res.Reason = x.Now, j.State.String()
		delete(x.ResultOf, j.ID)
		x.Done++
	}
}

// begin has the nodes of a job start it. It ends after its run time, whatever it did in an earlier attempt.
func (x *replay) begin(at int, j *cluster.Job) {
	res := &x.Results[at]
	res.Start, res.Nodes, res.Attempt = x.Now, j.Alloc.Nodes, j.Attempt
	if res.LatestPromise > 0 && x.Now > res.LatestPromise && res.Broken == "" {
		res.Broken = sim.UnnamedCause
	}
	leased := false
	for i := range j.Alloc.Nodes {
		name := j.Alloc.Nodes[i].Node
		leased = leased || cluster.IsLeased(name)
		x.reports = append(x.reports, task{name, j.ID, j.Attempt, cluster.Task{Node: name, Phase: cluster.TaskStarted, Started: x.Now}})
	}
	if leased {
		x.summary.Attempts++
	}
	x.ending(j, x.Now.Add(res.Job.Run))
}

// ending schedules the end of an attempt.
func (x *replay) ending(j *cluster.Job, at cluster.Instant) {
	attempt := j.Attempt
	x.At(at, func() error {
		now, known := x.State.Peek().Job(j.ID)
		if !known || now.Attempt != attempt || !now.State.HasAllocation() {
			return nil
		}
		for rank := range now.Alloc.Nodes {
			if now.State == cluster.Completing || rank == 0 {
				x.end(now, rank, cluster.Exited)
			}
		}
		return nil
	})
}

// end has the task of a rank end, and its node be clean.
func (x *replay) end(j *cluster.Job, rank int, how cluster.TaskCause) {
	if j.Tasks.At(rank).Phase == cluster.TaskClean {
		return
	}
	name := j.Alloc.Nodes[rank].Node
	said := cluster.Task{Node: name, Phase: cluster.TaskClean, Started: x.Results[x.ResultOf[j.ID]].Start, Cause: how, Ended: x.Now}
	x.reports = append(x.reports, task{name, j.ID, j.Attempt, said})
}

// flush has nodes report until nothing is left to report.
func (x *replay) flush() error {
	for len(x.reports) > 0 {
		list := x.reports
		x.reports = nil
		for i := range list {
			t := &list[i]
			epoch, there := x.Epochs[t.node]
			if !there { // its instance has ended
				continue
			}
			r := &command.ReportTasks{Node: t.node, Epoch: epoch, Tasks: []command.TaskReport{{Job: t.job, Attempt: t.attempt, Task: t.task}}}
			if _, err := x.Apply(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// live schedules the life of an instance.
func (x *replay) live(i *cloud.Instance) {
	x.At(i.Expires, func() error { return x.off(i, false) })
	if i.Notice < i.Expires {
		x.At(i.Notice, func() error { return x.notice(i) })
	}
}

// join registers the node of an instance.
func (x *replay) join(i *cloud.Instance) error {
	if i.Ended > 0 {
		return nil
	}
	l := x.leaseOf(i)
	if l == nil || l.State != cluster.LeaseLaunched {
		return nil // it ends soon
	}
	name := l.ID.NodeName()
	if err := x.Must(&command.UseToken{Hash: l.Token, Kind: command.NodeToken, Name: name, Instance: i.ID}); err != nil {
		return err
	}
	n := *l.Offer.Node()
	n.Name, n.BootID = name, i.ID
	r, err := x.Apply(&command.RegisterNode{Node: n})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return sim.RefusalError(r)
	}
	x.Epochs[name] = registered.Epoch
	x.summary.Joined++
	return nil
}

// notice says that the cloud takes an instance back, as far as its node is there to hear that.
func (x *replay) notice(i *cloud.Instance) error {
	if i.Ended > 0 {
		return nil
	}
	i.Reclaim = x.Now.Add(cloud.Notice)
	x.At(i.Reclaim, func() error { return x.off(i, true) })
	l := x.leaseOf(i)
	if l == nil {
		return nil
	}
	epoch, there := x.Epochs[l.ID.NodeName()]
	if !there {
		return nil
	}
	_, err := x.Apply(&command.ReportTasks{Node: l.ID.NodeName(), Epoch: epoch, Reclaim: i.Reclaim})
	return err
}

// off ends an instance.
func (x *replay) off(i *cloud.Instance, interrupted bool) error {
	if i.Ended > 0 {
		return nil
	}
	x.cloud.End(x.Now, i, interrupted)
	x.summary.Hours += i.Hours(x.Now)
	if interrupted {
		x.summary.Reclaims++
	}
	if l := x.leaseOf(i); l != nil {
		delete(x.Epochs, l.ID.NodeName())
	}
	return nil
}

// leaseOf finds the lease of an instance; nil if it has none that is not GONE.
func (x *replay) leaseOf(i *cloud.Instance) *cluster.Lease {
	for _, l := range x.State.Peek().LeaseWork() {
		if l.Instance == i.ID {
			return l
		}
	}
	return nil
}
