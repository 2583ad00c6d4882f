package sim

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// outcomeByHand returns the outcome of five jobs on three nodes of 4 GPUs, two of them under one
// leaf switch. Times are seconds from the first submission.
//
//	a of alice: 3 GPUs of n00001, 0 to 100
//	b of bob: n00001 and n00002, 10 to 150, starts at 100, promised for 110
//	c of carol: 1 GPU of n00002 and n00003, 20 to 152, starts at 150, promised for 130
//	d is refused, e never starts
func outcomeByHand(t *testing.T) *Outcome {
	fleet, err := Uniform(3, 4)
	if err != nil {
		t.Fatal(err)
	}
	fleet.Switches = []cluster.Switch{
		{Name: "leaf1", Nodes: []string{"n00001", "n00002"}}, {Name: "leaf2", Nodes: []string{"n00003"}},
		{Name: "spine", Children: []string{"leaf1", "leaf2"}},
	}
	at := func(s int) cluster.Instant { return Epoch.Add(time.Duration(s) * time.Second) }
	job := func(name, user, account string, submit int, nodes, gpus int32) *Job {
		return &Job{Name: name, Submit: at(submit), Spec: &cluster.JobSpec{
			Owner: cluster.Identity{User: user}, Account: account, Request: cluster.Request{Nodes: nodes, GPUsPerNode: gpus},
		}}
	}
	on := func(node string, gpus ...int32) cluster.NodeAllocation {
		return cluster.NodeAllocation{Node: node, GPUs: gpus}
	}
	return &Outcome{Machine: fleet, Replanned: 1, Passes: []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}, Results: []Result{
		{Job: job("a", "alice", "x", 0, 1, 3), ID: 1, Start: at(0), End: at(100), Planned: at(0), Nodes: []cluster.NodeAllocation{on("n00001", 0, 1, 2)}},
		{Job: job("b", "bob", "y", 10, 2, 4), ID: 2, Start: at(100), End: at(150), Waited: true, Planned: at(110), LatestPromise: at(110),
			Nodes: []cluster.NodeAllocation{on("n00001", 0, 1, 2, 3), on("n00002", 0, 1, 2, 3)}},
		{Job: job("c", "carol", "x", 20, 2, 1), ID: 3, Start: at(150), End: at(152), Waited: true, Planned: at(130), LatestPromise: at(150), Broken: "node n00002 is lost",
			Nodes: []cluster.NodeAllocation{on("n00002", 3), on("n00003", 0)}},
		{Job: job("d", "dave", "y", 30, 9, 4), Reason: "refused"},
		{Job: job("e", "bob", "y", 40, 1, 1), ID: 4, Reason: "PENDING"},
	}}
}

// near compares a figure with one that is worked out by hand, to three more digits.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: %.7f, by hand %.7f", what, got, want)
	}
}

// TestSummary compares each figure of a summary with one that is worked out by hand.
func TestSummary(t *testing.T) {
	s := Summarise(outcomeByHand(t))
	if s.Jobs != 5 || s.Ended != 3 || s.Refused != 1 || s.Never != 1 || s.Capacity != 12 {
		t.Errorf("%+v", s)
	}
	near(t, "makespan", s.Makespan, 152)
	const work = 3*100 + 8*50 + 2*2
	near(t, "utilisation", s.Utilisation, work/(12.0*152))
	near(t, "mean wait", s.Wait.Mean, (0+90+130)/3.0)
	near(t, "p50", s.Wait.P50, 90)
	near(t, "p90", s.Wait.P90, 0.2*90+0.8*130)
	near(t, "p99", s.Wait.P99, 0.02*90+0.98*130)
	near(t, "max", s.Wait.Max, 130)
	near(t, "bounded slowdown", s.Slowdown, (1+140/50.0+132/10.0)/3) // c's two seconds count as ten
	near(t, "planned start", s.PlanError, (10+20)/2.0)
	if p := s.Promises; p.Made != 2 || p.Kept != 1 || p.Broken != 1 || !maps.Equal(p.Causes, map[string]int{"node n00002 is lost": 1}) {
		t.Errorf("promises: %+v", p)
	}
	if s.Pass.Passes != 3 || s.Pass.Replanned != 1 {
		t.Errorf("passes: %+v", s.Pass)
	}
	near(t, "pass p50", s.Pass.P50, 2)
	near(t, "pass p99", s.Pass.P99, 0.02*2+0.98*3)
	near(t, "pass max", s.Pass.Max, 3)
	near(t, "passes", s.Pass.Total, 6)
}

// TestSummaryPlacement: a and c would fit into one NVLink domain, and a is in one; b and c are on
// two nodes, b's under one leaf. While a job is pending, from 10 to 150, a leaves one GPU of its
// node unused for 90 s; b takes all of its nodes.
func TestSummaryPlacement(t *testing.T) {
	p := Summarise(outcomeByHand(t)).Placement
	if p.GPUJobs != 3 || p.WideJobs != 2 {
		t.Errorf("%+v", p)
	}
	near(t, "one domain", p.OneDomain, 1/2.0)
	near(t, "one leaf", p.OneLeaf, 1/2.0)
	near(t, "stranded", p.Stranded, 90/140.0)
}

// TestSummaryFairness: all is within one day. Used are 300, 400 and 4 GPU-seconds; usable, from
// submission to end, were 300, 1,120 and 264. A third of 704 is less than each, so that each was
// entitled to it.
func TestSummaryFairness(t *testing.T) {
	f := Summarise(outcomeByHand(t)).Fairness
	const each = 704 / 3.0
	near(t, "entitlement error", f.EntitlementError, ((300-each)+(400-each))/704)
	x, y, z := 300/each, 400/each, 4/each
	near(t, "Jain", f.Jain, (x+y+z)*(x+y+z)/(3*(x*x+y*y+z*z)))
	if f.Users != 3 || f.WorstUser != (Worst{"carol", "c", 130}) {
		t.Errorf("%+v", f)
	}
	if !slices.Equal(f.WorstBySize, []SizeWait{{2, 3, 2, 65, 130}, {8, 15, 1, 90, 90}}) {
		t.Errorf("by size: %+v", f.WorstBySize)
	}
	if want := []AccountWait{{"x", 2, 65, 130}, {"y", 1, 90, 90}}; !reflect.DeepEqual(f.WorstByAccount, want) {
		t.Errorf("by account: %+v", f.WorstByAccount)
	}
}

// TestEntitlements: a user who could use less than an equal part leaves the rest to the others.
func TestEntitlements(t *testing.T) {
	got := entitlements(map[string]*[2]float64{"low": {10, 10}, "mid": {50, 60}, "high": {40, 400}})
	if want := map[string]float64{"low": 10, "mid": 45, "high": 45}; !maps.Equal(got, want) {
		t.Errorf("%v, by hand %v", got, want)
	}
}
