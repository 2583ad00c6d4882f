package faultsim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// attemptOn identifies a task and its node.
type attemptOn struct {
	sim.TaskID
	node string
}

// host is one machine and the daemon on it.
type host struct {
	node      cluster.Node // as the node describes itself
	epoch     uint64
	boots     int
	on        bool // it is switched on
	reachable bool // the controllers receive its messages
	losses    int  // how often it was lost
	seen      uint64
	tasks     map[sim.TaskID]*hostTask
}

// hostTask is a task on a machine.
type hostTask struct {
	rank     int
	gpus     []int32
	cpus     int32
	task     cluster.Task
	stopping bool
}

// order returns the tasks of a machine in a fixed order.
func (h *host) order() []sim.TaskID {
	return slices.SortedFunc(maps.Keys(h.tasks), sim.TaskID.Compare)
}

// Durations of messages and of machines.
const (
	oneWay    = time.Second
	heartbeat = 10 * time.Second
	cleaning  = 2 * time.Second
)

// sync has a machine start and stop tasks as the state wants, and report.
func (x *faultSim) sync(h *host) error {
	if !h.reachable {
		return nil
	}
	wanted := map[sim.TaskID]bool{}
	for j, rank := range x.State.View().OnNode(h.node.Name) {
		id := sim.TaskOf(j, rank)
		wanted[id] = true
		t, there := h.tasks[id]
		switch {
		case !there && j.Tasks.At(rank).Phase != cluster.TaskWanted: // gone: the report will say so
		case !there && (j.State == cluster.Completing || stops(j, rank)): // it never began
			h.tasks[id] = &hostTask{rank: rank, task: cluster.Task{Node: h.node.Name, Phase: cluster.TaskClean}}
		case !there:
			if err := x.launch(h, id, j, rank); err != nil {
				return err
			}
		case j.State == cluster.Completing || stops(j, rank):
			x.stop(h, id, t)
		}
	}
	for _, id := range h.order() {
		if !wanted[id] {
			x.stop(h, id, h.tasks[id])
		}
	}
	h.seen = x.Index
	return x.report(h)
}

// stops reports whether the task of a rank ends because its node leaves the job.
func stops(j *cluster.Job, rank int) bool { return j.Members != nil && j.Members.List[rank].Stops }

// launch begins a task and checks that no resource is allocated twice.
func (x *faultSim) launch(h *host, id sim.TaskID, j *cluster.Job, rank int) error {
	a := &j.Alloc.Nodes[rank]
	t := &hostTask{rank: rank, gpus: a.GPUs, cpus: a.CPUs, task: cluster.Task{Node: h.node.Name, Phase: cluster.TaskStarted, Started: x.Now}}
	on := attemptOn{id, h.node.Name}
	if x.begun[on] {
		return fmt.Errorf("%w: attempt %d of job %d begins on node %s a second time", ErrViolation, id.Attempt, id.Job, h.node.Name)
	}
	x.begun[on] = true
	cpus := t.cpus
	for _, other := range h.order() {
		o := h.tasks[other]
		if o.task.Phase == cluster.TaskClean {
			continue
		}
		cpus += o.cpus
		for _, g := range o.gpus {
			if slices.Contains(t.gpus, g) {
				return fmt.Errorf("%w: GPU %d of node %s is given to job %d while job %d has it", ErrViolation, g, h.node.Name, id.Job, other.Job)
			}
		}
	}
	if cpus > h.node.CPUs {
		return fmt.Errorf("%w: %d CPUs of node %s are given, it has %d", ErrViolation, cpus, h.node.Name, h.node.CPUs)
	}
	h.tasks[id] = t
	for _, g := range t.gpus {
		if h.node.GPUs[g].Fault != "" {
			x.finish(h, id, t, taskEnd{cause: cluster.GPUFault, message: h.node.GPUs[g].Fault})
			return nil
		}
	}
	x.simulateTask(h, id, t, j)
	return nil
}

// taskEnd is the end of a task.
type taskEnd struct {
	cause   cluster.TaskCause
	code    int32
	signal  int32
	message string
}

// finish ends a running task; the node is clean soon after.
func (x *faultSim) finish(h *host, id sim.TaskID, t *hostTask, e taskEnd) {
	if t.task.Phase >= cluster.TaskEnded || h.tasks[id] != t {
		return
	}
	t.task.Phase, t.task.Ended, t.task.Cause, t.task.Message = cluster.TaskEnded, x.Now, e.cause, e.message
	t.task.Exit = cluster.Exit{Code: e.code, Signal: e.signal}
	x.In(cleaning, func() error {
		if h.tasks[id] == t {
			t.task.Phase = cluster.TaskClean
		}
		return x.report(h)
	})
}

// stop ends a task that is not wanted any more.
func (x *faultSim) stop(h *host, id sim.TaskID, t *hostTask) {
	if t.stopping || t.task.Phase >= cluster.TaskEnded {
		return
	}
	t.stopping = true
	x.In(time.Second, func() error {
		x.finish(h, id, t, taskEnd{cause: cluster.Stopped})
		return x.report(h)
	})
}

// report sends what is on a machine, if the controllers receive it.
func (x *faultSim) report(h *host) error {
	if !h.reachable {
		return nil
	}
	r := &command.ReportTasks{Node: h.node.Name, Epoch: h.epoch, Seen: h.seen, GPUs: slices.Clone(h.node.GPUs)}
	for _, id := range h.order() {
		t := h.tasks[id]
		said := command.TaskReport{Job: id.Job, Attempt: id.Attempt, Granted: id.Granted, Task: t.task}
		if t.task.Ended > 0 {
			said.Ran = t.task.Ended.Sub(t.task.Started)
		}
		r.Tasks = append(r.Tasks, said)
	}
	streams := x.streams.Of(faults.Reports)
	if faults.Yes(streams, x.Faults.Lost) {
		x.count("reports_lost")
		x.In(heartbeat, func() error { return x.report(h) })
		return nil
	}
	if faults.Yes(streams, x.Faults.Duplicate) {
		x.In(oneWay+time.Duration(streams.Int64N(int64(10*time.Minute))), func() error { return x.repeatReport(h, r) })
	}
	return x.deliver(h, r)
}

// repeatReport delivers an old report again; the next one follows soon.
func (x *faultSim) repeatReport(h *host, r *command.ReportTasks) error {
	if !h.reachable {
		return nil
	}
	x.count("reports_delivered_twice")
	again := *r
	again.Tasks, again.GPUs = slices.Clone(r.Tasks), nil
	if _, err := x.Apply(&again); err != nil {
		return err
	}
	x.In(heartbeat, func() error { return x.report(h) })
	return nil
}

// deliver delivers a report to the controllers. The node forgets the tasks that they have recorded.
func (x *faultSim) deliver(h *host, r *command.ReportTasks) error {
	if !x.State.Peek().NothingNew(r) {
		answer, err := x.Apply(r)
		if err != nil {
			return err
		}
		if _, refused := answer.(*command.Refusal); refused { // removed meanwhile: it registers again
			x.In(heartbeat, func() error { return x.join(h) })
			return nil
		}
	}
	view := x.State.View()
	for id, t := range h.tasks {
		j, known := view.Job(id.Job)
		if t.task.Phase == cluster.TaskClean && !(known && id.WantedBy(j, h.node.Name)) {
			delete(h.tasks, id)
		}
	}
	return nil
}

// join registers a machine: its daemon connects, receives what is wanted, and reports.
func (x *faultSim) join(h *host) error {
	if !h.reachable {
		return nil
	}
	n := h.node
	n.GPUs = slices.Clone(n.GPUs)
	for _, t := range h.tasks { // all tasks, wanted or not: no controller may know them
		if t.task.Phase < cluster.TaskClean {
			n.Orphans++
		}
	}
	r, err := x.Apply(&command.RegisterNode{Node: n})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return sim.RefusalError(r)
	}
	h.epoch, h.seen = registered.Epoch, 0
	x.In(oneWay, func() error { return x.sync(h) })
	return x.report(h)
}
