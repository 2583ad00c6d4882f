package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// listedCloud is a provider that lists instances.
type listedCloud struct {
	burst.Provider
	instances []cluster.Instance
}

// List returns the instances.
func (c *listedCloud) List(context.Context) ([]cluster.Instance, error) { return c.instances, nil }

// benchLeases is the number of leases of one launch.
const benchLeases = 1000

// renting returns a controller with a job that nodes may be leased for.
func renting(b *testing.B) *rig {
	b.Helper()
	r := newRig(b, b.TempDir(), true)
	policy := cluster.DefaultPolicy()
	policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	policy.Burst.On, policy.Burst.MonthlyLimit = true, 1_000_000*cluster.OneUnit
	root, ana := command.Actor{Role: command.RoleAdmin}, cluster.Identity{User: "ana", UID: 1000, GID: 100}
	r.do(&command.ApplyPolicy{Actor: root, Policy: policy})
	r.do(&command.RegisterNode{Node: cluster.Node{Name: "n1", BootID: "b", CPUs: 1, Memory: cluster.GiB}})
	r.do(&command.SetOffers{Offers: []cluster.Offer{{Name: "p", Market: cluster.Spot, Region: "us", Type: "p", Price: cluster.OneUnit, CPUs: 8, Memory: cluster.GiB}}})
	r.do(&command.SubmitJobs{Actor: command.Actor{Identity: ana, Role: command.RoleUser}, Jobs: []command.Submission{{Spec: cluster.JobSpec{
		Owner: ana, TimeLimit: time.Hour, WorkDir: "/", Output: "o", Image: "busybox", Partition: "main",
		OtherPartitions: []string{"cloud"}, Request: cluster.Request{Nodes: 1}, Burst: cluster.Burst{Mode: cluster.BurstOnly},
	}}}})
	return r
}

// launch commits a launch whose request was sent, and returns its instances.
func (r *rig) launch() (list []cluster.Instance) {
	r.t.Helper()
	l := cluster.Launch{Job: 1, Attempt: 1, Offer: cluster.OfferKey{Name: "p", Market: cluster.Spot}, Nodes: benchLeases, MaxPrice: cluster.OneUnit, Lifetime: 2 * time.Hour, Cost: benchLeases * 2 * cluster.OneUnit}
	done, _ := r.do(&command.CommitPlan{Plan: cluster.Plan{Index: 1 << 62, Launches: []cluster.Launch{l}}}).(*command.Committed)
	if len(done.Stale) > 0 {
		r.t.Fatal(done.Stale)
	}
	first := r.replica.View().LeaseWork()[0].Launch
	r.do(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: first, Event: command.LaunchRequested, Try: 1, Token: cluster.Digest{byte(first), byte(first >> 8), byte(first >> 16), 1}}}})
	for i := range benchLeases {
		list = append(list, cluster.Instance{ID: fmt.Sprintf("i-%d-%04d", first, i), Launch: first, Try: 1, Type: "p", Price: cluster.OneUnit, Launched: cluster.InstantOf(time.Now()), Cost: -1})
	}
	return list
}

// BenchmarkLeaseRounds measures the controller's part of two rounds for 1,000 leases, with a log on disk: it lists the
// instances, compares them, and commits that all have started, then that all have ended.
func BenchmarkLeaseRounds(b *testing.B) {
	r := renting(b)
	cloud := &listedCloud{}
	l := &leaseLoop{term: &term{Controller: r.Controller, ctx: b.Context()}, cloud: cloud, absent: map[string]time.Duration{}}
	l.requests.until = map[cluster.LeaseID]time.Time{}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		cloud.instances = r.launch()
		b.StartTimer()
		l.round()
		for i := range cloud.instances {
			cloud.instances[i].Terminated, cloud.instances[i].Interrupted = true, true
		}
		l.round()
		if n := len(r.replica.View().LeaseWork()); n > 0 {
			b.Fatalf("%d leases are left", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*benchLeases), "ns/lease")
}

// BenchmarkLeaseRoundSteady measures a round for 1,000 leases that run: nothing is committed.
func BenchmarkLeaseRoundSteady(b *testing.B) {
	r := renting(b)
	cloud := &listedCloud{instances: r.launch()}
	l := &leaseLoop{term: &term{Controller: r.Controller, ctx: b.Context()}, cloud: cloud, absent: map[string]time.Duration{}}
	l.requests.until = map[cluster.LeaseID]time.Time{}
	l.round()
	b.ReportAllocs()
	for b.Loop() {
		l.round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchLeases, "ns/lease")
}
