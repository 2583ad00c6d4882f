package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// TestTheStateAcceptsEveryLaunch has random offers and jobs that may run on cloud nodes, and many launches that fail: the
// state refuses no launch and no start, whatever its present budgets, pauses and leases are. A planner does not know what leases cost that are gone.
func TestTheStateAcceptsEveryLaunch(t *testing.T) {
	launched, started := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		v := cloudCluster(t, r)
		for step := range 40 {
			for range 5 {
				d, done, err := v.Pass()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range done.Stale {
					if strings.Contains(s.Why, "exceeds --burst-max-cost=") { // with leases that are gone
						continue
					}
					t.Fatalf("seed %d, step %d: job %s: %s; launches %+v, starts %+v", seed, step, s.Job, s.Why, d.Plan.Launches, d.Plan.Starts)
				}
				launched += len(d.Plan.Launches)
				for _, s := range d.Plan.Starts {
					if s.Partition == "cloud" {
						started++
					}
				}
				if !d.More {
					break
				}
			}
			v.cloudEvents(t, r)
			v.Now = v.Now.Add(time.Duration(1+r.IntN(4)) * time.Minute)
			if err := v.tick(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if launched < 50 || started < 20 {
		t.Errorf("only %d launches, and %d starts on leased nodes", launched, started)
	}
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// cloudCluster returns a cluster of one node of the site, with jobs for more than a day.
func cloudCluster(t *testing.T, r *rand.Rand) *Virtual {
	t.Helper()
	policy := cluster.DefaultPolicy()
	policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	for i := range policy.QOS {
		q := &policy.QOS[i]
		q.Open, q.BurstValue = true, oneOf(r, int64(cluster.OneUnit/10), cluster.OneUnit)
		q.BurstMaxWait, q.MinOnDemand = oneOf(r, 0, 4*time.Hour), oneOf(r, int32(0), 0, 30, 100)
	}
	b := &policy.Burst
	b.On, b.MonthlyLimit, b.MaxNodes = true, oneOf(r, int64(40), 400)*cluster.OneUnit, oneOf(r, int32(0), 3)
	b.Budgets = []cluster.RentalBudget{{Account: "physics", Monthly: 30 * cluster.OneUnit}}
	gpus := make([]cluster.GPU, 8)
	for i := range gpus {
		gpus[i] = cluster.GPU{Index: int32(i), Type: "h100", NUMA: -1}
	}
	m := &Machine{Nodes: []cluster.Node{{Name: "n1", BootID: "b", CPUs: 64, Memory: cluster.TiB, GPUs: gpus}}}
	v, err := assembled(m, &policy, true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		spec := cluster.JobSpec{
			Name: fmt.Sprintf("j%d", i), Owner: cluster.Identity{User: "ada", UID: 1000, GID: 1000}, Partition: "main", QOS: oneOf(r, "standard", "batch"),
			TimeLimit: time.Duration(1+r.IntN(300)) * time.Minute, Image: "example.org/image:1",
			Burst:   cluster.Burst{Mode: oneOf(r, cluster.BurstAllow, cluster.BurstOnly), MaxCost: oneOf(r, int64(0), 20*cluster.OneUnit), Market: oneOf(r, cluster.AnyMarket, cluster.Spot)},
			Request: cluster.Request{Nodes: oneOf(r, int32(1), 1, 2), GPUsPerNode: oneOf(r, int32(1), 8), TasksPerNode: 1, CPUsPerTask: 1},
		}
		if spec.Burst.Mode == cluster.BurstOnly {
			spec.Partition = "cloud"
		} else {
			spec.OtherPartitions = []string{"cloud"}
		}
		if err := v.Must(v.submission(&spec)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// cloudEvents sends what a leader could learn of the cloud: new prices, launches that fail, and instances that never join.
func (v *Virtual) cloudEvents(t *testing.T, r *rand.Rand) {
	t.Helper()
	set := &command.SetOffers{}
	for i := range 4 {
		set.Offers = append(set.Offers, cluster.Offer{
			Name: fmt.Sprintf("o%d", i), Market: oneOf(r, cluster.Spot, cluster.OnDemand), Region: "us", Type: "t", Price: 1 + r.Int64N(5*cluster.OneUnit),
			PricedAt: v.Now, CPUs: 96, Memory: cluster.TiB, GPUs: 8, GPUType: "h100", GPUMemory: 80 * cluster.GiB, Boot: time.Duration(1+r.IntN(9)) * time.Minute,
		})
	}
	update := &command.UpdateLeases{}
	if view := v.State.Peek().Snapshot().Burst; view != nil {
		for _, l := range view.Leases {
			u := command.LeaseUpdate{Lease: l.ID, Try: l.Try, Why: "no capacity", Capacity: true, At: v.Now, Cost: -1}
			switch {
			case l.State == cluster.LeasePlanned && l.ID == l.Launch:
				u.Event, u.Try, u.Token = command.LaunchRequested, l.Try+1, cluster.Digest{byte(l.ID), 1}
			case l.State == cluster.LeaseRequested && r.IntN(2) == 0:
				u.Event, u.Lease = command.LaunchFailed, l.Launch
			case l.State == cluster.LeaseRequested:
				u.Event, u.Instance, u.Price = command.LeaseStarted, fmt.Sprintf("i-%d", l.ID), l.MaxPrice
			case l.State == cluster.LeaseLaunched && r.IntN(2) == 0:
				n := l.Offer.Node()
				n.Name, n.BootID = l.ID.NodeName(), fmt.Sprintf("b%d", l.ID)
				if err := v.add(n); err != nil {
					t.Fatal(err)
				}
				continue
			case l.State == cluster.LeaseTerminating:
				u.Event = command.LeaseEnded
			default:
				continue
			}
			update.Updates = append(update.Updates, u)
		}
	}
	for _, c := range []command.Command{set, update} {
		if _, err := v.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
}
