package burst

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// offer is an offer, with a node as it describes it.
type offer struct {
	cluster.Offer
	node  *cluster.Node
	fault string // why it is never used; "" if it may be
}

// terms are the offers and rules by which demands are quoted. They are replaced when one of them changes.
type terms struct {
	policy    *cluster.Policy
	rules     *eligible.Rules
	qos       map[string]cluster.QOS
	cloud     string // the partition of the leased nodes; "" for none
	partition cluster.Partition
	offers    []offer
	prices    map[string]int64 // of GPU hours, in credits
}

// same reports whether the terms are those of a snapshot. O(offers + prices).
func (t *terms) same(snap *cluster.Snapshot, offers []*cluster.Offer) bool {
	return t.policy == snap.Policy && maps.Equal(t.prices, plan.PricesOf(snap)) &&
		slices.EqualFunc(t.offers, offers, func(a offer, b *cluster.Offer) bool { return a.Offer == *b })
}

// newTerms reads a snapshot.
func newTerms(snap *cluster.Snapshot, offers []*cluster.Offer) *terms {
	t := &terms{
		policy: snap.Policy, rules: eligible.RulesOf(snap.Policy, nil), qos: make(map[string]cluster.QOS, len(snap.Policy.QOS)),
		prices: plan.PricesOf(snap), offers: make([]offer, len(offers)),
	}
	for _, q := range snap.Policy.QOS {
		t.qos[q.Name] = q
	}
	if part, found := snap.Policy.Cloud(); found {
		t.cloud, t.partition = part.Name, part
	}
	for i, o := range offers {
		t.offers[i] = offer{*o, o.Node(), t.faultOf(o)}
	}
	return t
}

// faultOf returns why an offer is never used; "" if it may be.
func (t *terms) faultOf(o *cluster.Offer) string {
	regions := t.policy.Burst.Regions
	switch {
	case o.Price <= 0:
		return "without a price"
	case o.Price > maxPrice:
		return "price out of range"
	case o.Market != cluster.Spot && o.Market != cluster.OnDemand:
		return "unknown market"
	case len(regions) > 0 && !slices.Contains(regions, o.Region):
		return "region not allowed by burst.regions"
	}
	return ""
}

// priceOf returns what an hour of a GPU costs in credits, by the name under which it is charged.
func (t *terms) priceOf(name string) int64 { return plan.PriceOf(t.prices, name) }

// risk returns the risk of an interruption of a node within an hour, in millionths.
func (t *terms) risk(o *cluster.Offer) int32 {
	if o.Market != cluster.Spot {
		return 0
	}
	return cmp.Or(max(o.Risk, 0), t.policy.Burst.InterruptionRisk)
}

// compare orders quotes: the cheapest first, then the one that joins first.
func (t *terms) compare(a, b *quote) int {
	x, y := &t.offers[a.offer], &t.offers[b.offer]
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.boot, b.boot), strings.Compare(x.Name, y.Name), cmp.Compare(x.Market, y.Market))
}

// market is the state of the offers and budgets: what may be requested now.
type market struct {
	closed  []string // by offer, why it is not used now; "" if it may be
	paused  []bool   // by offer
	failing []bool   // by offer: requests for it have failed for so long that others may be made on demand
	spot    map[string]spotShare
	live    int                  // leased nodes
	left    map[string]int64     // see [cluster.BurstView]
	tree    *cluster.AccountTree // says whose budgets count
}

// spotShare counts the leased nodes of a QOS.
type spotShare struct{ all, onDemand int32 }

// marketOf returns the state of the offers at the instant of a snapshot. O(offers + pauses + leases).
func marketOf(t *terms, snap *cluster.Snapshot, view *cluster.BurstView, jobs *eligible.JobList) *market {
	now := snap.Now
	m := &market{
		closed: make([]string, len(t.offers)), paused: make([]bool, len(t.offers)), failing: make([]bool, len(t.offers)),
		spot: map[string]spotShare{}, left: view.Left, tree: eligible.TreeOf(snap),
	}
	pauses := make(map[cluster.OfferKey]*cluster.OfferPause, len(view.Pauses))
	for i := range view.Pauses {
		pauses[view.Pauses[i].Offer] = &view.Pauses[i]
	}
	for i := range t.offers {
		o := &t.offers[i]
		p := pauses[o.Key()]
		switch {
		case o.fault != "":
			m.closed[i] = o.fault
		case now.Sub(o.PricedAt) > cluster.MaxPriceAge:
			m.closed[i] = "price older than " + cluster.FormatElapsed(cluster.MaxPriceAge)
		}
		m.paused[i] = p != nil && p.Until > now
		m.failing[i] = p != nil && p.Capacity && p.Since > 0 && now.Sub(p.Since) >= t.policy.Burst.SpotPatience
	}
	for _, l := range view.Leases {
		if !l.Live() {
			continue
		}
		m.live++
		job, known := jobs.Find(l.Job)
		if !known {
			continue
		}
		s := m.spot[job.Spec.QOS]
		if s.all++; l.Offer.Market == cluster.OnDemand {
			s.onDemand++
		}
		m.spot[job.Spec.QOS] = s
	}
	return m
}

func (m *market) equal(o *market) bool {
	return o != nil && slices.Equal(m.closed, o.closed) && slices.Equal(m.paused, o.paused) && slices.Equal(m.failing, o.failing) && maps.Equal(m.spot, o.spot) &&
		m.live == o.live && maps.Equal(m.left, o.left) && m.tree == o.tree
}

// allowsSpot reports whether more spot nodes leave a QOS its share of nodes on demand.
func (m *market) allowsSpot(q *cluster.QOS, nodes int32) bool {
	s := m.spot[q.Name]
	return int64(s.onDemand)*100 >= int64(q.MinOnDemand)*(int64(s.all)+int64(nodes))
}

// allowsMore reports whether the policy allows that many nodes more.
func (m *market) allowsMore(policy *cluster.Policy, nodes int32) bool {
	return policy.Burst.MaxNodes == 0 || int64(m.live)+int64(nodes) <= int64(policy.Burst.MaxNodes)
}

// narrow sets the quotes that may be requested now. On demand under any market is for jobs whose suitable spot offers have
// all been failing for some time, or that have none.
func (d *Demand) narrow(m *market, state uint64) {
	d.state, d.open = state, d.open[:0]
	qos := d.terms.qos[d.spec.QOS]
	patient := d.spec.Burst.Market == cluster.AnyMarket // wait for spot capacity
	if patient {
		patient = slices.ContainsFunc(d.quotes, func(q quote) bool {
			return d.terms.offers[q.offer].Market == cluster.Spot && m.closed[q.offer] == "" && m.allowsSpot(&qos, q.nodes) && !m.failing[q.offer]
		})
	}
	boot := time.Duration(1<<63 - 1)
	for _, q := range d.quotes {
		spot := d.terms.offers[q.offer].Market == cluster.Spot
		if m.closed[q.offer] != "" || m.paused[q.offer] || spot && !m.allowsSpot(&qos, q.nodes) || !spot && patient || q.boot >= boot || !m.allowsMore(d.terms.policy, q.nodes) {
			continue
		}
		boot = q.boot
		d.open = append(d.open, q)
	}
}
