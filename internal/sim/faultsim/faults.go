package faultsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// count counts a fault.
func (x *faultSim) count(kind string) { x.summary.Faults[kind]++ }

// scheduleFaults schedules the first fault of each kind; each schedules the next.
func (x *faultSim) scheduleFaults() {
	gpus := 0
	for _, h := range x.hosts {
		gpus += len(h.node.GPUs)
	}
	m := &x.Faults
	x.repeatAfter(faults.Nodes, m.NodeMTBF, len(x.names), x.lose)
	x.repeatAfter(faults.GPUs, m.GPUMTBF, gpus, x.breakGPU)
	x.repeatAfter(faults.Restarts, m.Restart, len(x.names), x.restart)
	x.repeatAfter(faults.Leaders, m.Leader, 1, func() error {
		x.count("leader_changes")
		return x.elect()
	})
	x.repeatAfter(faults.Clocks, m.Clock, 1, x.stepClock)
	x.repeatAfter(faults.Admins, m.Admin, 1, x.administer)
	if len(x.Prices) > 0 {
		x.In(meterInterval, x.meter)
	}
}

// repeatAfter performs an action at random times with a mean interval.
func (x *faultSim) repeatAfter(k faults.Stream, mean time.Duration, n int, do func() error) {
	wait, ok := faults.Next(x.streams.Of(k), mean, n)
	if !ok {
		return
	}
	x.In(wait, func() error {
		x.repeatAfter(k, mean, n, do)
		return do()
	})
}

// anyHost returns a random machine.
func (x *faultSim) anyHost(k faults.Stream) *host {
	return x.hosts[x.names[x.streams.Of(k).IntN(len(x.names))]]
}

// lose loses a machine: cut off with its tasks running, or switched off.
func (x *faultSim) lose() error {
	r := x.streams.Of(faults.Nodes)
	h, cut, away := x.anyHost(faults.Nodes), faults.Yes(r, x.Faults.Late), faults.Within(r, x.Faults.Repair)
	if !h.reachable {
		return nil
	}
	x.count("nodes_lost")
	h.reachable, h.losses = false, h.losses+1
	if !cut {
		h.on = false
		clear(h.tasks)
	}
	x.fade(h, h.losses, 2*heartbeat, cluster.Silent)
	x.fade(h, h.losses, x.State.Peek().Policy().NodeTimeout, cluster.Dead)
	x.In(away, func() error {
		if cut {
			x.count("nodes_back_with_late_reports")
		} else {
			h.boots++
			h.node.BootID = fmt.Sprintf("simulated-%d", h.boots)
		}
		h.on, h.reachable = true, true
		return x.join(h)
	})
	return nil
}

// fade has the leader lower the liveness of a machine after a time without messages.
func (x *faultSim) fade(h *host, loss int, wait time.Duration, to cluster.Liveness) {
	x.In(wait, func() error {
		if h.reachable || h.losses != loss {
			return nil
		}
		return x.Must(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: h.node.Name, Epoch: h.epoch, Liveness: to}}})
	})
}

// breakGPU has a GPU fail and schedules its repair.
func (x *faultSim) breakGPU() error {
	r := x.streams.Of(faults.GPUs)
	h := x.anyHost(faults.GPUs)
	away := faults.Within(r, x.Faults.Repair)
	if len(h.node.GPUs) == 0 {
		return nil
	}
	g := int32(r.IntN(len(h.node.GPUs)))
	if h.node.GPUs[g].Fault != "" || !h.on {
		return nil
	}
	x.count("gpus_failed")
	x.markGPU(h, g, "XID 79: the GPU has fallen off the bus")
	for _, id := range h.order() {
		if t := h.tasks[id]; slices.Contains(t.gpus, g) {
			x.finish(h, id, t, taskEnd{cause: cluster.GPUFault, message: h.node.GPUs[g].Fault})
		}
	}
	x.In(away, func() error {
		x.markGPU(h, g, "")
		return x.report(h)
	})
	return x.report(h)
}

func (x *faultSim) markGPU(h *host, g int32, bad string) {
	h.node.GPUs = slices.Clone(h.node.GPUs)
	h.node.GPUs[g].Fault = bad
}

// restart restarts a node's daemon: it registers again and reports everything.
func (x *faultSim) restart() error {
	h := x.anyHost(faults.Restarts)
	if !h.reachable {
		return nil
	}
	x.count("daemon_restarts")
	return x.join(h)
}

// maxSkew is the most that a leader's clock may be wrong.
const maxSkew = 5 * time.Second

// stepClock sets the leader's clock to a random offset within maxSkew.
func (x *faultSim) stepClock() error {
	x.count("clock_steps")
	x.Skew = time.Duration(x.streams.Of(faults.Clocks).Int64N(int64(2*maxSkew))) - maxSkew
	return nil
}

// meterInterval is the time between two samples of running jobs.
const meterInterval = 10 * time.Minute

// meter sends samples of running jobs whose nodes the leader hears.
func (x *faultSim) meter() error {
	x.leader.round++
	c := &command.MeterJobs{}
	for j := range x.State.View().Jobs(0) {
		if !j.State.HasAllocation() || j.Alloc == nil {
			continue
		}
		gpus, all := int64(0), true
		for i := range j.Alloc.Nodes {
			h := x.hosts[j.Alloc.Nodes[i].Node]
			gpus += int64(len(j.Alloc.Nodes[i].GPUs))
			all = all && h != nil && h.reachable && h.tasks[sim.TaskOf(j, i)] != nil
		}
		if !all || gpus == 0 {
			continue
		}
		segment, since := x.segmentOf(j)
		ran := x.leader.counted(sim.TaskID{Job: j.ID, Attempt: j.Attempt, Granted: uint64(segment)}, since, x.State.Peek().Now())
		c.Samples = append(c.Samples, command.JobSample{
			Job: j.ID, Attempt: j.Attempt, Epoch: x.leader.term, Number: x.leader.round, GPUms: gpus * ran.Milliseconds(), Segment: segment,
		})
	}
	x.In(meterInterval, x.meter)
	if len(c.Samples) == 0 {
		return nil
	}
	if err := x.Must(c); err != nil {
		return err
	}
	if faults.Yes(x.streams.Of(faults.Reports), x.Faults.Duplicate) {
		x.count("samples_delivered_twice")
		x.In(3*meterInterval/2, func() error { return x.Must(c) })
	}
	return nil
}

// segmentOf returns the number and the begin of the present segment of a job's bill: another one begins with each
// change of the nodes of an elastic job.
func (x *faultSim) segmentOf(j *cluster.Job) (uint32, cluster.Instant) {
	n, known := x.State.Peek().Credits().Lien(accounting.LienID{Job: j.ID, Attempt: j.Attempt})
	if last := len(n.Segments) - 1; known && last > 0 {
		return uint32(last), n.Segments[last].Since
	}
	return 0, j.Started
}
