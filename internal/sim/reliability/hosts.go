package reliability

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/pkg/cluster"
)

// stops reports whether the task of a rank ends because its node leaves the job.
func stops(j *cluster.Job, rank int) bool { return j.Members != nil && j.Members.List[rank].Stops }

// host is one machine and the daemon on it. The state knows of it only what its messages report.
type host struct {
	index      int
	node       cluster.Node // as the node describes itself
	leaf, rack int
	often      bool // it fails often
	found      bool // the state took it for such a node
	epoch      uint64
	boots      int
	on         bool
	reachable  bool // the controllers receive its messages
	losses     int
	draws      uint64
	seen       uint64
	syncing    bool // a message with its wanted tasks is on its way
	tasks      map[sim.TaskID]*hostTask
	conditions []cluster.Condition
	failed     *failure
	gpusNew    bool // its GPUs have changed since its last report
}

// hostTask is a task on a machine.
type hostTask struct {
	gpus     []int32
	task     cluster.Task
	stopping bool
}

// hitBy reports whether a failure of the node hits the task.
func (t *hostTask) hitBy(f *failure) bool { return f.gpu < 0 || slices.Contains(t.gpus, f.gpu) }

// Durations of messages and of machines.
const (
	oneWay    = 500 * time.Millisecond
	heartbeat = 10 * time.Second
	stopping  = 3 * time.Second
	cleaning  = 2 * time.Second
)

// order returns the tasks of a machine in a fixed order.
func (h *host) order() []sim.TaskID {
	return slices.SortedFunc(maps.Keys(h.tasks), sim.TaskID.Compare)
}

// boot makes a machine start again, without its tasks.
func (h *host) boot() {
	h.boots++
	h.node.BootID = fmt.Sprintf("simulated-%d", h.boots)
	h.conditions = []cluster.Condition{}
	h.node.GPUs = slices.Clone(h.node.GPUs)
	for i := range h.node.GPUs {
		h.node.GPUs[i].Fault = ""
	}
	clear(h.tasks)
}

func (x *simulation) setGPU(h *host, gpu int32, fault string) {
	h.node.GPUs = slices.Clone(h.node.GPUs)
	h.node.GPUs[gpu].Fault, h.gpusNew = fault, true
}

// wakeHost sends a machine its wanted tasks.
func (x *simulation) wakeHost(h *host) {
	if h == nil || h.syncing {
		return
	}
	h.syncing = true
	x.In(oneWay, func() error {
		h.syncing = false
		return x.sync(h)
	})
}

// sync makes a machine start and stop tasks as the state wants, and report.
func (x *simulation) sync(h *host) error {
	if !h.reachable {
		return nil
	}
	wanted := map[sim.TaskID]bool{}
	for j, rank := range x.State.View().OnNode(h.node.Name) {
		id := sim.TaskOf(j, rank)
		wanted[id] = true
		t, there := h.tasks[id]
		switch {
		case !there && j.Tasks.At(rank).Phase != cluster.TaskWanted: // gone: the report will say it
		case !there && (j.State == cluster.Completing || stops(j, rank)): // it never began
			h.tasks[id] = &hostTask{task: cluster.Task{Node: h.node.Name, Phase: cluster.TaskClean}}
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

// launch begins a task, and checks that no GPU is given to two tasks, and that no other attempt of the job runs
// on a machine that responds.
func (x *simulation) launch(h *host, id sim.TaskID, j *cluster.Job, rank int) error {
	t := &hostTask{gpus: j.Alloc.Nodes[rank].GPUs, task: cluster.Task{Node: h.node.Name, Phase: cluster.TaskWanted}}
	for _, other := range h.order() {
		o := h.tasks[other]
		if o.task.Phase == cluster.TaskClean {
			continue
		}
		for _, g := range o.gpus {
			if slices.Contains(t.gpus, g) {
				return fmt.Errorf("%w: GPU %d of node %s is given to job %d while job %d has it", ErrViolation, g, h.node.Name, id.Job, other.Job)
			}
		}
	}
	if rank == 0 {
		if err := x.checkAlone(id); err != nil {
			return err
		}
	}
	h.tasks[id] = t
	wait := x.hostTime(h, x.m.Launch/4, x.m.Launch)
	if j.Resume != 0 {
		wait += x.m.Verify
	}
	x.In(wait, func() error {
		if h.tasks[id] != t || t.task.Phase >= cluster.TaskEnded || t.stopping {
			return nil
		}
		if s := x.slotOf[id.Job]; rank == 0 && s != nil && s.damaged[j.Resume] {
			x.finish(h, id, t, cluster.Task{Cause: cluster.CheckpointFailed, Message: fmt.Sprintf("checkpoint %d: shard-0017: 3 of 420 pieces differ", j.Resume)})
			return x.report(h)
		}
		t.task.Phase, t.task.Started = cluster.TaskStarted, x.Now
		return x.report(h)
	})
	return nil
}

// checkAlone checks that no task of an earlier attempt of a job runs on a machine that responds.
func (x *simulation) checkAlone(id sim.TaskID) error {
	for _, h := range x.hosts {
		if !h.reachable {
			continue
		}
		for other, t := range h.tasks {
			if other.Job == id.Job && other.Attempt < id.Attempt && t.task.Phase < cluster.TaskEnded && !t.stopping {
				return fmt.Errorf("%w: attempt %d of job %d runs on node %s while attempt %d starts", ErrViolation, other.Attempt, id.Job, h.node.Name, id.Attempt)
			}
		}
	}
	return nil
}

// finish ends a task as end describes; the node is clean soon after.
func (x *simulation) finish(h *host, id sim.TaskID, t *hostTask, end cluster.Task) {
	if t.task.Phase >= cluster.TaskEnded || h.tasks[id] != t {
		return
	}
	t.task.Phase, t.task.Ended, t.task.Cause, t.task.Message, t.task.Exit = cluster.TaskEnded, x.Now, end.Cause, end.Message, end.Exit
	x.In(cleaning, func() error {
		if h.tasks[id] == t {
			t.task.Phase = cluster.TaskClean
		}
		return x.report(h)
	})
}

// stop ends a task that is not wanted any more.
func (x *simulation) stop(h *host, id sim.TaskID, t *hostTask) {
	if t.stopping || t.task.Phase >= cluster.TaskEnded {
		return
	}
	t.stopping = true
	x.In(stopping, func() error {
		x.finish(h, id, t, cluster.Task{Cause: cluster.Stopped})
		return x.report(h)
	})
}

// report sends what is on a machine, if the controllers receive it and it is new to them. The node forgets the
// tasks whose end they have recorded.
func (x *simulation) report(h *host) error {
	if !h.reachable {
		return nil
	}
	r := &command.ReportTasks{Node: h.node.Name, Epoch: h.epoch, Seen: h.seen, Conditions: h.conditions}
	if h.gpusNew {
		r.GPUs, h.gpusNew = h.node.GPUs, false
	}
	for _, id := range h.order() {
		t := h.tasks[id]
		said := command.TaskReport{Job: id.Job, Attempt: id.Attempt, Granted: id.Granted, Task: t.task}
		if t.task.Ended > 0 && t.task.Started > 0 {
			said.Ran = t.task.Ended.Sub(t.task.Started)
		}
		r.Tasks = append(r.Tasks, said)
	}
	if !x.State.Peek().NothingNew(r) {
		if err := x.Must(r); err != nil {
			return err
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

// join registers a machine: its daemon connects, and reports.
func (x *simulation) join(h *host) error {
	n := h.node
	n.GPUs, n.Conditions = slices.Clone(n.GPUs), h.conditions
	for _, t := range h.tasks {
		if t.task.Phase < cluster.TaskClean {
			n.Orphans++
		}
	}
	r, err := x.Apply(&command.RegisterNode{Node: n, Checked: true})
	if err != nil {
		return err
	}
	registered, ok := r.(*command.Registered)
	if !ok {
		return sim.RefusalError(r)
	}
	h.epoch, h.seen, h.gpusNew = registered.Epoch, 0, false
	x.wakeHost(h)
	return x.report(h)
}
