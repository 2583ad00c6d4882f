package reliability

import (
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// The streams of random numbers, after those of package faults.
const (
	streamOften faults.Stream = 100 + iota
	streamFailures
	streamHosts
	streamJobs
	streamLaunches
	streamCheckpoints
	streamLosses
	streamElastic
)

// sense is how a failure is noticed.
type sense uint8

const (
	byEvent  sense = iota // the driver reports it
	byExit                // the program exits
	bySilent              // the node does not respond
	byHang                // the program makes no progress, and then exits
)

// failure is one failure of hardware.
type failure struct {
	cause  string
	gpu    int32 // the only GPU that fails; -1: the whole node
	sense  sense
	flap   bool
	repair time.Duration
	found  bool // the node takes no new jobs because of it, or would not without the breaker
}

// causes is the mix of causes of Llama 3, in percent, with the names of their conditions.
var causes = []struct {
	name    string
	percent float64
}{{"GPU", 35}, {"HBM", 17}, {"SRAM or GPU processor", 9}, {"software or driver", 13}, {"network", 10}, {causeMaintenance, 8}, {"other", 8}}

const (
	causeMaintenance = "host maintenance"
	causeLeaf        = "leaf switch"
	causeRack        = "rack power"
	causePreemption  = "preemption"
	causeDamaged     = "damaged checkpoint"
	causeWrites      = "writing checkpoints"
)

// scope is what a failure hits.
type scope uint8

const (
	scopeNode scope = iota
	scopeGPU
	scopeLeaf
	scopeRack
)

// draw draws a failure. It takes the same number of random numbers for each.
func (m *Model) draw(r *rand.Rand) (f failure, hits scope) {
	f.gpu = -1
	f.cause = causes[len(causes)-1].name
	at := r.Float64() * 100
	for _, c := range causes {
		if at < c.percent {
			f.cause = c.name
			break
		}
		at -= c.percent
	}
	switch at := r.Float64(); {
	case at < m.GPUOnly:
		hits, f.gpu = scopeGPU, int32(r.IntN(max(m.GPUs, 1)))
	case at < m.GPUOnly+m.Leaf:
		hits = scopeLeaf
	case at < m.GPUOnly+m.Leaf+m.Rack:
		hits = scopeRack
	}
	switch at := r.Float64(); {
	case at < m.Exit:
		f.sense = byExit
	case at < m.Exit+m.Silent:
		f.sense = bySilent
	case at < m.Exit+m.Silent+m.Hang:
		f.sense = byHang
	}
	f.flap = r.Float64() < m.Flap
	long, within := r.Float64(), r.Float64()
	switch {
	case f.flap:
		f.repair = 5*time.Second + time.Duration(within*float64(m.FlapFor-5*time.Second))
		return f, hits
	case long < m.Repair3d:
		f.repair = 3 * day
	case long < m.Repair3d+m.Repair4h:
		f.repair = 4 * time.Hour
	case long < m.Repair3d+m.Repair4h+m.Repair15m:
		f.repair = 15 * time.Minute
	default:
		f.repair = 5 * time.Minute
	}
	f.repair = time.Duration(float64(f.repair) * m.RepairTimes * (0.5 + within))
	return f, hits
}

// onGPU reports whether the driver reports the cause as an event of a GPU.
func (f *failure) onGPU() bool {
	switch f.cause {
	case "GPU", "HBM", "SRAM or GPU processor", "software or driver":
		return true
	}
	return false
}

// scheduleFailure schedules the next failure of a node; each schedules the one after it.
func (x *simulation) scheduleFailure(h *host, n uint64) {
	rate := x.m.Rate / 1000
	if h.often {
		rate *= x.m.OftenTimes
	}
	if rate <= 0 {
		return
	}
	r := x.streams.For(streamFailures, uint64(h.index), n)
	x.In(faults.Within(r, time.Duration(float64(day)/rate)), func() error {
		x.scheduleFailure(h, n+1)
		f, hits := x.m.draw(r)
		x.r.NodeFailures++
		switch hits {
		case scopeLeaf:
			return x.loseLeaf(h.leaf)
		case scopeRack:
			f.cause, f.sense, f.flap = causeRack, bySilent, false
			for _, o := range x.hosts {
				if o.rack == h.rack {
					g := f
					if err := x.fail(o, &g); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return x.fail(h, &f)
	})
}

// fail makes a node, or one of its GPUs, fail, unless it has failed already.
func (x *simulation) fail(h *host, f *failure) error {
	if h.failed != nil || !h.on {
		return nil
	}
	switch {
	case f.gpu >= 0 && f.sense == bySilent:
		f.sense = byExit
	case f.gpu < 0 && f.cause == causeMaintenance:
		return x.maintain(h, f)
	case f.sense == byEvent && !f.onGPU(): // only programs notice it at once
		f.sense = byExit
	}
	h.failed = f
	if f.sense == bySilent {
		return x.silence(h, f)
	}
	x.stallOn(h, f)
	switch f.sense {
	case byEvent:
		x.In(x.m.EventAfter, func() error { return x.find(h, f, true) })
	case byHang:
		x.In(x.m.HangsFor, func() error { return x.find(h, f, false) })
	default:
		x.In(x.hostTime(h, x.m.ExitAfter, x.m.CheckAfter), func() error { return x.find(h, f, false) })
	}
	x.In(f.repair+x.m.EventAfter, func() error { return x.repair(h, f) })
	return nil
}

// find makes a node notice its failure: it reports a condition, and with an event ends the tasks that it hit.
func (x *simulation) find(h *host, f *failure, event bool) error {
	if h.failed != f || !h.on {
		return nil
	}
	f.found = true
	if f.gpu >= 0 {
		x.setGPU(h, f.gpu, "XID 48: uncorrectable memory error")
	} else {
		h.conditions = []cluster.Condition{{Cause: conditionOf(f), Effect: cluster.Drains, Repair: cluster.RepairReboot, Message: f.cause + " failed"}}
	}
	if event {
		for _, id := range h.order() {
			if t := h.tasks[id]; t.hitBy(f) {
				x.finish(h, id, t, cluster.Task{Cause: cluster.GPUFault, Message: f.cause + " failed"})
			}
		}
	}
	return x.report(h)
}

// conditionOf returns the cause by which the drains of a failure are counted.
func conditionOf(f *failure) string {
	switch {
	case f.onGPU():
		return "gpu_lost"
	case f.cause == "network":
		return "infiniband"
	}
	return "health"
}

// repair ends a failure that the node survived. A long repair ends with a boot.
func (x *simulation) repair(h *host, f *failure) error {
	if h.failed != f || !h.on {
		return nil
	}
	h.failed = nil
	if f.gpu >= 0 {
		x.setGPU(h, f.gpu, "")
	}
	h.conditions = append([]cluster.Condition{}, x.leafConditions(h)...)
	if f.gpu < 0 && f.repair >= 10*time.Minute {
		h.boot()
		if err := x.join(h); err != nil {
			return err
		}
	} else if err := x.report(h); err != nil {
		return err
	}
	return x.callOperator(h)
}

// callOperator makes an operator resume a node that stays drained after its repair.
func (x *simulation) callOperator(h *host) error {
	if n, known := x.State.Peek().Node(h.node.Name); !known || !n.Drain {
		return nil
	}
	x.r.Resumed++
	x.In(x.m.Operator, func() error {
		if h.failed != nil {
			return nil
		}
		return x.Must(&command.UpdateNodes{Actor: sim.Administrator(), Names: []string{h.node.Name}, Action: command.ResumeNodes})
	})
	return nil
}

// silence cuts a node off. After a flap it responds again, with its tasks; else it is off until its repair.
func (x *simulation) silence(h *host, f *failure) error {
	h.reachable, h.losses = false, h.losses+1
	last := x.Now.Add(-x.hostTime(h, 0, heartbeat))
	x.scheduleLiveness(h, last, cluster.SilentAfter, cluster.Silent)
	x.scheduleLiveness(h, last, x.State.Peek().Policy().NodeTimeout, cluster.Dead)
	if !f.flap {
		h.on = false
		x.stallOn(h, f)
		clear(h.tasks)
	}
	x.In(f.repair, func() error {
		h.failed, h.on, h.reachable = nil, true, true
		if !f.flap {
			h.boot()
		}
		return x.join(h)
	})
	return nil
}

// scheduleLiveness makes the leader lower the liveness of a node that has been silent for a time, counted at the
// earliest from when it began to lead.
func (x *simulation) scheduleLiveness(h *host, last cluster.Instant, wait time.Duration, to cluster.Liveness) {
	loss := h.losses
	at := max(last, x.leaderSince).Add(wait)
	x.In(at.Sub(x.Now), func() error {
		switch {
		case h.reachable || h.losses != loss:
			return nil
		case x.leaderSince.Add(wait) > x.Now:
			x.scheduleLiveness(h, last, wait, to)
			return nil
		}
		return x.Must(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: h.node.Name, Epoch: h.epoch, Liveness: to}}})
	})
}

// maintain drains a node, and takes it down some time later.
func (x *simulation) maintain(h *host, f *failure) error {
	h.failed = f
	f.found = true
	drain := &command.UpdateNodes{Actor: sim.Administrator(), Names: []string{h.node.Name}, Action: command.DrainNodes, Reason: "maintenance"}
	if err := x.Must(drain); err != nil {
		return err
	}
	x.In(x.m.Announced, func() error {
		if h.failed != f {
			return nil
		}
		g := *f
		g.flap, g.sense = false, bySilent
		h.failed = &g
		x.In(g.repair+x.m.EventAfter, func() error { return x.callOperator(h) })
		return x.silence(h, &g)
	})
	return nil
}

// loseLeaf takes the network below a leaf switch down. Programs of several nodes that have one there exit.
func (x *simulation) loseLeaf(leaf int) error {
	if x.leavesDown[leaf] {
		return nil
	}
	x.leavesDown[leaf] = true
	x.r.LeavesLost++
	f := &failure{cause: causeLeaf, gpu: -1}
	for _, h := range x.hosts {
		if h.leaf != leaf {
			continue
		}
		x.stallOn(h, f)
		x.In(x.hostTime(h, 3*time.Second, 15*time.Second), func() error { return x.showLeaf(h) })
		x.In(x.m.LeafDown+x.hostTime(h, 0, 5*time.Second), func() error { return x.showLeaf(h) })
	}
	x.In(x.m.LeafDown, func() error {
		delete(x.leavesDown, leaf)
		return nil
	})
	return nil
}

// leafConditions returns what a node reports of its ports.
func (x *simulation) leafConditions(h *host) []cluster.Condition {
	if !x.leavesDown[h.leaf] {
		return nil
	}
	return []cluster.Condition{{Cause: "infiniband", Effect: cluster.Drains, Message: "InfiniBand port mlx5_0/1 is down"}}
}

// showLeaf makes a node report the state of its ports.
func (x *simulation) showLeaf(h *host) error {
	if h.failed != nil || !h.on {
		return nil
	}
	h.conditions = append([]cluster.Condition{}, x.leafConditions(h)...)
	if err := x.report(h); err != nil {
		return err
	}
	if len(h.conditions) == 0 {
		return x.callOperator(h)
	}
	return nil
}

// hostTime draws a time between two bounds for a node.
func (x *simulation) hostTime(h *host, from, to time.Duration) time.Duration {
	h.draws++
	part := x.streams.For(streamHosts, uint64(h.index), h.draws).Float64()
	return from + time.Duration(part*float64(max(0, to-from)))
}
