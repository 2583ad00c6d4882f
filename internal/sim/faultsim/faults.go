package faultsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// count counts a fault.
func (x *faultSim) count(kind string) { x.told.Faults[kind]++ }

// forecast puts the first of each kind of fault on the agenda; each brings the next.
func (x *faultSim) forecast() {
	gpus := 0
	for _, h := range x.hosts {
		gpus += len(h.node.GPUs)
	}
	m := &x.Faults
	x.again(faults.Nodes, m.NodeMTBF, len(x.names), x.lose)
	x.again(faults.GPUs, m.GPUMTBF, gpus, x.breakGPU)
	x.again(faults.Restarts, m.Restart, len(x.names), x.restart)
	x.again(faults.Leaders, m.Leader, 1, func() error {
		x.count("leader_changes")
		return x.elect()
	})
	x.again(faults.Clocks, m.Clock, 1, x.stepClock)
	x.again(faults.Admins, m.Admin, 1, x.administer)
	if len(x.Prices) > 0 {
		x.in(meterSpacing, x.meter)
	}
}

// again does something over and over, as long as there are jobs.
func (x *faultSim) again(k faults.Kind, mean time.Duration, n int, do func() error) {
	wait, ok := faults.Next(x.dice.Of(k), mean, n)
	if !ok {
		return
	}
	x.in(wait, func() error {
		x.again(k, mean, n, do)
		return do()
	})
}

// any is one of the machines.
func (x *faultSim) any(k faults.Kind) *host {
	return x.hosts[x.names[x.dice.Of(k).IntN(len(x.names))]]
}

// lose loses a machine: cut off, with its tasks running on, or gone with them.
func (x *faultSim) lose() error {
	dice := x.dice.Of(faults.Nodes)
	h, cut, away := x.any(faults.Nodes), faults.Yes(dice, x.Faults.Late), faults.Within(dice, x.Faults.Repair)
	if !h.heard {
		return nil
	}
	x.count("nodes_lost")
	h.heard, h.losts = false, h.losts+1
	if !cut {
		h.runs = false
		clear(h.tasks)
	}
	x.fade(h, h.losts, 2*heartbeat, cluster.Silent)
	x.fade(h, h.losts, x.State.Peek().Policy().NodeTimeout, cluster.Dead)
	x.in(away, func() error {
		if cut {
			x.count("nodes_back_with_late_reports")
		} else {
			h.boots++
			h.node.BootID = fmt.Sprintf("simulated-%d", h.boots)
		}
		h.runs, h.heard = true, true
		return x.join(h)
	})
	return nil
}

// fade has the leader note that it has not heard a machine for so long.
func (x *faultSim) fade(h *host, loss int, wait time.Duration, to cluster.Liveness) {
	x.in(wait, func() error {
		if h.heard || h.losts != loss {
			return nil
		}
		return x.Must(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: h.node.Name, Epoch: h.epoch, Liveness: to}}})
	})
}

// breakGPU has a GPU fail, and be repaired later.
func (x *faultSim) breakGPU() error {
	dice := x.dice.Of(faults.GPUs)
	h := x.any(faults.GPUs)
	away := faults.Within(dice, x.Faults.Repair)
	if len(h.node.GPUs) == 0 {
		return nil
	}
	g := int32(dice.IntN(len(h.node.GPUs)))
	if h.node.GPUs[g].Fault != "" || !h.runs {
		return nil
	}
	x.count("gpus_failed")
	x.markGPU(h, g, "XID 79: the GPU has fallen off the bus")
	for _, id := range h.order() {
		if t := h.tasks[id]; slices.Contains(t.gpus, g) {
			x.finish(h, id, t, ended{cause: cluster.GPUFault, message: h.node.GPUs[g].Fault})
		}
	}
	x.in(away, func() error {
		x.markGPU(h, g, "")
		return x.report(h)
	})
	return x.report(h)
}

func (x *faultSim) markGPU(h *host, g int32, bad string) {
	h.node.GPUs = slices.Clone(h.node.GPUs)
	h.node.GPUs[g].Fault = bad
}

// restart has a daemon go on from its records: it dials in and reports everything again.
func (x *faultSim) restart() error {
	h := x.any(faults.Restarts)
	if !h.heard {
		return nil
	}
	x.count("daemon_restarts")
	return x.join(h)
}

// mostSkew is how far off a leader's clock may be.
const mostSkew = 5 * time.Second

// stepClock sets the leader's clock off, within what a leader may be off.
func (x *faultSim) stepClock() error {
	x.count("clock_steps")
	x.Skew = time.Duration(x.dice.Of(faults.Clocks).Int64N(int64(2*mostSkew))) - mostSkew
	return nil
}

// meterSpacing is how often running jobs are metered here.
const meterSpacing = 10 * time.Minute

// meter says how long jobs have run, as the nodes count that are heard.
func (x *faultSim) meter() error {
	x.leader.round++
	c := &command.MeterJobs{}
	for j := range x.State.View().Jobs(0) {
		if !j.State.Holds() || j.Alloc == nil {
			continue
		}
		gpus, all := int64(0), true
		for i := range j.Alloc.Nodes {
			h := x.hosts[j.Alloc.Nodes[i].Node]
			gpus += int64(len(j.Alloc.Nodes[i].GPUs))
			all = all && h != nil && h.heard && h.tasks[attemptID{j.ID, j.Attempt}] != nil
		}
		if !all || gpus == 0 {
			continue
		}
		ran := x.leader.counted(attemptID{j.ID, j.Attempt}, j.Started, x.State.Peek().Now())
		c.Samples = append(c.Samples, command.JobSample{
			Job: j.ID, Attempt: j.Attempt, Epoch: x.leader.term, Number: x.leader.round, GPUms: gpus * ran.Milliseconds(),
		})
	}
	x.in(meterSpacing, x.meter)
	if len(c.Samples) == 0 {
		return nil
	}
	if err := x.Must(c); err != nil {
		return err
	}
	if faults.Yes(x.dice.Of(faults.Reports), x.Faults.Twice) {
		x.count("samples_delivered_twice")
		x.in(3*meterSpacing/2, func() error { return x.Must(c) })
	}
	return nil
}
