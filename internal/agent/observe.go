package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/reconcile"
	tasks "github.com/greylag/greylag/internal/runtime"
	"github.com/greylag/greylag/pkg/cluster"
)

// Observer receives measurements of a node's daemon. Its methods must not block.
type Observer interface {
	// Polled reports a query for the use of GPUs, and whether it failed.
	Polled(took time.Duration, failed bool)
}

// unobserved is the Observer of an agent without one.
type unobserved struct{}

func (unobserved) Polled(time.Duration, bool) {}

// Observation is the state of a node for monitoring.
type Observation struct {
	Name         string
	Driver       string // "" without GPUs
	Connected    bool   // a session with the controllers is open
	Reported     time.Time
	ReportErrors uint64
	Restarts     uint64 // of the GPU helper
	Faults       map[string]string
	Conditions   []cluster.Condition
	Timeouts     uint64            // runs of the health program that were killed
	Phases       map[string]int    // tasks by phase
	Ends         map[string]uint64 // tasks that ended since the daemon started, by cause
	GPUs         []GPUObservation
	Tasks        []TaskObservation
}

// GPUObservation is the state of a GPU.
type GPUObservation struct {
	gpu.Device
	Job     *JobOnGPU // nil: not allocated
	Load    gpu.Load  // the newest
	Events  []XIDCount
	LastXID int // 0: none since the daemon started
}

// JobOnGPU is the job to which a GPU is allocated.
type JobOnGPU struct {
	ID        cluster.JobID
	Attempt   cluster.Attempt
	Account   string
	Partition string
}

// XIDCount is the number of XID events of a kind since the daemon started.
type XIDCount struct {
	XID   int
	Class string // see gpu.Action
	Count uint64
}

// TaskObservation is the use of a running task.
type TaskObservation struct {
	Job   cluster.JobID
	Limit cluster.Bytes // of its memory; 0: none
	tasks.Stats
}

// xid identifies a kind of XID event of a device.
type xid struct {
	uuid   string
	number int
	class  string
}

// Observe returns the state of the node. It queries no GPU: values are those of the last poll.
func (a *Agent) Observe(ctx context.Context) (Observation, error) {
	answer := make(chan observed, 1)
	select {
	case a.calls <- func() { answer <- a.observe() }:
	case <-ctx.Done():
		return Observation{}, ctx.Err()
	}
	var o observed
	select {
	case o = <-answer:
	case <-ctx.Done():
		return Observation{}, ctx.Err()
	case <-a.done:
		return Observation{}, errStopped
	}
	o.ReportErrors, o.Timeouts = a.reportErrors.Load(), a.programTimeouts.Load()
	if at := a.reportedAt.Load(); at != 0 {
		o.Reported = time.Unix(0, at)
	}
	if h, restarts := a.gpus.(interface{ Restarts() uint64 }); restarts {
		o.Restarts = h.Restarts()
	}
	for _, r := range o.running {
		if stats, err := a.runtime.Stats(ctx, taskID(r.ID)); err == nil { // else it has ended since
			o.Tasks = append(o.Tasks, TaskObservation{r.Job, r.limit, stats})
		}
	}
	return o.Observation, nil
}

// errStopped is returned to observers of a daemon that has stopped.
var errStopped = errors.New("the daemon has stopped")

// observed is an Observation without the use of the running tasks.
type observed struct {
	Observation
	running []running
}

// running is a running task with the limit of its memory.
type running struct {
	reconcile.ID
	limit cluster.Bytes
}

// observe runs in the loop.
func (a *Agent) observe() (o observed) {
	o.Observation = Observation{
		Name: a.cfg.Name, Driver: a.inventory.Driver, Connected: a.connected, Faults: maps.Clone(a.faults), Conditions: a.conditionList(), Phases: map[string]int{}, Ends: map[string]uint64{},
	}
	for cause := cluster.Exited; cause <= cluster.MaxTaskCause; cause++ {
		o.Ends[cause.String()] = a.ends[cause]
	}
	for _, word := range phaseWords[reconcile.Accepted:] {
		o.Phases[word] = 0
	}
	holders := map[string]*task{}
	for _, t := range a.tasks {
		o.Phases[phaseWords[t.Phase]]++
		if t.Phase == reconcile.Started {
			o.running = append(o.running, running{t.ID, cluster.Bytes(t.own().GetMemory())})
		}
		if t.Phase < reconcile.Clean {
			for _, uuid := range a.uuidsOf(t) {
				holders[uuid] = t
			}
		}
	}
	for _, d := range a.inventory.Devices {
		d.Fault = a.statusOf(&d).Fault
		g := GPUObservation{Device: d, Load: a.loads[d.UUID], LastXID: a.lastXID[d.UUID]}
		if t := holders[d.UUID]; t != nil {
			g.Job = &JobOnGPU{t.ID.Job, t.ID.Attempt, t.spec.GetAccount(), t.spec.GetPartition()}
		}
		for kind, n := range a.xids {
			if kind.uuid == d.UUID {
				g.Events = append(g.Events, XIDCount{kind.number, kind.class, n})
			}
		}
		o.GPUs = append(o.GPUs, g)
	}
	slices.SortFunc(o.running, func(a, b running) int { return a.Compare(b.ID) })
	return o
}
