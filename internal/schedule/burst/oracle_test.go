package burst

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/cluster"
)

var now = cluster.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// oracle decides as the documentation says: every offer for every job, with numbers of any size.
type oracle struct {
	snap *cluster.Snapshot
	jobs map[cluster.JobID]*cluster.Job
}

func (o *oracle) qos(job *cluster.Job) *cluster.QOS {
	i := slices.IndexFunc(o.snap.Policy.QOS, func(q cluster.QOS) bool { return q.Name == job.Spec.QOS })
	return &o.snap.Policy.QOS[i]
}

// suits reports whether an offer suits a job, whether it is paused or not.
func (o *oracle) suits(job *cluster.Job, x *cluster.Offer) bool {
	q, b, rules := &job.Spec.Request, &job.Spec.Burst, &o.snap.Policy.Burst
	in := func(list []string) bool { return len(list) == 0 || slices.Contains(list, x.Region) }
	if x.Price <= 0 || x.Price > 1_000_000_000_000 || o.snap.Now-x.PricedAt > cluster.Instant(6*time.Hour) || !in(b.Regions) || !in(rules.Regions) {
		return false
	}
	each := q.GPUsPerNode
	if each == 0 && q.GPUs > 0 {
		each = 1
	}
	if b.Market != cluster.AnyMarket && b.Market != x.Market || x.CPUs < q.TasksPerNode*q.CPUsPerTask || x.Memory < q.MemPerNode {
		return false
	}
	if each > x.GPUs || each > 0 && len(q.GPUTypes) > 0 && !slices.Contains(q.GPUTypes, x.GPUType) || each > 0 && x.GPUMemory < q.GPUMemory {
		return false
	}
	n := o.nodes(job, x)
	if n == 0 || rules.MaxNodes > 0 && len(o.snap.Burst.Leases)+n > int(rules.MaxNodes) {
		return false
	}
	if x.Market != cluster.Spot {
		return true
	}
	all, onDemand := n, 0
	for _, l := range o.snap.Burst.Leases {
		if of := o.jobs[l.Job]; of != nil && of.Spec.QOS == job.Spec.QOS {
			if all++; l.Offer.Market == cluster.OnDemand {
				onDemand++
			}
		}
	}
	return onDemand*100 >= int(o.qos(job).MinOnDemand)*all
}

// nodes returns how many nodes of an offer a job needs; 0 if no number suffices.
func (o *oracle) nodes(job *cluster.Job, x *cluster.Offer) int {
	q := &job.Spec.Request
	if q.GPUs == 0 {
		return int(q.Nodes)
	}
	if q.Nodes > 0 {
		if int(q.Nodes*x.GPUs) < int(q.GPUs) {
			return 0
		}
		return int(q.Nodes)
	}
	for n := 1; n <= int(q.GPUs); n++ {
		if n*int(x.GPUs) >= int(q.GPUs) {
			return n
		}
	}
	return 0
}

func (o *oracle) pause(x *cluster.Offer) *cluster.OfferPause {
	for i := range o.snap.Burst.Pauses {
		if o.snap.Burst.Pauses[i].Offer == x.Key() {
			return &o.snap.Burst.Pauses[i]
		}
	}
	return &cluster.OfferPause{}
}

// usable reports whether an offer may be requested for a job now.
func (o *oracle) usable(job *cluster.Job, x *cluster.Offer) bool {
	if !o.suits(job, x) || o.pause(x).Until > o.snap.Now {
		return false
	}
	if x.Market == cluster.Spot || job.Spec.Burst.Market != cluster.AnyMarket {
		return true
	}
	for _, y := range o.snap.Burst.Offers {
		p := o.pause(y)
		if y.Market == cluster.Spot && o.suits(job, y) && (!p.Capacity || p.Since == 0 || o.snap.Now.Sub(p.Since) < o.snap.Policy.Burst.SpotPatience) {
			return false
		}
	}
	return true
}

func up(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func product(list ...int64) *big.Int {
	p := big.NewInt(1)
	for _, n := range list {
		p.Mul(p, big.NewInt(n))
	}
	return p
}

// cost returns the worst-case cost of a job on an offer, and the price that the request contains.
func (o *oracle) cost(job *cluster.Job, x *cluster.Offer) (*big.Int, int64) {
	price, risk := x.Price, int64(0)
	if x.Market == cluster.Spot {
		price, risk = up(product(price, 12), big.NewInt(10)).Int64(), int64(cmp.Or(x.Risk, o.snap.Policy.Burst.InterruptionRisk))
	}
	seconds := up(big.NewInt(int64(o.lifetime(job))), big.NewInt(int64(time.Second))).Int64()
	each := up(product(seconds, price), big.NewInt(3600))
	more := new(big.Int).Add(big.NewInt(1_000_000), up(product(risk, seconds), big.NewInt(3600)))
	each = up(each.Mul(each, more), big.NewInt(1_000_000))
	return each.Mul(each, big.NewInt(int64(o.nodes(job, x)))), price
}

func (o *oracle) lifetime(job *cluster.Job) time.Duration {
	d := job.Spec.TimeLimit + o.snap.Policy.KillWait + 10*time.Second + o.snap.Policy.Burst.BootTimeout
	if len(job.Spec.StageIn)+len(job.Spec.StageOut) > 0 {
		d += o.snap.Policy.Burst.StagingTime
	}
	return d
}

func (o *oracle) affords(job *cluster.Job, cost *big.Int) bool {
	within := func(most int64) bool { return cost.Cmp(big.NewInt(most)) <= 0 }
	if most := job.Spec.Burst.MaxCost; most > 0 && !within(most) {
		return false
	}
	left := o.snap.Burst.Left
	if !within(left[""]) {
		return false
	}
	for name := job.Spec.Account; name != ""; name = parents[name] {
		if most, limited := left[name]; limited && !within(most) {
			return false
		}
	}
	return true
}

// option is a job with an offer that pays for it.
type option struct {
	job         *cluster.Job
	rank        *order.Rank
	offer       *cluster.Offer
	cost, value *big.Int
	price       int64
}

// options returns the offers that pay for a job.
func (o *oracle) options(c *Candidate) (list []option) {
	job := c.Job
	at, since := c.At, max(job.Submitted, job.Eligible)
	if at-o.snap.Now > cluster.Instant(365*24*time.Hour/2) {
		at = 0
	}
	only := job.Spec.Burst.Mode == cluster.BurstOnly
	if job.Spec.TimeLimit == 0 || o.snap.Now.Sub(since) < o.snap.Policy.Burst.MinPending || at == 0 && !only {
		return nil
	}
	hourly := product(o.qos(job).BurstValue, int64(max(job.Spec.Request.TotalGPUs(), 1)))
	if hourly.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		hourly = big.NewInt(math.MaxInt64)
	}
	for _, x := range o.snap.Burst.Offers {
		saved := at.Sub(o.snap.Now) - x.Boot
		if len(job.Spec.StageIn) > 0 {
			saved -= o.snap.Policy.Burst.StagingTime
		}
		if !o.usable(job, x) || at > 0 && saved <= 0 {
			continue
		}
		cost, price := o.cost(job, x)
		if cost.Cmp(big.NewInt(cluster.MaxMoney)) > 0 || !o.affords(job, cost) {
			continue
		}
		value := new(big.Int)
		if at > 0 {
			value.Quo(value.Mul(hourly, big.NewInt(int64(saved))), big.NewInt(int64(time.Hour)))
		}
		if value.Cmp(big.NewInt(math.MaxInt64)) > 0 {
			value = big.NewInt(math.MaxInt64)
		}
		long := o.qos(job).BurstMaxWait > 0 && at.Sub(since) > o.qos(job).BurstMaxWait
		if only || long || value.Cmp(cost) >= 0 {
			list = append(list, option{job, c.Rank, x, cost, value, price})
		}
	}
	return list
}

// decide returns the launch of the oracle, without the sentence; false for none.
func (o *oracle) decide(list []Candidate) (cluster.Launch, bool) {
	var best *option
	for i := range list {
		c := &list[i]
		waits := func(l *cluster.Lease) bool { return l.For == c.Job.ID }
		if c.Closed || slices.ContainsFunc(o.snap.Burst.Leases, waits) {
			continue
		}
		all := o.options(c)
		slices.SortFunc(all, func(a, b option) int {
			return cmp.Or(a.cost.Cmp(b.cost), cmp.Compare(a.offer.Boot, b.offer.Boot), cmp.Compare(a.offer.Name, b.offer.Name), cmp.Compare(a.offer.Market, b.offer.Market))
		})
		if len(all) == 0 {
			continue
		}
		x := all[0]
		if best != nil {
			a, b := new(big.Int).Mul(x.value, best.cost), new(big.Int).Mul(best.value, x.cost)
			if r := a.Cmp(b); r < 0 || r == 0 && x.rank.Compare(best.rank) > 0 {
				continue
			}
		}
		best = &x
	}
	if best == nil {
		return cluster.Launch{}, false
	}
	return cluster.Launch{
		Job: best.job.ID, Attempt: best.job.Attempt + 1, Offer: best.offer.Key(), Nodes: int32(o.nodes(best.job, best.offer)),
		MaxPrice: best.price, Lifetime: o.lifetime(best.job), Cost: best.cost.Int64(),
	}, true
}

// parents are the accounts of random instances.
var parents = map[string]string{"physics": "science", "chemistry": "science", "science": cluster.RootAccount, cluster.RootAccount: ""}

// instance is a random cluster with a cloud.
type instance struct {
	*rand.Rand
	snap cluster.Snapshot
	list []Candidate
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func newInstance(seed uint64) *instance {
	x := &instance{Rand: rand.New(rand.NewPCG(seed, 5))}
	policy := cluster.DefaultPolicy()
	policy.Partitions = append(policy.Partitions, cluster.Partition{Name: "cloud", Nodes: []string{cluster.LeasedNodes}})
	for i := range policy.QOS {
		q := &policy.QOS[i]
		q.BurstValue = pick(x.Rand, int64(0), 10_000, cluster.OneUnit, 5*cluster.OneUnit, cluster.MaxMoney)
		q.BurstMaxWait, q.MinOnDemand = pick(x.Rand, 0, 0, 4*time.Hour), pick(x.Rand, int32(0), 0, 50, 100)
	}
	b := &policy.Burst
	b.On, b.MaxNodes, b.MinPending = true, pick(x.Rand, int32(0), 0, 0, 3, 8), pick(x.Rand, 0, time.Minute)
	b.Regions = pick(x.Rand, nil, nil, nil, []string{"us"}, []string{"us", "eu"})
	var accounts []*cluster.Account
	for name, parent := range parents {
		if parent != "" {
			accounts = append(accounts, &cluster.Account{Name: name, Parent: parent, Shares: 1})
		}
	}
	tree := cluster.NewAccountTree(slices.Values(accounts), slices.Values[[]*cluster.Association](nil))
	x.snap = cluster.Snapshot{Now: now, Policy: &policy, Accounts: &cluster.AccountView{Tree: tree}, Burst: &cluster.BurstView{}}
	for i := range 1 + x.IntN(10) {
		x.addJob(cluster.JobID(i + 1))
	}
	x.change()
	return x
}

func (x *instance) addJob(id cluster.JobID) {
	r := x.Rand
	q := cluster.Request{Nodes: pick(r, int32(1), 1, 2, 3), TasksPerNode: 1, CPUsPerTask: pick(r, int32(1), 16), MemPerNode: pick(r, 0, 100*cluster.GiB)}
	switch r.IntN(3) {
	case 0:
		q.GPUsPerNode = pick(r, int32(1), 4, 8)
	case 1:
		q.GPUs, q.Nodes = pick(r, int32(4), 8, 13), pick(r, int32(0), 0, 2)
	}
	if q.GPUs+q.GPUsPerNode > 0 {
		q.GPUTypes, q.GPUMemory = pick(r, nil, []string{"h100"}, []string{"a100", "h100"}), pick(r, 0, 60*cluster.GiB)
	}
	spec := &cluster.JobSpec{
		Partition: "main", OtherPartitions: []string{"cloud"}, QOS: pick(r, "standard", "batch", "production"),
		Account: pick(r, "", "physics", "chemistry", "science", "unknown"), Request: q,
		TimeLimit: pick(r, 0, time.Minute, time.Hour, 2*time.Hour, 30*time.Hour, 100*24*time.Hour),
		Burst: cluster.Burst{
			Mode: pick(r, cluster.BurstAllow, cluster.BurstAllow, cluster.BurstOnly), MaxCost: pick(r, 0, 0, 30*int64(cluster.OneUnit)),
			Regions: pick(r, nil, nil, nil, nil, []string{"eu"}), Market: pick(r, cluster.AnyMarket, cluster.AnyMarket, cluster.Spot, cluster.OnDemand),
		},
	}
	spec.StageIn, spec.StageOut = pick(r, nil, nil, make([]cluster.Staging, 1)), pick(r, nil, nil, make([]cluster.Staging, 1))
	job := &cluster.Job{ID: id, State: cluster.Pending, Spec: spec, Attempt: pick(r, cluster.Attempt(0), 2)}
	x.snap.Pending = append(x.snap.Pending, job)
	x.list = append(x.list, Candidate{Job: job, Rank: &order.Rank{Tier: pick(r, int32(1), 2), ID: id}})
}

// change changes what the decision depends on, except for requests and policy.
func (x *instance) change() {
	r := x.Rand
	view := &cluster.BurstView{Left: map[string]int64{"": pick(r, int64(0), 100*cluster.OneUnit, 10_000*cluster.OneUnit, cluster.MaxMoney, cluster.MaxMoney)}}
	for name := range parents {
		if r.IntN(5) == 0 {
			view.Left[name] = pick(r, int64(0), 20*cluster.OneUnit, 2000*cluster.OneUnit)
		}
	}
	x.snap.Now = now.Add(time.Duration(r.IntN(3)) * time.Minute)
	view.Offers = x.offers()
	for _, o := range view.Offers {
		if r.IntN(4) == 0 {
			view.Pauses = append(view.Pauses, cluster.OfferPause{
				Offer: o.Key(), Since: x.snap.Now.Add(-pick(r, time.Minute, 5*time.Minute, time.Hour)), Until: x.snap.Now.Add(pick(r, -time.Second, 0, time.Minute)), Capacity: r.IntN(4) > 0,
			})
		}
	}
	for i := range r.IntN(4) {
		job := pick(r, cluster.JobID(1), 2, 3, 77)
		l := &cluster.Lease{ID: cluster.LeaseID(i + 1), Job: job, State: cluster.LeaseLaunched, Offer: cluster.Offer{Market: pick(r, cluster.Spot, cluster.OnDemand)}}
		if r.IntN(2) == 0 {
			l.For = job
		}
		view.Leases = append(view.Leases, l)
	}
	x.snap.Burst = view
	for i := range x.list {
		c := &x.list[i]
		job := *c.Job
		job.Submitted = x.snap.Now.Add(-pick(r, 0, time.Minute, 3*time.Hour))
		job.Eligible = pick(r, 0, x.snap.Now.Add(-30*time.Second))
		c.Job, c.Closed = &job, r.IntN(8) == 0
		c.At = pick(r, 0, x.snap.Now.Add(2*time.Minute), x.snap.Now.Add(6*time.Minute), x.snap.Now.Add(5*time.Hour), x.snap.Now.Add(40*time.Hour), x.snap.Now.Add(300*24*time.Hour))
		x.snap.Pending[i] = &job
	}
}

func (x *instance) offers() (list []*cluster.Offer) {
	r := x.Rand
	if x.snap.Burst != nil && len(x.snap.Burst.Offers) > 0 && r.IntN(2) == 0 {
		return x.snap.Burst.Offers // the same as before
	}
	for i := range 1 + r.IntN(6) {
		list = append(list, &cluster.Offer{
			Name: fmt.Sprintf("o%d", i), Market: pick(r, cluster.Spot, cluster.OnDemand), Region: pick(r, "us", "us", "eu", "asia"),
			Price:    x.price(),
			PricedAt: now.Add(-pick(r, 0, time.Hour, 0, time.Hour, cluster.MaxPriceAge, cluster.MaxPriceAge+time.Second)), CPUs: pick(r, int32(8), 64, 64),
			Memory: pick(r, 64*cluster.GiB, cluster.TiB), GPUs: pick(r, int32(0), 8, 8, 4), GPUType: pick(r, "h100", "h100", "a100"), GPUMemory: pick(r, 40*cluster.GiB, 80*cluster.GiB),
			Boot: pick(r, 0, 3*time.Minute, 10*time.Minute), Risk: pick(r, int32(0), 200_000),
		})
	}
	return list
}

// price returns a price that is mostly one of a node.
func (x *instance) price() int64 {
	if x.IntN(4) > 0 {
		return int64(cluster.OneUnit) + x.Int64N(5*cluster.OneUnit)
	}
	return pick(x.Rand, 0, 1, 2*int64(cluster.OneUnit), maxPrice, maxPrice+1, cluster.MaxMoney, math.MaxInt64, -5)
}

// FuzzBurst compares the decisions about random instances, with tables that last, with those of the oracle.
func FuzzBurst(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		x, tables := newInstance(seed), NewTables()
		for step := range 6 {
			for i := range x.list {
				x.list[i].Demand = tables.Demand(x.list[i].Job.Spec)
			}
			jobs := eligible.NewJobList(&x.snap, &eligible.JobList{})
			o := &oracle{snap: &x.snap, jobs: map[cluster.JobID]*cluster.Job{}}
			for _, j := range x.snap.Pending {
				o.jobs[j.ID] = j
			}
			v := tables.View(&x.snap, &jobs)
			got, _, found := v.Best(x.list, func(*Candidate) bool { return true })
			want, wanted := o.decide(x.list)
			if got.Why = ""; found != wanted || got != want {
				t.Fatalf("seed %d, step %d: decided %+v (%v), want %+v (%v)", seed, step, got, found, want, wanted)
			}
			x.checkChoices(t, v, got.Job)
			x.change()
		}
	})
}

// checkChoices checks that each job has a sentence, and that the launch is one of the choices.
func (x *instance) checkChoices(t *testing.T, v *View, launched cluster.JobID) {
	t.Helper()
	for i := range x.list {
		c := v.Choose(&x.list[i])
		if c.Why == "" || c.Job == launched && !c.Commit {
			t.Fatalf("job %d, where %d is launched: %+v", c.Job, launched, c)
		}
		if c.Cost < 0 || c.Value < 0 || c.Commit && (c.Cost <= 0 || c.Offer == nil) {
			t.Fatalf("job %d: %+v", c.Job, c)
		}
	}
}
