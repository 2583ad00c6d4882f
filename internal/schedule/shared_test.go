package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// FuzzSharedGPUs lets jobs come and end at random. Some share GPUs. The state refuses a start on a GPU that
// another user, or too many jobs, have, and checks its own tables. No start may be refused and no promise broken,
// although jobs end at other times than expected.
func FuzzSharedGPUs(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		x := newSharingSite(t, seed)
		for range 60 {
			x.step()
		}
		if seed < 60 && x.joined == 0 {
			t.Error("no job shared a GPU")
		}
	})
}

// TestManySharingClasses has more searches for places than a pass makes: each of 60 classes fails on 40 GPUs, which are
// planned for others an hour from now. The last job is short enough to share one, and starts before the passes end.
func TestManySharingClasses(t *testing.T) {
	for _, depth := range []int32{cluster.Unlimited, 1000} { // with a depth each pass plans all jobs again
		x := &sharingSite{site: site{t: t, s: state.New(), now: 1, plan: schedule.NewPlanner()}}
		policy := openPolicy()
		policy.Partitions[0].GPUShare, policy.Scheduling.Depth = cluster.MaxGPUShare, depth
		x.apply(&command.Init{ClusterID: "test", Policy: policy})
		submit := func(user string, cpus int32, memory cluster.Bytes, share int32, limit time.Duration) {
			who := command.Actor{Identity: cluster.Identity{User: user, UID: 1000, GID: 100}}
			x.apply(&command.SubmitJobs{Actor: who, Jobs: []command.Submission{{Spec: cluster.JobSpec{
				Name: "j", WorkDir: "/", TimeLimit: limit,
				Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, CPUsPerTask: cpus, MemPerNode: memory, Share: cluster.GPUShare{Jobs: share}},
			}}}})
		}
		for i := range 40 {
			x.do([]string{"node", fmt.Sprintf("n%d", i), "gpus=1", "cpus=64"})
			submit("ada", 40, cluster.GiB, 2, time.Hour)
		}
		x.quiet(100)
		for range 40 {
			submit("bob", 1, cluster.GiB, 0, time.Hour)
		}
		x.quiet(100)
		for i := range 60 {
			submit("ada", 1, cluster.Bytes(i+1)*cluster.MiB, 2, 10*time.Hour)
		}
		submit("ada", 1, cluster.GiB, 2, 10*time.Minute)
		x.quiet(30)
		if j, _ := x.s.View().Job(141); j.Alloc == nil {
			t.Errorf("depth %d: the last job did not start: %s %s", depth, j.Reason, j.Detail)
		}
	}
}

// quiet makes passes until one says that nothing is left to do.
func (x *sharingSite) quiet(most int) {
	for range most {
		d := x.plan.Pass(x.s.View().Snapshot())
		x.apply(&command.CommitPlan{Plan: d.Plan})
		if x.now++; len(d.Plan.Starts) == 0 && !d.More {
			return
		}
		x.apply(&command.Tick{})
	}
	x.t.Errorf("%d passes without an end", most)
}

type sharingSite struct {
	site
	r      *rand.Rand
	wake   cluster.Instant
	joined int // starts on a GPU that another job had
}

func newSharingSite(t *testing.T, seed uint64) *sharingSite {
	x := &sharingSite{site: site{t: t, s: state.New(), now: 1, plan: schedule.NewPlanner()}, r: rand.New(rand.NewPCG(seed, 7))}
	policy := openPolicy()
	policy.Partitions[0].GPUShare = cluster.MaxGPUShare
	policy.KillWait = 0
	x.apply(&command.Init{ClusterID: "test", Policy: policy})
	for i := range 1 + x.r.IntN(3) {
		x.do([]string{"node", fmt.Sprintf("n%d", i), fmt.Sprintf("gpus=%d", 1+x.r.IntN(3)), "type=" + []string{"h100", "a100"}[x.r.IntN(2)]})
	}
	return x
}

// step submits jobs, ends one, lets time pass, and makes passes.
func (x *sharingSite) step() {
	for range x.r.IntN(4) {
		x.submit()
	}
	var running []cluster.JobID
	for j := range x.s.View().Jobs(0) {
		if j.State.HasAllocation() {
			running = append(running, j.ID)
		}
	}
	if len(running) > 0 && x.r.IntN(3) > 0 {
		x.end(fmt.Sprint(running[x.r.IntN(len(running))]))
	}
	for until := x.now.Add(time.Duration(x.r.IntN(1800)) * time.Second); x.now < until; {
		x.passes()
		x.now = min(until, max(x.now+1, min(x.wake, x.s.View().NextDue())))
		x.apply(&command.Tick{})
		for _, j := range slices.Collect(x.s.View().Jobs(0)) { // those that reached their limit
			if j.State == cluster.Completing {
				x.end(fmt.Sprint(j.ID))
			}
		}
	}
	x.passes()
}

// passes makes passes until nothing is left to do.
func (x *sharingSite) passes() {
	for range 20 {
		if !x.onePass() {
			return
		}
	}
	x.t.Error("20 passes without an end")
}

func (x *sharingSite) submit() {
	spec := cluster.JobSpec{
		Name: "j", WorkDir: "/", TimeLimit: time.Duration(1+x.r.IntN(120)) * time.Minute, Nice: int32(x.r.IntN(3)),
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, CPUsPerTask: int32(1 + x.r.IntN(16))},
	}
	switch x.r.IntN(5) {
	case 0:
		spec.Request.GPUsPerNode = int32(x.r.IntN(4))
	case 1:
	default:
		spec.Request.Share = cluster.GPUShare{Jobs: cluster.GPUShares[x.r.IntN(2)], MPS: x.r.IntN(4) == 0}
	}
	user := []string{"ada", "bob"}[x.r.IntN(2)]
	who := command.Actor{Identity: cluster.Identity{User: user, UID: 1000 + uint32(user[0]), GID: 100}}
	x.apply(&command.SubmitJobs{Actor: who, Jobs: []command.Submission{{Spec: spec}}})
}

// onePass makes a pass and reports whether another one is needed.
func (x *sharingSite) onePass() bool {
	x.t.Helper()
	if x.r.IntN(20) == 0 { // a new leader
		x.plan = schedule.NewPlanner()
	}
	d := x.plan.Pass(x.s.View().Snapshot())
	x.wake = d.Wake
	for _, v := range d.Plan.Verdicts {
		if v.Broken != "" {
			x.t.Fatalf("the promise of job %d is broken: %s", v.Job, v.Broken)
		}
	}
	if len(d.Plan.Starts)+len(d.Plan.Verdicts) > 0 {
		x.apply(&command.CommitPlan{Plan: d.Plan})
	}
	for _, s := range d.Plan.Starts {
		j, _ := x.s.View().Job(s.Job)
		if j.Alloc == nil {
			x.t.Fatalf("the start of job %d on %v is refused", s.Job, s.Placement.Nodes)
		}
		u := x.s.View().Use(s.Placement.Nodes[0].Node)
		for _, g := range s.Placement.Nodes[0].GPUs {
			if shared := u.SharedGPU(g); shared != nil && shared.Jobs > 1 {
				x.joined++
			}
		}
	}
	return len(d.Plan.Starts) > 0 || d.More
}
