package burst

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestWorstCostIsBounded checks random and extreme amounts: a cost covers the nodes for their whole time at the highest
// price, is positive, and is refused where it exceeds all budgets.
func TestWorstCostIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		nodes := pick(r, 1, 7, maxNodes, maxNodes+1, math.MaxInt32, 0, -1, int32(r.Uint32()))
		lifetime := pick(r, time.Second, time.Hour, maxLifetime, maxLifetime+1, math.MaxInt64, -1, time.Duration(r.Int64N(int64(maxLifetime))))
		price := pick(r, int64(1), cluster.OneUnit, 2*maxPrice, 2*maxPrice+1, math.MaxInt64, 0, -1, r.Int64N(2*maxPrice))
		risk := pick(r, int32(0), 50_000, cluster.OneUnit, math.MaxInt32, -1)
		cost, ok := WorstCost(nodes, lifetime, price, risk)
		if !ok {
			if cost != 0 {
				t.Fatalf("%d × %s at %d: refused with a cost of %d", nodes, lifetime, price, cost)
			}
			continue
		}
		if nodes < 1 || nodes > maxNodes || lifetime <= 0 || lifetime > maxLifetime || price <= 0 || price > 2*maxPrice || risk < 0 {
			t.Fatalf("%d × %s at %d with risk %d: accepted", nodes, lifetime, price, risk)
		}
		most := new(big.Rat).SetFrac(product(int64(nodes), int64(lifetime), price), big.NewInt(int64(time.Hour)))
		if cost <= 0 || cost > cluster.MaxMoney || most.Cmp(new(big.Rat).SetInt64(cost)) > 0 {
			t.Fatalf("%d × %s at %d: a cost of %d does not cover %s", nodes, lifetime, price, cost, most)
		}
	}
	if cost, ok := WorstCost(2, 90*time.Minute, 3*cluster.OneUnit, 100_000); !ok || cost != 10_350_000 {
		t.Errorf("2 nodes for 1:30 at 3.00 with a risk of 0.1 an hour cost %s, %v; want 10.35", cluster.FormatMoney(cost), ok)
	}
}

// TestWorthOfTime checks that the least time that is worth a cost is exact, and that nothing overflows.
func TestWorthOfTime(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		hourly := hourlyValue(pick(r, int64(0), 1, cluster.MaxMoney, r.Int64N(cluster.MaxMoney)), pick(r, int32(0), 8, math.MaxInt32))
		cost := 1 + pick(r, int64(0), cluster.MaxMoney-1, r.Int64N(cluster.MaxMoney-1))
		d := timeWorth(cost, hourly)
		switch {
		case hourly < 0 || d <= 0:
			t.Fatalf("cost %d at %d an hour: %d", cost, hourly, d)
		case d == math.MaxInt64:
			if valueOf(hourly, d-1) >= cost {
				t.Fatalf("cost %d at %d an hour is worth it within a bounded time", cost, hourly)
			}
		case valueOf(hourly, d) < cost || valueOf(hourly, d-1) >= cost:
			t.Fatalf("cost %d at %d an hour: %d is not the least time", cost, hourly, d)
		}
	}
}

// one is a job of eight GPUs and an hour with one offer that pays for it.
func one() (*cluster.Snapshot, []Candidate) {
	policy := cluster.DefaultPolicy()
	policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	policy.QOS[2].BurstValue = cluster.OneUnit
	policy.Burst.On = true
	job := &cluster.Job{ID: 10, State: cluster.Pending, Submitted: now.Add(-time.Hour), Spec: &cluster.JobSpec{
		Partition: "main", OtherPartitions: []string{"cloud"}, QOS: "standard", TimeLimit: time.Hour, Burst: cluster.Burst{Mode: cluster.BurstAllow},
		Request: cluster.Request{Nodes: 1, GPUsPerNode: 8, TasksPerNode: 1, CPUsPerTask: 1},
	}}
	snap := &cluster.Snapshot{Now: now, Policy: &policy, Pending: []*cluster.Job{job}, Burst: &cluster.BurstView{
		Left: map[string]int64{"": 100 * cluster.OneUnit},
		Offers: []*cluster.Offer{{
			Name: "a", Market: cluster.Spot, Region: "us", Price: 2 * cluster.OneUnit, PricedAt: now, CPUs: 64, Memory: cluster.TiB, GPUs: 8, GPUType: "h100",
			Boot: 5 * time.Minute,
		}},
	}}
	return snap, []Candidate{{Job: job, At: now.Add(8 * time.Hour)}}
}

// TestWhatKeepsAnOfferFromUse changes one thing of an offer, a policy or a request that pays.
func TestWhatKeepsAnOfferFromUse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster.Snapshot, *cluster.Offer, *cluster.JobSpec)
		says   string
	}{
		"nothing":        {func(*cluster.Snapshot, *cluster.Offer, *cluster.JobSpec) {}, ""},
		"price 0":        {func(_ *cluster.Snapshot, o *cluster.Offer, _ *cluster.JobSpec) { o.Price = 0 }, "without a price"},
		"negative price": {func(_ *cluster.Snapshot, o *cluster.Offer, _ *cluster.JobSpec) { o.Price = -1 }, "without a price"},
		"price 10^12":    {func(_ *cluster.Snapshot, o *cluster.Offer, _ *cluster.JobSpec) { o.Price = cluster.MaxMoney }, "price out of range"},
		"old price":      {func(_ *cluster.Snapshot, o *cluster.Offer, _ *cluster.JobSpec) { o.PricedAt = now.Add(-7 * time.Hour) }, "older than 6:00:00"},
		"region of policy": {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) {
			s.Policy.Burst.Regions = []string{"eu"}
		}, "not allowed by burst.regions"},
		"region of job":  {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Burst.Regions = []string{"eu"} }, "--burst-regions"},
		"region gone":    {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) { s.Burst.Offers = nil }, "no offers known yet"},
		"market":         {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Burst.Market = cluster.OnDemand }, "--burst-market"},
		"unknown market": {func(_ *cluster.Snapshot, o *cluster.Offer, _ *cluster.JobSpec) { o.Market = 7 }, "unknown market"},
		"spot share":     {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) { s.Policy.QOS[2].MinOnDemand = 1 }, "above spot_share"},
		"nodes of policy": {func(s *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) {
			s.Policy.Burst.MaxNodes, q.Request.Nodes = 1, 2
		}, "max_nodes"},
		"nodes of partition": {func(s *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) {
			s.Policy.Partitions[1].MaxNodes, q.Request.Nodes = 1, 2
		}, "allows 1 node"},
		"type":             {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Request.GPUTypes = []string{"a100"} }, "suitable GPU"},
		"features":         {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Request.Features = []string{"ib"} }, "without the features"},
		"node list":        {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Request.NodeList = []string{"n1"} }, "--nodelist"},
		"reservation":      {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.Reservation = "course" }, "within reservation"},
		"no limit":         {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.TimeLimit = 0 }, "no time limit"},
		"a limit of years": {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) { q.TimeLimit = 3 * maxLifetime }, "time limit exceeds"},
		"no cloud partition": {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) {
			s.Policy.Partitions = s.Policy.Partitions[:1]
		}, "none of its partitions"},
		"partition down": {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) { s.Policy.Partitions[1].Down = true }, "is down"},
		"a cost of 10^12": {func(_ *cluster.Snapshot, o *cluster.Offer, q *cluster.JobSpec) {
			o.Price, q.TimeLimit = maxPrice, 182*24*time.Hour
		}, "exceeding launch limits"},
		"budget lowered":    {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) { s.Burst.Left[""] = -5 }, "exceeds the 0.00 USD left in the budget of the cluster"},
		"no cluster budget": {func(s *cluster.Snapshot, _ *cluster.Offer, _ *cluster.JobSpec) { s.Burst.Left = nil }, "exceeds the 0.00 USD left in the budget of the cluster"},
		"locality": {func(_ *cluster.Snapshot, _ *cluster.Offer, q *cluster.JobSpec) {
			q.Request.Nodes, q.Request.Switches, q.Request.SwitchWait = 2, 1, -1
		}, "requires locality"},
	} {
		t.Run(name, func(t *testing.T) {
			snap, list := one()
			c.change(snap, snap.Burst.Offers[0], list[0].Job.Spec)
			tables := NewTables()
			list[0].Demand = tables.Demand(list[0].Job.Spec)
			jobs := eligible.NewJobList(snap, &eligible.JobList{})
			v := tables.View(snap, &jobs)
			_, _, found := v.Best(list, func(*Candidate) bool { return true })
			x := v.Choose(&list[0])
			if found != (c.says == "") || x.Commit != found || !strings.Contains(x.Why, c.says) {
				t.Errorf("leased: %v; %+v", found, x)
			}
		})
	}
}

// TestPatience checks that nodes are leased on demand only after spot offers have failed for the patience of the policy, and
// when that is decided again.
func TestPatience(t *testing.T) {
	snap, list := one()
	spot := snap.Burst.Offers[0]
	dear := *spot
	dear.Name, dear.Market, dear.Price = "b", cluster.OnDemand, 3*cluster.OneUnit
	snap.Burst.Offers = append(snap.Burst.Offers, &dear)
	tables := NewTables()
	list[0].Demand = tables.Demand(list[0].Job.Spec)
	jobs := eligible.NewJobList(snap, &eligible.JobList{})
	best := func(at time.Duration) (string, cluster.Instant) {
		shot := *snap
		shot.Now = now.Add(at)
		launch, wake, _ := tables.View(&shot, &jobs).Best(list, func(*Candidate) bool { return true })
		return launch.Offer.Name, wake
	}
	if name, wake := best(0); name != "a" || wake != cluster.Never {
		t.Errorf("at first: %q, wake %d", name, wake)
	}
	snap.Burst.Pauses = []cluster.OfferPause{{Offer: spot.Key(), Since: now, Until: now.Add(6 * time.Minute), Failures: 2, Capacity: true}}
	if name, wake := best(time.Minute); name != "" || wake != now.Add(5*time.Minute) {
		t.Errorf("while it pauses: %q, wake %d", name, wake)
	}
	if name, wake := best(5 * time.Minute); name != "b" || wake != now.Add(6*time.Minute) {
		t.Errorf("after the patience: %q, wake %d", name, wake)
	}
	if name, _ := best(7 * time.Minute); name != "a" {
		t.Errorf("after the pause: %q", name)
	}
}
