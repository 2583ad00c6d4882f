package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// paidFarm returns a state with jobs of a day that run on one GPU each, at the prices of the day.
func paidFarm(b *testing.B, jobs int) *State {
	s := New()
	p := cluster.DefaultPolicy()
	p.Credits.On, p.Credits.Floating = true, true
	s.Apply(1, 1, &command.ApplyPolicy{Actor: actor("root"), Policy: p})
	s.Apply(2, 1, &command.ChangeCredits{Actor: actor("root"), Action: command.SetPrice, GPUType: "h100", Amount: 2 * accounting.One})
	for i := range 50 {
		s.Apply(s.index+1, 1, &command.ChangeCredits{
			Actor: actor("root"), Action: command.GrantCredits, Account: fmt.Sprintf("project%d", i), Class: accounting.Purchase, Amount: accounting.MaxAmount,
		})
	}
	farm(s, jobs/8)
	for first := 0; first < jobs; first += 80 {
		c := batch(first/80, 80, true)
		for i := range c.Jobs {
			c.Jobs[i].DefaultTime, c.Jobs[i].Spec.TimeLimit = false, 24*time.Hour
		}
		r := s.Apply(s.index+1, 1, c).(*command.Submitted)
		var plan cluster.Plan
		for i, id := range r.First {
			plan.Starts = append(plan.Starts, cluster.PlannedStart{Job: id, Attempt: 1, Placement: cluster.Placement{
				Nodes: []cluster.NodeAllocation{{Node: fmt.Sprintf("gpu%04d", (first+i)/8), GPUs: []int32{int32(i % 8)}, CPUs: 8, Memory: 64 * cluster.GiB}},
			}})
		}
		plan.Index = s.index
		if c := s.Apply(s.index+1, 1, &command.CommitPlan{Plan: plan}).(*command.Committed); len(c.Started) != 80 {
			b.Fatal(c)
		}
		s.Effects()
	}
	return s
}

// BenchmarkMeter samples each of 50,000 jobs, as every 30 s, with as many future prices, each for
// an hour.
func BenchmarkMeter(b *testing.B) {
	const jobs = 50_000
	for _, prices := range []int{0, 24, 168} {
		b.Run(fmt.Sprintf("prices=%d", prices), func(b *testing.B) {
			s := paidFarm(b, jobs)
			for i := range prices {
				s.Apply(s.index+1, 1, &command.ChangeCredits{
					Actor: actor("root"), Action: command.SetPrice, GPUType: "h100", Amount: accounting.Credits(1+i%2) * accounting.One,
					Effective: cluster.Instant(time.Duration(i+1) * time.Hour),
				})
			}
			now := cluster.Instant(1)
			began := cpu(b)
			for i := 0; b.Loop(); i++ {
				now = now.Add(30 * time.Second)
				c := &command.MeterJobs{}
				for job := range cluster.JobID(jobs) {
					c.Samples = append(c.Samples, command.JobSample{Job: job + 1, Attempt: 1, Number: uint64(i + 1), GPUms: int64(i+1) * 30_000})
				}
				s.Apply(s.index+1, now, c)
				s.Effects()
			}
			b.ReportMetric(float64(cpu(b)-began)/float64(b.N)/jobs, "cpu-ns/sample")
		})
	}
}
