package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// gpuReleaseTimeout is how long the driver may take to release a process and its memory.
	gpuReleaseTimeout = 10 * time.Second
	gpuReleasePause   = 250 * time.Millisecond
)

// causeGPUUsers is the source of the fault of a node whose driver does not list the users of its GPUs.
const causeGPUUsers = "gpu users"

// setUse takes a GPU out of service because it is in use after its job; without a reason it returns it.
func (a *Agent) setUse(uuid string, use health.Use) {
	if a.users[uuid] == use {
		return
	}
	if a.users[uuid] = use; use.Why == "" {
		delete(a.users, uuid)
		a.log.Info("GPU back in service", "uuid", uuid)
	} else {
		a.log.Error("GPU out of service", "uuid", uuid, "reason", use.Why)
	}
	a.saveHealth()
	a.badSince++
	nudge(a.reports)
}

// busyGPUs lists the GPUs that are still in use after patience. The processes of the job are gone by then:
// a program from outside the cluster uses them, or the driver has not released the memory of a process.
func (a *Agent) busyGPUs(ctx context.Context, uuids []string, patience time.Duration) []problem {
	for deadline := time.Now().Add(patience); ; {
		use, err := a.gpus.InUse(ctx, uuids)
		var found []problem
		if err != nil {
			found = []problem{{source: causeGPUUsers, reason: "cannot determine which processes use the GPUs: " + err.Error()}}
		}
		for _, uuid := range uuids {
			if p := a.busyGPU(uuid, use); p.reason != "" {
				found = append(found, p)
			}
		}
		if len(found) == 0 || !time.Now().Before(deadline) || ctx.Err() != nil {
			return found
		}
		select {
		case <-ctx.Done():
		case <-time.After(gpuReleasePause):
		}
	}
}

// busyGPU returns the problem of a GPU that processes use, or whose memory is not free.
func (a *Agent) busyGPU(uuid string, use gpu.InUse) problem {
	var pids []int
	for _, p := range use.Processes {
		if p.UUID == uuid && !slices.Contains(pids, p.PID) {
			pids = append(pids, p.PID)
		}
	}
	slices.Sort(pids)
	used := cluster.Bytes(use.Memory[uuid])
	switch {
	case len(pids) > 0:
		return problem{gpu: uuid, reason: fmt.Sprintf("GPU %s is still in use by %s after its job: kill that process", uuid, processNames("/proc", pids))}
	case a.cfg.GPUMemory > 0 && used > a.cfg.GPUMemory:
		return problem{gpu: uuid, repair: cluster.RepairReset, reason: fmt.Sprintf(
			"GPU %s has %d MiB in use after its job, but no process: reset it with nvidia-smi --gpu-reset -i %s", uuid, used/cluster.MiB, uuid)}
	}
	return problem{}
}

// recheckBusyGPUs returns GPUs to service that are free by now. It runs in the loop.
func (a *Agent) recheckBusyGPUs() {
	var uuids []string
	for _, d := range a.inventory.Devices {
		if a.users[d.UUID].Why != "" {
			uuids = append(uuids, d.UUID)
		}
	}
	unsure := a.faults[causeGPUUsers] != ""
	if len(uuids) == 0 && !unsure {
		return
	}
	a.workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), gpuReleaseTimeout)
		defer cancel()
		found := a.busyGPUs(ctx, uuids, 0)
		a.post(func() {
			failed := slices.ContainsFunc(found, func(p problem) bool { return p.source == causeGPUUsers })
			if !failed {
				a.setFault(causeGPUUsers, "")
			}
			for _, p := range found {
				a.setProblem(0, p)
			}
			for _, uuid := range uuids {
				if !failed && !slices.ContainsFunc(found, func(p problem) bool { return p.gpu == uuid }) {
					a.setUse(uuid, health.Use{})
				}
			}
		})
	})
}
