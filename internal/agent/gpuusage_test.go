package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/gpu"
	"github.com/greylag/greylag/internal/health"
	"github.com/greylag/greylag/internal/reconcile"
	"github.com/greylag/greylag/internal/runtime/containerd"
	"github.com/greylag/greylag/internal/taskdb"
	"github.com/greylag/greylag/pkg/cluster"
)

// boards simulates GPUs whose load the test sets.
type boards struct {
	gpu.None
	say func(context.Context, []gpu.DeviceSet) ([]gpu.Load, error)
}

func (b *boards) Loads(ctx context.Context, held []gpu.DeviceSet) ([]gpu.Load, error) {
	return b.say(ctx, held)
}

// load returns one board's answer; negative values mean unknown.
func load(uuid string, percent, bytes int64) gpu.Load {
	l := gpu.Load{UUID: uuid}
	if percent >= 0 {
		l.Busy = &percent
	}
	if bytes >= 0 {
		l.Memory = &bytes
	}
	return l
}

// sampledAgent returns an agent with four GPUs: job 1 has two, job 2 has one, and job 3 none.
func sampledAgent(b *boards) *Agent {
	a := &Agent{
		cfg: Config{Meter: 5 * time.Second, Observer: unobserved{}, Log: slog.New(slog.DiscardHandler)}, log: slog.New(slog.DiscardHandler), gpus: b,
		calls: make(chan func()), done: make(chan struct{}),
		state: state{health: health.NewGPUs(), tasks: map[reconcile.ID]*task{}, dirty: map[reconcile.ID]bool{}},
	}
	for i := range 4 {
		a.inventory.Devices = append(a.inventory.Devices, gpu.Device{GPU: cluster.GPU{UUID: "g" + strconv.Itoa(i)}})
	}
	for job, gpus := range [][]int32{{0, 1}, {2}, nil} {
		id := at(job+1, 1)
		a.tasks[id] = newTask(&taskdb.Task{ID: id, Phase: reconcile.Started}, &greylagv1.WantedTask{Nodes: []*greylagv1.NodeAllocation{{Gpus: gpus}}})
	}
	return a
}

// runFor lets the agent sample GPUs for d.
func (a *Agent) runFor(t *testing.T, d time.Duration) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	go func() {
		for {
			select {
			case call := <-a.calls:
				call()
			case <-t.Context().Done():
				return
			}
		}
	}()
	a.watchUse(ctx)
	synctest.Wait()
}

func (a *Agent) use(job int) cluster.GPUUse { return a.tasks[at(job, 1)].GPU }

// TestGPUUseAddsUp checks that samples count for the time since the previous one, that missing
// values are unknown, and that unallocated GPUs are sampled for monitoring only.
func TestGPUUseAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		a := sampledAgent(&boards{say: func(_ context.Context, held []gpu.DeviceSet) ([]gpu.Load, error) {
			asked := 0
			for _, h := range held {
				asked += len(h.UUIDs)
			}
			if looks++; len(held) != 3 || asked != 4 || held[2].UUIDs[0] != "g3" {
				t.Errorf("asked of %+v", held)
			}
			return []gpu.Load{load("g0", 50, 3<<30), load("g1", int64(looks%2)*100, 7<<30), load("g2", -1, 0), load("g3", 100, 9<<30)}, nil
		}})
		a.runFor(t, 61*time.Second)
		// 12 samples in a minute: half of one GPU, and the other in every second sample.
		if got, want := a.use(1), (cluster.GPUUse{BusyMs: 60_000, KnownMs: 120_000, MemoryPeak: 7 << 30, MemoryKnown: true}); got != want {
			t.Errorf("two GPUs: %+v, want %+v", got, want)
		}
		if got, want := a.use(2), (cluster.GPUUse{MemoryKnown: true}); got != want {
			t.Errorf("a GPU that does not tell: %+v, want %+v", got, want)
		}
		if got := a.use(3); got != (cluster.GPUUse{}) || len(a.dirty) != 2 {
			t.Errorf("no GPU: %+v, and %d records to write", got, len(a.dirty))
		}
		if o := a.observe(); len(o.GPUs) != 4 || o.GPUs[3].Load.Busy == nil || *o.GPUs[3].Load.Busy != 100 {
			t.Errorf("an unallocated GPU: %+v", o.GPUs)
		}
	})
}

// TestGPUUseOfGaps checks that the next sample covers one that failed or hung, unless it comes too
// late, and that nothing is delayed.
func TestGPUUseOfGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := sampledAgent(&boards{say: func(ctx context.Context, _ []gpu.DeviceSet) ([]gpu.Load, error) {
			switch now := time.Since(began); {
			case now < 20*time.Second: // known up to 15 s
				return []gpu.Load{load("g2", 100, 1)}, nil
			case now < 25*time.Second:
				return nil, errors.New("the helper was killed")
			case now < 30*time.Second:
				<-ctx.Done()
				return nil, ctx.Err()
			case now < 45*time.Second: // 30 s, for the time since 15 s; known up to 40 s
				return []gpu.Load{load("g2", 0, 1)}, nil
			case now < 60*time.Second:
				return nil, errors.New("it is started again and again")
			}
			return []gpu.Load{load("g2", 100, 5)}, nil // 60 s is too late; 65 and 70 s count
		}})
		a.runFor(t, 71*time.Second)
		if got, want := a.use(2), (cluster.GPUUse{BusyMs: 25_000, KnownMs: 50_000, MemoryPeak: 5, MemoryKnown: true}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := a.use(1); got != (cluster.GPUUse{}) {
			t.Errorf("without GPU reports: %+v", got)
		}
	})
}

// TestFailedSample: monitoring shows no old values of GPUs that do not answer.
func TestFailedSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := sampledAgent(&boards{say: func(context.Context, []gpu.DeviceSet) ([]gpu.Load, error) {
			if time.Since(began) > 10*time.Second {
				return nil, errors.New("the driver hangs")
			}
			return []gpu.Load{load("g3", 100, 1)}, nil
		}})
		a.runFor(t, 11*time.Second)
		if o := a.observe(); o.GPUs[3].Load.Busy == nil {
			t.Error("no value after samples")
		}
		a.runFor(t, 5*time.Second+time.Millisecond)
		if o := a.observe(); o.GPUs[3].Load.Busy != nil {
			t.Error("a value after a failed sample")
		}
	})
}

// TestGPUUseOfTasks runs containers that have a simulated GPU open, or not, and an agent that
// restarts while they run.
func TestGPUUseOfTasks(t *testing.T) {
	t.Parallel()
	n := newNode(t, "containerd", func(n *node) {
		n.gpus = gpu.NewSimulated("n1", filepath.Join(n.dir, "gpus"), []gpu.Group{{Count: 2, Type: "h100"}})
		n.cfg.Meter = 50 * time.Millisecond
		n.cfg.Device = func(index int32) string { return containerd.DeviceKind + "=" + strconv.Itoa(int(index)) }
		n.cfg.Describe = func(inventory gpu.Inventory) error { return describe(n, inventory) }
	})
	began := time.Now()
	n.want(at(1, 1), "#!/bin/sh\nexec 3</dev/nvidia1\nuntil [ -e go ]; do sleep 0.02; done\nexec 3<&-\nuntil [ -e end ]; do sleep 0.02; done\n", onGPU(n, 1))
	n.want(at(2, 1), "#!/bin/sh\nuntil [ -e end ]; do sleep 0.02; done\n", onGPU(n, 0))
	said := func(what string, job int, is func(*greylagv1.ReportedTask) bool) (last *greylagv1.ReportedTask) {
		n.until(what, func() bool {
			last = n.last(at(job, 1))
			return last != nil && is(last)
		})
		return last
	}
	said("busy", 1, func(r *greylagv1.ReportedTask) bool { return r.GetGpuBusyMs() > 0 })
	touch(t, n, "go")
	before := said("idle", 1, func(r *greylagv1.ReportedTask) bool { return r.GetGpuKnownMs() > r.GetGpuBusyMs() })
	n.stop()
	n.start()
	said("further", 1, func(r *greylagv1.ReportedTask) bool { return r.GetGpuKnownMs() > before.GetGpuKnownMs() })
	said("another one", 2, func(r *greylagv1.ReportedTask) bool { return r.GetGpuKnownMs() > 0 })
	touch(t, n, "end")
	end, idle := n.settled(at(1, 1)), n.settled(at(2, 1))
	most := time.Since(began).Milliseconds()
	if end.GetGpuBusyMs() < before.GetGpuBusyMs() || end.GetGpuBusyMs() >= end.GetGpuKnownMs() || end.GetGpuKnownMs() > most || end.GpuMemoryPeakBytes != nil {
		t.Errorf("within %d ms: %v", most, end)
	}
	if idle.GetGpuBusyMs() != 0 || idle.GetGpuKnownMs() == 0 || idle.GetGpuKnownMs() > most {
		t.Errorf("within %d ms, never open: %v", most, idle)
	}
}

// describe passes the simulated devices to the runtime.
func describe(n *node, inventory gpu.Inventory) error {
	var gpus []containerd.GPU
	for _, d := range inventory.Devices {
		one := containerd.GPU{Index: int(d.Index), UUID: d.UUID}
		for _, f := range d.Files {
			one.Nodes = append(one.Nodes, containerd.Node{HostPath: f.Host, Path: f.Task})
		}
		gpus = append(gpus, one)
	}
	return containerd.WriteDevices(filepath.Join(n.dir, "cdi"), gpus, nil, nil)
}
