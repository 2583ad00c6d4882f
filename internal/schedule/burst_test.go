package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/burst"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

// TestBurstReports reads testdata/burst/*.txt: a cluster, and what would be leased for each job and why.
func TestBurstReports(t *testing.T) {
	scenario.Cases(t, "testdata/burst/*.txt", func(t *testing.T, text string) string {
		var b strings.Builder
		for _, x := range BurstReport(draw(t, text)) {
			b.WriteString(writeChoice(x) + "\n")
		}
		return strings.TrimSpace(b.String())
	})
}

func writeChoice(x burst.Choice) string {
	text := fmt.Sprintf("%d", x.Job)
	if x.Commit {
		text += " is sent"
	}
	if x.At > 0 {
		text += " at +" + x.At.Sub(start).String()
	}
	if x.Offer != nil {
		text += fmt.Sprintf(" saves %s worth %s for %s on %d × %s", x.Saved, burst.Money(x.Value, false, "USD"), burst.Money(x.Cost, true, "USD"), x.Nodes, x.Offer.Name)
	}
	return text + ": " + x.Why
}

// leasedFor returns a snapshot a second later in which the launches of a decision have become leases.
func leasedFor(snap *cluster.Snapshot, d Decision) *cluster.Snapshot {
	next := later(snap, time.Second)
	view := *snap.Burst
	view.Leases, view.Left = slices.Clone(view.Leases), maps.Clone(view.Left)
	for _, x := range d.Plan.Launches {
		for range x.Nodes {
			id := cluster.LeaseID(len(view.Leases) + 1)
			view.Leases = append(view.Leases, &cluster.Lease{ID: id, Job: x.Job, For: x.Job, State: cluster.LeasePlanned, Offer: cluster.Offer{Market: x.Offer.Market}})
		}
		view.Left[""] -= x.Cost
	}
	next.Burst = &view
	return next
}

const twoJobs = `
	qos fast worth=1
	burst .
	offer a/us price=2
	node n1 gpus=8
	run 1 on=n1:0-7 gpus=8 left=8h limit=9h
	job 10 gpus=8 limit=2h qos=fast burst=allow
	job 11 gpus=8 limit=1h qos=fast burst=allow`

// TestOneLaunchAPass checks that each pass leases nodes for one job, that the next one follows at once, and that each job
// gets its nodes once.
func TestOneLaunchAPass(t *testing.T) {
	snap, p := draw(t, twoJobs), NewPlanner()
	for _, want := range []cluster.JobID{11, 10} {
		d := p.Pass(snap)
		if len(d.Plan.Launches) != 1 || d.Plan.Launches[0].Job != want || !d.More {
			t.Fatalf("want a launch for %d: %s", want, write(d))
		}
		settle(snap, d)
		snap = leasedFor(snap, d)
	}
	if d := p.Pass(snap); len(d.Plan.Launches) > 0 || d.More {
		t.Errorf("both have their nodes: %s", write(d))
	}
}

// TestARefusedLaunchIsNotRepeatedAtOnce checks that a launch that became no leases is decided again after a minute, and that
// the other job has its turn before that.
func TestARefusedLaunchIsNotRepeatedAtOnce(t *testing.T) {
	snap, p := draw(t, twoJobs), NewPlanner()
	for i, want := range []cluster.JobID{11, 10, 0} {
		d := p.Pass(snap)
		got := cluster.JobID(0)
		if len(d.Plan.Launches) > 0 {
			got = d.Plan.Launches[0].Job
		}
		if got != want {
			t.Fatalf("pass %d launches for %d, want %d", i, got, want)
		}
		if want == 0 && d.Wake != start.Add(relaunch) {
			t.Fatalf("the next pass is at +%s", d.Wake.Sub(start))
		}
		snap = later(snap, time.Second)
	}
	snap = later(snap, relaunch)
	if d := p.Pass(snap); len(d.Plan.Launches) != 1 || d.Plan.Launches[0].Job != 11 {
		t.Errorf("after a minute: %s", write(d))
	}
	snap = later(snap, relaunch)
	if d := p.Pass(snap); len(d.Plan.Launches) != 1 || d.Plan.Launches[0].Job != 10 || p.leasing.launched[11].wait != 2*relaunch {
		t.Errorf("after two minutes: %s", write(d))
	}
}

// TestLeasedJobsCountAgainstLimits has a QOS whose jobs run one at a time: no node is leased for the second one while the
// first waits for its own.
func TestLeasedJobsCountAgainstLimits(t *testing.T) {
	snap := draw(t, `
		qos fast worth=1
		burst .
		offer a/us price=2
		job 10 gpus=8 limit=2h qos=fast burst=only
		job 11 gpus=8 limit=1h qos=fast burst=only`)
	snap.Policy.QOS[1].Limits = []cluster.Limit{{Kind: cluster.GrpJobs, Value: 1}}
	snap.Accounts = &cluster.AccountView{
		Tree: cluster.NewAccountTree(slices.Values[[]*cluster.Account](nil), slices.Values[[]*cluster.Association](nil)),
		Used: slices.Values[[]*cluster.AccountUsage](nil), Running: maps.All[map[cluster.JobID]*cluster.Charge](nil),
	}
	p := NewPlanner()
	d := p.Pass(snap)
	if len(d.Plan.Launches) != 1 {
		t.Fatal(write(d))
	}
	if d = p.Pass(leasedFor(snap, d)); len(d.Plan.Launches) > 0 {
		t.Errorf("a second one: %s", write(d))
	}
}

// TestLeasedJobsCountAgainstArraysAndLicences has an array whose elements run one at a time, and jobs that share a licence: no
// node is leased for the second one while the first waits for its own.
func TestLeasedJobsCountAgainstArraysAndLicences(t *testing.T) {
	for _, jobs := range [...]string{`
		job 10 gpus=8 limit=2h qos=fast burst=only array=10:0 atmost=1
		job 11 gpus=8 limit=2h qos=fast burst=only array=10:1 atmost=1`, `
		licence solver count=3
		job 10 gpus=8 limit=2h qos=fast burst=only licence=solver:2
		job 11 gpus=8 limit=2h qos=fast burst=only licence=solver:2`, `
		node n1 gpus=8
		run 1 on=n1:0-7 gpus=8 left=8h limit=9h
		job 10 gpus=8 limit=2h qos=fast burst=allow array=10:0 atmost=1
		job 11 gpus=8 limit=2h qos=fast burst=allow array=10:1 atmost=1`} {
		snap, p := draw(t, "qos fast worth=1\nburst .\noffer a/us price=2\n"+jobs), NewPlanner()
		d := p.Pass(snap)
		if len(d.Plan.Launches) != 1 || d.Plan.Launches[0].Job != 10 {
			t.Fatal(write(d))
		}
		settle(snap, d)
		if d = p.Pass(leasedFor(snap, d)); len(d.Plan.Launches) > 0 {
			t.Errorf("a second one: %s", write(d))
		}
	}
}

// TestNothingIsLeasedDuringPreemption checks that a pass that preempts leases nothing.
func TestNothingIsLeasedDuringPreemption(t *testing.T) {
	snap := draw(t, `
		qos high tier=5 preempts=low
		qos low tier=1 mode=requeue worth=1
		burst .
		offer a/us price=2
		node n1 gpus=8
		run 1 on=n1:0-7 gpus=8 left=8h limit=9h qos=low
		job 10 gpus=8 limit=1h qos=low burst=allow
		job 11 gpus=8 limit=1h qos=high`)
	if d := Decide(snap); len(d.Plan.Evictions) != 1 || len(d.Plan.Launches) > 0 {
		t.Error(write(d))
	}
}

// TestAPromiseWaitsForNoCloudNode has a promised job and a leased node that is busy for some time: the job keeps its place on
// the site until it can start on the leased node at once.
func TestAPromiseWaitsForNoCloudNode(t *testing.T) {
	const site = `
		rules . horizon=-1ns
		burst .
		node n1 gpus=8
		run 1 on=n1:0-7 gpus=8 left=8h limit=9h account=physics
		job 10 gpus=8 limit=1h burst=allow account=physics`
	snap, p := draw(t, site), NewPlanner()
	d := p.Pass(snap)
	if len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Promise == nil {
		t.Fatal(write(d))
	}
	promise := d.Plan.Verdicts[0].Promise
	snap = promised(snap, d)
	busy := draw(t, site+`
		node cloud-1 gpus=8 lease=physics until=9h
		run 2 on=cloud-1:0-7 gpus=8 left=30m limit=1h burst=only account=physics`)
	busy.Pending, busy.Index = snap.Pending, snap.Index+1
	if d = p.Pass(busy); len(d.Plan.Starts)+len(d.Plan.Verdicts) > 0 || p.schedule.Entry(10).At != promise.At {
		t.Fatalf("with a busy cloud node: %s", write(d))
	}
	lost := later(busy, time.Second, 2) // its node leaves before it is free
	lost.Nodes = snap.Nodes
	if d = p.Pass(lost); len(d.Plan.Verdicts) > 0 {
		t.Fatalf("without the cloud node: %s", write(d))
	}
	free := later(busy, 2*time.Second, 2)
	if d = p.Pass(free); len(d.Plan.Starts) != 1 || d.Plan.Starts[0].Placement.Nodes[0].Node != "cloud-1" {
		t.Errorf("with a free cloud node: %s", write(d))
	}
}

// promised returns a snapshot whose jobs have the verdicts of a decision.
func promised(snap *cluster.Snapshot, d Decision) *cluster.Snapshot {
	next := *snap
	next.Pending = slices.Clone(snap.Pending)
	for _, v := range d.Plan.Verdicts {
		i := slices.IndexFunc(next.Pending, func(j *cluster.Job) bool { return j.ID == v.Job })
		job := *next.Pending[i]
		job.Reason, job.Detail, job.Planned, job.Promise = v.Reason, v.Detail, v.Planned, v.Promise
		next.Pending[i] = &job
	}
	return &next
}

// TestLeasesThatNeverJoinBreakNoPromise runs a busy site for a day with launches that all fail: promises are kept to the
// instant as without the cloud.
func TestLeasesThatNeverJoinBreakNoPromise(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 9))
		text := "qos fast worth=5\nrules . horizon=-1ns\nburst . left=100000\noffer a/us price=2\n"
		for n := range 4 {
			text += fmt.Sprintf("node n%d gpus=8\nrun %d on=n%d:0-7 gpus=8 left=%dm limit=9h qos=fast\n", n, n+1, n, 10+r.IntN(400))
		}
		for i := range 30 {
			text += fmt.Sprintf("job %d nodes=%d gpus=%d limit=%dm qos=fast burst=allow\n", 100+i, 1+r.IntN(2), 1+r.IntN(8), 10+r.IntN(300))
		}
		snap, p := draw(t, text), NewPlanner()
		launches, promises := 0, map[cluster.JobID]cluster.Instant{}
		for len(snap.Pending) > 0 {
			d := p.Pass(snap)
			launches += len(d.Plan.Launches)
			for _, v := range d.Plan.Verdicts {
				if v.Broken != "" {
					t.Fatalf("seed %d: the promise of job %d is broken: %s", seed, v.Job, v.Broken)
				}
				if v.Promise != nil {
					promises[v.Job] = v.Promise.At
				}
			}
			for _, s := range d.Plan.Starts {
				if at := promises[s.Job]; at > 0 && snap.Now > at {
					t.Fatalf("seed %d: job %d starts %s later than promised", seed, s.Job, snap.Now.Sub(at))
				}
			}
			snap = failing(snap, d)
		}
		if launches == 0 {
			t.Errorf("seed %d: nothing was leased", seed)
		}
	}
}

// failing returns the snapshot after a decision was committed, at the next instant at which something happens: jobs have ended
// by then, and the launch has become leases, which then end without a node.
func failing(snap *cluster.Snapshot, d Decision) *cluster.Snapshot {
	next := leasedFor(started(promised(snap, d), d), d)
	next.Now = min(snap.Now.Add(10*time.Minute), max(d.Wake, snap.Now+1))
	if d.More {
		next.Now = snap.Now + 1
	} else {
		next.Burst.Leases = nil // all that were leased fail
	}
	next.Active = slices.DeleteFunc(next.Active, func(j *cluster.Job) bool { return j.Started.Add(j.Spec.TimeLimit) <= next.Now })
	return next
}
