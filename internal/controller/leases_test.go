package controller

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestLeasesNeedNoOtherEvents: in a cluster in which nothing else happens, new offers lead to a lease at once, and the
// deadline of a lease ends it.
func TestLeasesNeedNoOtherEvents(t *testing.T) {
	simulate(t, func(r *rig, _ *soloLog) {
		policy := cluster.DefaultPolicy()
		policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
		policy.Burst.On, policy.Burst.MonthlyLimit, policy.Burst.BootTimeout = true, 1_000_000*cluster.OneUnit, 5*time.Minute
		r.do(&command.ApplyPolicy{Actor: command.Actor{Role: command.RoleAdmin}, Policy: policy})
		r.submit(func(s *cluster.JobSpec) {
			s.Image, s.TimeLimit, s.Partition, s.Burst = "busybox", time.Hour, "cloud", cluster.Burst{Mode: cluster.BurstOnly}
			s.Request = cluster.Request{Nodes: 1, CPUsPerTask: 1, TasksPerNode: 1}
		})
		time.Sleep(10 * time.Minute)
		r.do(&command.SetOffers{Offers: []cluster.Offer{{
			Name: "p", Market: cluster.Spot, Region: "us", Type: "p", Price: cluster.OneUnit, PricedAt: cluster.InstantOf(time.Now()), CPUs: 8, Memory: 64 * cluster.GiB,
		}}})
		time.Sleep(2 * time.Second)
		work := r.replica.View().LeaseWork()
		if len(work) != 1 {
			t.Fatalf("%d leases after the offers came", len(work))
		}
		first := work[0].ID
		r.do(&command.UpdateLeases{Updates: []command.LeaseUpdate{{Lease: first, Event: command.LaunchRequested, Try: 1, Token: cluster.Digest{1}}}})
		r.do(&command.UpdateLeases{Updates: []command.LeaseUpdate{{
			Lease: first, Event: command.LeaseStarted, Try: 1, Instance: "i-1", Price: cluster.OneUnit, At: cluster.InstantOf(time.Now()),
		}}})
		time.Sleep(policy.Burst.BootTimeout + 2*time.Second)
		if l, _ := r.replica.View().Lease(first); l.State != cluster.LeaseTerminating {
			t.Errorf("after its deadline the lease is %s", l.State)
		}
	})
}
