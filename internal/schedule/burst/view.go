package burst

import (
	"iter"
	"maps"
	"math"
	"math/bits"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// MaxRelaunch is the longest time after which a launch that became no leases is decided again.
const MaxRelaunch = time.Hour

// Candidate is a pending job that may run on leased nodes.
type Candidate struct {
	Job    *cluster.Job
	At     cluster.Instant // its planned start; 0: none
	Demand *Demand
	Rank   *order.Rank // decides between equal candidates
	Closed bool        // no node is leased for it, whatever that would cost: it is not eligible, for instance
	Notes  *Notes      // for explanations; nil for none
}

// Notes say more about a candidate.
type Notes struct {
	Obstacle  string // why it is closed
	Unplanned string // why it has no planned start
}

// NewCandidate returns the candidate of an entry of the plan.
func NewCandidate(e *plan.Entry, d *Demand) Candidate {
	c := Candidate{Rank: &e.Rank, Demand: d}
	if c.Rank.ID == 0 { // it is not eligible yet
		c.Rank = &order.Rank{Submitted: e.Job.Submitted, ID: e.Job.ID}
	}
	c.Update(e)
	return c
}

// Update brings the candidate of an entry up to date.
func (c *Candidate) Update(e *plan.Entry) {
	c.Job, c.At, c.Closed = e.Job, e.At, !e.MayLease()
}

// Tables keep what does not change from one snapshot to the next.
type Tables struct {
	terms  *terms
	market *market
	state  uint64 // counts the states of the market
	byKey  map[demandKey]*Demand
	bySpec map[*cluster.JobSpec]*Demand
}

// NewTables returns empty tables.
func NewTables() *Tables {
	return &Tables{byKey: map[demandKey]*Demand{}, bySpec: map[*cluster.JobSpec]*Demand{}}
}

// Demand returns the demand of a specification.
func (t *Tables) Demand(spec *cluster.JobSpec) *Demand {
	d, known := t.bySpec[spec]
	if known {
		return d
	}
	key := keyOf(spec)
	if d = t.byKey[key]; d == nil {
		d = &Demand{spec: spec}
		t.byKey[key] = d
	}
	t.bySpec[spec] = d
	return d
}

// Forget forgets all specifications; their demands stay where they are used.
func (t *Tables) Forget() {
	t.byKey, t.bySpec = map[demandKey]*Demand{}, map[*cluster.JobSpec]*Demand{}
}

// Known returns the number of specifications that the tables know.
func (t *Tables) Known() int { return len(t.bySpec) }

// View is what one snapshot says about leases.
type View struct {
	*Tables
	now    cluster.Instant
	policy *cluster.BurstPolicy
	tree   *cluster.AccountTree
	view   *cluster.BurstView
	leases map[cluster.JobID][]*cluster.Lease // live ones, by the job that waits for them
	// refused are decisions that the state refused a short time ago, by job.
	refused map[cluster.JobID]cluster.LaunchRefusal
}

// budget is the tightest budget of an account.
type budget struct {
	left int64
	of   string // whose it is; "" for the cluster
}

// View reads a snapshot, whose jobs are given.
func (t *Tables) View(snap *cluster.Snapshot, jobs *eligible.JobList) *View {
	v := &View{
		Tables: t, now: snap.Now, policy: &snap.Policy.Burst, tree: eligible.TreeOf(snap), view: snap.Burst,
		leases: map[cluster.JobID][]*cluster.Lease{}, refused: map[cluster.JobID]cluster.LaunchRefusal{},
	}
	if v.view == nil {
		v.view = &cluster.BurstView{}
	}
	if t.terms == nil || !t.terms.same(snap, v.view.Offers) {
		t.terms, t.market = newTerms(snap, v.view.Offers), nil
	}
	for _, r := range v.view.Refused {
		if r.At.Add(MaxRelaunch) > v.now {
			v.refused[r.Job] = r
		}
	}
	for _, l := range v.view.Leases {
		if l.Live() && l.For != 0 {
			v.leases[l.For] = append(v.leases[l.For], l)
		}
	}
	if m := marketOf(t.terms, snap, v.view, jobs); !m.equal(t.market) {
		t.market = m
		t.state++
	}
	return v
}

// Leases returns the live leases for a job.
func (v *View) Leases(id cluster.JobID) []*cluster.Lease { return v.leases[id] }

// Waiting yields the jobs that wait for live leases, in no order.
func (v *View) Waiting() iter.Seq[cluster.JobID] { return maps.Keys(v.leases) }

// prepare brings a demand up to date.
func (v *View) prepare(d *Demand) {
	if d.terms != v.terms {
		d.quote(v.terms)
	}
	if d.state != v.state {
		d.narrow(v.market, v.state)
		d.budget = v.budget(d.spec.Account)
		d.most = d.budget.left
		if most := d.spec.Burst.MaxCost; most > 0 {
			d.most = min(d.most, most)
		}
		d.enough = math.MaxInt64
		for i := range d.open {
			if q := &d.open[i]; q.cost <= d.most && q.least < math.MaxInt64-q.boot {
				d.enough = min(d.enough, q.boot+max(q.least, 1))
			}
		}
	}
}

// budget returns the tightest budget for jobs of an account: its own, that of an ancestor, or that of the cluster.
func (v *View) budget(account string) budget {
	b := budget{v.view.Left[""], ""}
	for _, name := range v.payers(account) {
		if left, limited := v.view.Left[name]; limited && left < b.left {
			b = budget{left, name}
		}
	}
	return b
}

// payers returns whose budgets count for an account: the cluster's (""), its own, and those of its ancestors.
func (v *View) payers(account string) []string {
	list := []string{"", account}
	if v.tree != nil && account != "" {
		for _, n := range v.tree.Up(v.tree.Account(account)) {
			list = append(list, n.Account.Name)
		}
	}
	return list
}

// since returns from when on a job may start as far as times say that.
func since(job *cluster.Job) cluster.Instant {
	return max(job.Submitted, job.Eligible, job.Spec.Begin)
}

// planned returns the planned start of a candidate; 0 if it has none, or it depends on the assumed run time of jobs without a
// time limit.
func (c *Candidate) planned(now cluster.Instant) cluster.Instant {
	if c.At.Sub(now) > eligible.UnlimitedTime/2 {
		return 0
	}
	return c.At
}

// pays returns the first of the open quotes that a lease is decided for: the one with the least worst-case cost among
// those that are within the budgets and either save as much as they cost, or are for a job that waits too long or runs on leased
// nodes only; false if no quote does.
func (v *View) pays(c *Candidate) (*quote, bool) {
	d, at := c.Demand, c.planned(v.now)
	if len(d.open) == 0 || at == 0 && d.spec.Burst.Mode != cluster.BurstOnly {
		return nil, false
	}
	saved, anyway := at.Sub(v.now), v.anyway(c)
	if !anyway && saved < d.enough {
		return nil, false
	}
	for i := range d.open {
		q := &d.open[i]
		switch {
		case q.cost > d.most:
			return nil, false
		case at > 0 && saved <= q.boot, !anyway && saved-q.boot < q.least:
			continue
		}
		return q, true
	}
	return nil, false
}

// anyway reports whether nodes are leased for a candidate whatever the time is worth that this saves.
func (v *View) anyway(c *Candidate) bool {
	d := c.Demand
	return d.spec.Burst.Mode == cluster.BurstOnly || d.maxWait > 0 && c.planned(v.now).Sub(since(c.Job)) > d.maxWait
}

// settled reports whether a job has been eligible for as long as the policy says, or when it will have been.
func (v *View) settled(job *cluster.Job) (cluster.Instant, bool) {
	at := since(job).Add(v.policy.MinPending)
	return at, at <= v.now
}

// choice is a candidate with the quote that pays for it.
type choice struct {
	*Candidate
	quote *quote
	value int64
}

// saves returns the time that the quote saves.
func (v *View) saves(c *Candidate, q *quote) time.Duration {
	at := c.planned(v.now)
	if at == 0 {
		return 0
	}
	return max(0, at.Sub(v.now)-q.boot)
}

// before reports whether a has more value for its cost than b; between equal ones the one that comes first in the order.
func (a *choice) before(b *choice) bool {
	high1, low1 := bits.Mul64(uint64(a.value), uint64(b.quote.cost))
	high2, low2 := bits.Mul64(uint64(b.value), uint64(a.quote.cost))
	switch {
	case high1 != high2:
		return high1 > high2
	case low1 != low2:
		return low1 > low2
	}
	return a.Rank.Compare(b.Rank) < 0
}

// Best returns the launch that is decided next: that with the best ratio of value less cost to cost, among candidates that
// admit accepts; false without one. wake is when another candidate has been eligible for long enough; it is
// [cluster.Never] for none. O(candidates + requests × offers).
func (v *View) Best(list []Candidate, admit func(*Candidate) bool) (launch cluster.Launch, wake cluster.Instant, found bool) {
	best, wake := v.best(list, admit)
	if best == nil {
		return launch, min(wake, v.wake()), false
	}
	return v.launch(best), min(wake, v.wake()), true
}

// best returns the choice of Best; nil for none.
func (v *View) best(list []Candidate, admit func(*Candidate) bool) (best *choice, wake cluster.Instant) {
	wake = cluster.Never
	for i := range list {
		c := &list[i]
		if c.Closed || v.leases[c.Job.ID] != nil {
			continue
		}
		v.prepare(c.Demand)
		q, pays := v.pays(c)
		if !pays {
			continue
		}
		if at, settled := v.settled(c.Job); !settled {
			wake = min(wake, at)
			continue
		}
		next := choice{c, q, valueOf(c.Demand.hourly, v.saves(c, q))}
		if (best == nil || next.before(best)) && admit(c) {
			best = &choice{c, q, next.value}
		}
	}
	return best, wake
}

// wake returns when the next pause of an offer ends, or failures of spot offers have lasted for so long that nodes are
// leased on demand.
func (v *View) wake() cluster.Instant {
	at := cluster.Never
	for i := range v.view.Pauses {
		p := &v.view.Pauses[i]
		for _, next := range [...]cluster.Instant{p.Until, p.Since.Add(v.policy.SpotPatience)} {
			if p.Since > 0 && next > v.now {
				at = min(at, next)
			}
		}
	}
	return at
}

// launch returns the launch of a choice.
func (v *View) launch(x *choice) cluster.Launch {
	o := &v.terms.offers[x.quote.offer]
	return cluster.Launch{
		Job: x.Job.ID, Attempt: x.Job.Attempt + 1, Offer: o.Key(), Nodes: x.quote.nodes, MaxPrice: x.quote.price,
		Lifetime: x.Demand.lifetime, Cost: x.quote.cost, Why: v.reason(x),
	}
}
