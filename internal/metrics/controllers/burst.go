package controllers

import (
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// burstFamilies are the metrics of leased nodes.
type burstFamilies struct{ leases, ended, offers, spend, budget *metrics.Family }

func newBurstFamilies(c *metrics.Families) burstFamilies {
	return burstFamilies{
		leases: c.Gauge("greylag_burst_leases", "Leases of cloud nodes that have not ended.", "state", "market"),
		ended:  c.Counter("greylag_burst_leases_ended_total", "Leases that have ended since the cluster began.", "outcome"),
		offers: c.Gauge("greylag_burst_offers", "Offers of the cloud, by whether they may be used.", "use"),
		spend:  c.Gauge("greylag_burst_spend", "Cost of the leases of this month (UTC), in the currency of the policy: spent by those that have ended, committed for others. Without an account: of the cluster.", "account", "use"),
		budget: c.Gauge("greylag_burst_budget", "Limit of the cost of the leases of this month (UTC). Without an account: of the cluster.", "account"),
	}
}

// putBurst reports leased nodes. O(leases + offers + accounts with a budget).
func (c *Cluster) putBurst(sink metrics.Sink, v *state.View) {
	if _, cloud := v.Policy().Cloud(); !cloud && v.EndedLeases() == 0 {
		return
	}
	type kind struct {
		state  cluster.LeaseState
		market cluster.Market
	}
	live := map[kind]int{}
	for _, l := range v.LeaseWork() {
		live[kind{l.State, l.Offer.Market}]++
	}
	for s := cluster.LeasePlanned; s < cluster.LeaseGone; s++ {
		for _, m := range [...]cluster.Market{cluster.Spot, cluster.OnDemand} {
			sink.Put(c.burst.leases, float64(live[kind{s, m}]), s.String(), m.String())
		}
	}
	o := v.LeaseOutcomes()
	for outcome, n := range map[string]uint64{
		"cancelled": o.Cancelled, "failed": o.Failed, "reclaimed": o.Reclaimed, "completed": v.EndedLeases() - o.Cancelled - o.Failed - o.Reclaimed,
	} {
		sink.Put(c.burst.ended, float64(n), outcome)
	}
	c.putOffers(sink, v)
	c.putSpend(sink, v)
}

// putOffers counts the offers.
func (c *Cluster) putOffers(sink metrics.Sink, v *state.View) {
	paused := map[cluster.OfferKey]bool{}
	for p := range v.Pauses() {
		paused[p.Offer] = p.Until > v.Now()
	}
	uses := map[string]int{"usable": 0, "paused": 0, "old": 0, "faulty": 0}
	for x := range v.Offers() {
		switch {
		case x.Fault != "":
			uses["faulty"]++
		case v.Now().Sub(x.PricedAt) > cluster.MaxPriceAge:
			uses["old"]++
		case paused[x.Key()]:
			uses["paused"]++
		default:
			uses["usable"]++
		}
	}
	for use, n := range uses {
		sink.Put(c.burst.offers, float64(n), use)
	}
}

// putSpend reports the budgets of this month: of the cluster, and of accounts if accounts are reported.
func (c *Cluster) putSpend(sink metrics.Sink, v *state.View) {
	list := v.Spend(v.Now())
	for i := range list {
		x := &list[i]
		if !x.Limited || x.Account != "" && (!c.accounts || len(list) > maxAccounts) {
			continue
		}
		sink.Put(c.burst.spend, money(x.Spent), x.Account, "spent")
		sink.Put(c.burst.spend, money(x.Committed), x.Account, "committed")
		sink.Put(c.burst.budget, money(x.Limit), x.Account)
	}
}

// money returns an amount in the currency.
func money(n int64) float64 { return float64(n) / cluster.OneUnit }
