package state

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// renting puts a cloud partition and budgets into a policy.
func (x *chaos) renting(p *cluster.Policy) {
	if !x.leases {
		return
	}
	p.Partitions = append(p.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}, Down: x.pick(30) == 0})
	p.Burst.On, p.Burst.MonthlyLimit, p.Burst.IdleTime = x.pick(6) > 0, int64(x.pick(4))*cluster.OneUnit, time.Duration(x.pick(3))*10*time.Second
	p.Burst.Budgets = []cluster.RentalBudget{{Account: "physics", Monthly: cluster.OneUnit}, {Account: "uni", Monthly: 2 * cluster.OneUnit}}[:x.pick(3)]
	p.Burst.Currency = []string{"USD", "EUR"}[x.pick(9)/8]
	p.Burst.BootTimeout = time.Duration(1+x.pick(3)) * 20 * time.Second
	if p.Burst.MonthlyLimit == 0 {
		p.Burst.On = false
	}
}

// bursts lets some jobs run on leased nodes.
func (x *chaos) bursts(spec *cluster.JobSpec) {
	if !x.leases || x.pick(3) == 0 {
		return
	}
	spec.Partition, spec.OtherPartitions = "main", []string{"cloud"}
	spec.Burst = cluster.Burst{Mode: cluster.BurstAllow, Market: cluster.Market(x.pick(5) / 2), MaxCost: int64(x.pick(3)) * cluster.OneUnit}
	spec.CheckpointSignal = cluster.WarnSignal{Number: int32(x.pick(2) * 12), Before: 20 * time.Second}
}

// lease returns a lease, mostly one of the newest; nil for none.
func (x *chaos) lease() *cluster.Lease {
	var list []*cluster.Lease
	if x.leases {
		for l := range x.s.leases.All() {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[max(0, len(list)-1-x.pick(min(len(list), 5)))]
}

// burst returns a command about leases, or a command of a leased node.
func (x *chaos) burst() command.Command {
	if _, found := x.s.policy.Cloud(); !found || !x.s.policy.Burst.On && x.pick(2) == 0 {
		p := cluster.DefaultPolicy()
		x.renting(&p)
		return &command.ApplyPolicy{Actor: actor("root"), Policy: p}
	}
	l := x.lease()
	switch n := x.pick(20); {
	case n < 2:
		return x.offers()
	case n < 5 || l == nil:
		return x.launches()
	case n < 12:
		return x.leaseEvents(l)
	case n < 13:
		return &command.EndLeases{Request: x.request(), Actor: x.actor(), Leases: []cluster.LeaseID{l.ID, cluster.LeaseID(x.pick(20))}[:1+x.pick(2)], Now: x.pick(2) == 0}
	case n < 14:
		return &command.UseToken{Hash: l.Token, Kind: command.NodeToken, Name: fmt.Sprint("h", x.pick(2)), Instance: l.Instance}
	}
	node := cluster.Node{Name: l.ID.NodeName(), BootID: "b", CPUs: 8, Memory: cluster.GiB}
	for i := range max(0, 4-x.pick(12)/11) {
		node.GPUs = append(node.GPUs, cluster.GPU{Index: int32(i), Type: "h100"})
	}
	return &command.RegisterNode{Node: node}
}

func (x *chaos) offers() command.Command {
	c := &command.SetOffers{Currency: []string{"", "USD", "EUR"}[x.pick(3)]}
	for i := range x.pick(4) {
		c.Offers = append(c.Offers, cluster.Offer{
			Name: fmt.Sprint("p", i), Market: cluster.Market(x.pick(3)), Region: "us", Price: int64(x.pick(5)) * cluster.OneUnit, CPUs: 8, GPUs: 4, Memory: cluster.GiB,
			Boot: time.Duration(x.pick(30)) * time.Second, PricedAt: x.s.now,
		})
	}
	return c
}

// launches leases nodes for a pending job.
func (x *chaos) launches() command.Command {
	c := &command.CommitPlan{Plan: cluster.Plan{Index: x.s.index - uint64(x.pick(8)/7)}}
	var offers []*cluster.Offer
	for o := range x.s.View().Offers() {
		offers = append(offers, o)
	}
	for j := range x.s.View().Jobs(0) {
		if j.State != cluster.Pending || !j.Spec.Burst.On() || len(offers) == 0 || x.pick(4) > 0 {
			continue
		}
		o := offers[x.pick(len(offers))]
		l := cluster.Launch{Job: j.ID, Attempt: j.Attempt + 1, Offer: o.Key(), Nodes: max(1, j.Spec.Request.Nodes) + int32(x.pick(6)/5), MaxPrice: o.Price, Lifetime: j.Spec.TimeLimit + time.Minute}
		l.Cost = (int64(l.Lifetime.Hours()*float64(l.MaxPrice)) + 10) * int64(l.Nodes)
		c.Plan.Launches = []cluster.Launch{l}
		break
	}
	return c
}

// leaseEvents reports what most likely happens next to a lease and others of its launch, or anything.
func (x *chaos) leaseEvents(l *cluster.Lease) command.Command {
	c := &command.UpdateLeases{}
	likely := map[cluster.LeaseState][]command.LeaseEvent{
		cluster.LeasePlanned:     {command.LaunchRequested},
		cluster.LeaseRequested:   {command.LaunchDelayed, command.LeaseStarted, command.LeaseStarted, command.LeaseStarted, command.LaunchFailed},
		cluster.LeaseLaunched:    {0, 0, command.LeaseEnded},
		cluster.LeaseJoined:      {0},
		cluster.LeaseRunning:     {0, 0, command.LeaseReclaimed, command.LeaseEnded, command.LeaseMismatched},
		cluster.LeaseTerminating: {command.LeaseConsole, command.LeaseEnded, command.LeaseStarted, command.LaunchFailed},
	}
	for range 1 + x.pick(3) {
		event := command.LeaseEvent(x.pick(10))
		if list := likely[l.State]; len(list) > 0 && x.pick(8) > 0 {
			event = list[x.pick(len(list))]
		}
		c.Updates = append(c.Updates, command.LeaseUpdate{
			Lease: l.ID, Event: event, Try: max(1, l.Try), Token: digestOf([]byte{byte(l.Launch)}), Instance: fmt.Sprint("i-", l.ID),
			Price: l.MaxPrice / 2, At: cluster.Instant(x.pick(2)) * (x.s.now - 5), Capacity: x.pick(2) == 0, Interrupted: x.pick(3) == 0, Cost: int64(x.pick(3) - 1),
			Reclaim: x.s.now.Add(time.Duration(x.pick(90)) * time.Second), Console: "panic",
		})
		if event == command.LaunchRequested || event == command.LaunchFailed {
			c.Updates[len(c.Updates)-1].Lease = l.Launch
		}
		if next, known := x.s.leases.Get(l.ID + 1); known {
			l = next
		}
	}
	return c
}
