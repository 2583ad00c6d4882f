package burstsim

import (
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// machine is a node of the site or of the cloud, and the daemon on it.
type machine struct {
	node    cluster.Node
	epoch   uint64
	off     bool
	seen    uint64
	reclaim cluster.Instant
	tasks   map[sim.TaskID]*machineTask
}

type machineTask struct {
	task     cluster.Task
	stopping bool
}

// order returns the tasks of a machine in a fixed order.
func (m *machine) order() []sim.TaskID {
	return slices.SortedFunc(maps.Keys(m.tasks), sim.TaskID.Compare)
}

const (
	joinEvery = 10 * time.Second
	joinFor   = 15 * time.Minute
	cleaning  = 2 * time.Second
	small     = 0.03 // part of the nodes that join with a GPU less than offered
)

// boot lets an instance try to join.
func (x *simulation) boot(i *cloud.Instance) error {
	if i.Ended > 0 || x.Now.Sub(i.Launched) > joinFor {
		return nil
	}
	for l := range x.State.View().Leases() {
		if l.Instance != i.ID || !l.Live() {
			continue
		}
		r, err := x.Apply(&command.UseToken{Hash: l.Token, Kind: command.NodeToken, Name: l.ID.NodeName(), Instance: i.ID})
		if err != nil {
			return err
		}
		if _, refused := r.(*command.Refusal); refused {
			return x.powerOff(i, false)
		}
		return x.register(i, l)
	}
	x.In(joinEvery, func() error { return x.boot(i) })
	return nil
}

// register registers the node of an instance.
func (x *simulation) register(i *cloud.Instance, l *cluster.Lease) error {
	m := &machine{node: *l.Offer.Node(), tasks: map[sim.TaskID]*machineTask{}}
	m.node.Name, m.node.BootID = l.ID.NodeName(), i.ID
	if faults.Yes(x.streams.Of(faults.GPUs), small) {
		m.node.GPUs = m.node.GPUs[:len(m.node.GPUs)-1]
	}
	r, err := x.Apply(&command.RegisterNode{Node: m.node, Checked: true})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return x.powerOff(i, false)
	}
	m.epoch, m.reclaim = registered.Epoch, i.Reclaim
	x.machines[m.node.Name], x.nodes[i.ID] = m, m
	x.r.Joined++
	return x.sync(m)
}

// powerOff ends an instance.
func (x *simulation) powerOff(i *cloud.Instance, interrupted bool) error {
	if i.Ended > 0 {
		return nil
	}
	x.cloud.End(x.Now, i, interrupted)
	m := x.nodes[i.ID]
	if m == nil {
		return nil
	}
	m.off = true
	delete(x.machines, m.node.Name)
	for after, liveness := range map[time.Duration]cluster.Liveness{cluster.SilentAfter: cluster.Silent, x.State.View().Policy().NodeTimeout: cluster.Dead} {
		x.In(after, func() error {
			if n, known := x.State.View().Node(m.node.Name); !known || n.Epoch != m.epoch || n.Liveness >= liveness {
				return nil
			}
			return x.Must(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: m.node.Name, Epoch: m.epoch, Liveness: liveness}}})
		})
	}
	return nil
}

// sync has a machine start and stop tasks as the state wants, and report.
func (x *simulation) sync(m *machine) error {
	if m.off {
		return nil
	}
	wanted := map[sim.TaskID]bool{}
	for j, rank := range x.State.View().OnNode(m.node.Name) {
		id := sim.TaskOf(j, rank)
		wanted[id] = true
		t, there := m.tasks[id]
		switch {
		case !there && j.Tasks.At(rank).Phase != cluster.TaskWanted: // gone: the report will say so
		case !there && (j.State == cluster.Completing || stops(j, rank)):
			m.tasks[id] = &machineTask{task: cluster.Task{Node: m.node.Name, Phase: cluster.TaskClean}}
		case !there:
			if err := x.start(m, id, j, rank); err != nil {
				return err
			}
		case j.State == cluster.Completing || stops(j, rank):
			x.stop(m, t)
		}
	}
	for _, id := range m.order() {
		if !wanted[id] {
			x.stop(m, m.tasks[id])
		}
	}
	m.seen = x.Index
	return x.report(m)
}

// stops reports whether the node of a rank leaves an elastic job.
func stops(j *cluster.Job, rank int) bool { return j.Members != nil && j.Members.List[rank].Stops }

// start begins a task. The job ends after its run time, less what a checkpoint has saved.
func (x *simulation) start(m *machine, id sim.TaskID, j *cluster.Job, rank int) error {
	left := x.runtimes[id.Job]
	if rank == 0 {
		done, err := x.resume(j)
		if err != nil {
			return err
		}
		left -= done
	}
	t := &machineTask{task: cluster.Task{Node: m.node.Name, Phase: cluster.TaskStarted, Started: x.Now}}
	m.tasks[id] = t
	if cluster.IsLeased(m.node.Name) {
		x.r.OnCloud++
	}
	x.In(left, func() error {
		cause := cluster.Exited
		if rank > 0 {
			cause = cluster.Stopped
		}
		return x.finish(m, t, cause)
	})
	return nil
}

// stop ends a task that is not wanted any more.
func (x *simulation) stop(m *machine, t *machineTask) {
	if t.stopping || t.task.Phase >= cluster.TaskEnded {
		return
	}
	t.stopping = true
	x.In(time.Second, func() error { return x.finish(m, t, cluster.Stopped) })
}

// finish ends a task; the node is clean soon after.
func (x *simulation) finish(m *machine, t *machineTask, cause cluster.TaskCause) error {
	if m.off || t.task.Phase >= cluster.TaskEnded {
		return nil
	}
	t.task.Phase, t.task.Ended, t.task.Cause = cluster.TaskEnded, x.Now, cause
	x.In(cleaning, func() error {
		t.task.Phase = cluster.TaskClean
		return x.report(m)
	})
	return x.report(m)
}

// report reports all tasks of a machine, and forgets those that the state no longer wants.
func (x *simulation) report(m *machine) error {
	if m.off {
		return nil
	}
	r := &command.ReportTasks{Node: m.node.Name, Epoch: m.epoch, Seen: m.seen, Conditions: []cluster.Condition{}, Reclaim: m.reclaim}
	for _, id := range m.order() {
		t := m.tasks[id]
		said := command.TaskReport{Job: id.Job, Attempt: id.Attempt, Granted: id.Granted, Task: t.task}
		if t.task.Ended > 0 {
			said.Ran = t.task.Ended.Sub(t.task.Started)
		}
		r.Tasks = append(r.Tasks, said)
	}
	if !x.State.Peek().NothingNew(r) {
		if _, err := x.Apply(r); err != nil {
			return err
		}
	}
	for _, id := range m.order() {
		j, known := x.State.View().Job(id.Job)
		if t := m.tasks[id]; t.task.Phase == cluster.TaskClean && (!known || !id.WantedBy(j, m.node.Name)) {
			delete(m.tasks, id)
		}
	}
	return nil
}
