package schedule

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// cloudOf returns what a picture says of the cloud: its first line of that kind turns cloud burst on, with nodes leased at
// once and 1,000 USD left, and adds the partition cloud.
func (p *picture) cloudOf() *cluster.BurstView {
	if p.snap.Burst != nil {
		return p.snap.Burst
	}
	policy := p.snap.Policy
	if len(policy.Partitions) == 0 {
		policy.Partitions = cluster.DefaultPolicy().Partitions
		policy.Partitions[0].GPUShare = cluster.MaxGPUShare
	}
	policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	policy.Burst.On, policy.Burst.MinPending = true, 0
	p.snap.Burst = &cluster.BurstView{Left: map[string]int64{"": 1000 * cluster.OneUnit}}
	return p.snap.Burst
}

// cloud reads a line about the cloud.
func (p *picture) cloud(t testing.TB, fields []string, w words) {
	t.Helper()
	v := p.cloudOf()
	switch fields[0] {
	case "burst":
		b := &p.snap.Policy.Burst
		b.On, b.MinPending, b.BootTimeout = !w.has("off"), w.d("pending", b.MinPending), w.d("boottime", b.BootTimeout)
		b.MaxNodes, b.Regions, b.SpotPatience = w.n("most", b.MaxNodes), w.list("regions"), w.d("patience", b.SpotPatience)
		for name, text := range w {
			amount, err := cluster.ParseMoney(text)
			switch name {
			case "off", "pending", "boottime", "most", "regions", "patience":
				continue
			case "left":
				name = ""
			}
			if err != nil {
				t.Fatal(err)
			}
			v.Left[name] = amount
		}
	case "offer":
		o := &cluster.Offer{
			Name: fields[1], Market: marketIn(w, cluster.Spot), Region: w["at"], Price: w.money("price"),
			PricedAt: start.Add(-w.d("age", 0)), CPUs: w.n("cpus", 64), Memory: cmp.Or(w.size("mem"), 512*cluster.GiB), GPUs: w.n("gpus", 8),
			GPUType: cmp.Or(w["type"], "h100"), GPUMemory: w.size("gpumin"), Boot: w.d("boot", 5*time.Minute), Risk: w.n("risk", 0),
		}
		v.Offers = append(v.Offers, o)
		if w.has("failing") {
			v.Pauses = append(v.Pauses, cluster.OfferPause{Offer: o.Key(), Since: start.Add(-w.d("failing", 0)), Until: start.Add(w.d("paused", 0)), Failures: 1, Capacity: !w.has("refused")})
		}
	case "lease":
		l := &cluster.Lease{ID: cluster.LeaseID(id(fields[1])), Job: id(w["for"]), For: id(w["for"]), State: cluster.LeaseLaunched, Since: start.Add(-w.d("since", time.Minute))}
		for s := cluster.LeasePlanned; s <= cluster.LeaseGone; s++ {
			if s.String() == w["state"] {
				l.State = s
			}
		}
		l.Offer.Market = marketIn(w, cluster.Spot)
		v.Leases = append(v.Leases, l)
	}
}

func (w words) money(key string) int64 {
	if !w.has(key) {
		return 0
	}
	n, err := cluster.ParseMoney(w[key])
	if err != nil {
		panic(err)
	}
	return n
}

func marketIn(w words, absent cluster.Market) cluster.Market {
	if !w.has("market") {
		return absent
	}
	m, err := cluster.ParseMarket(w["market"])
	if err != nil {
		panic(err)
	}
	return m
}

// leaseNode makes a node a leased one.
func leaseNode(n *cluster.Node, w words) {
	n.Market = marketIn(w, cluster.Spot)
	n.Rental = cluster.Rental{Lease: 1, Account: w["lease"], Until: start.Add(w.d("until", 24*time.Hour))}
	if w.has("for") {
		n.Rental.For = id(w["for"])
	}
}

// readBurst reads what a job says about cloud nodes.
func readBurst(t testing.TB, spec *cluster.JobSpec, w words) {
	t.Helper()
	mode, err := cluster.ParseBurstMode(w["burst"])
	if err != nil {
		t.Fatal(err)
	}
	spec.Burst = cluster.Burst{Mode: mode, MaxCost: w.money("cost"), Regions: w.list("at"), Market: marketIn(w, cluster.AnyMarket)}
	switch mode {
	case cluster.BurstAllow:
		spec.OtherPartitions = append(spec.OtherPartitions, "cloud")
	case cluster.BurstOnly:
		spec.Partition = "cloud"
	}
}

func writeLaunch(x *cluster.Launch) string {
	return fmt.Sprintf("%d leases %s for %s, at most %s an hour each: %s", x.Job, x.Offer.Name, x.Lifetime, cluster.FormatMoney(x.MaxPrice), x.Why)
}
