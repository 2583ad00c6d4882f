package leases

import (
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of one launch, which keep its cost within an int64.
const (
	maxLaunchNodes = 10_000
	maxLifetime    = 366 * 24 * time.Hour
)

// Refused returns why no nodes may be leased for a pending job as a launch says; "" if they may. jobOf finds a job.
func (x *Leases) Refused(e *Env, c *cluster.Launch, j *cluster.Job, jobOf func(cluster.JobID) (*cluster.Job, bool)) string {
	b, o := &e.Policy.Burst, x.offer(c.Offer)
	switch {
	case !b.On:
		return "cloud burst is disabled in the policy (burst.enabled = false)"
	case !j.Spec.Burst.On():
		return "--burst is never"
	case j.Spec.TimeLimit == 0:
		return "the job has no time limit"
	case len(x.HeldFor(j.ID)) > 0:
		return "nodes are already leased for the job"
	case o == nil:
		return fmt.Sprintf("there is no offer %s (%s)", c.Offer.Name, c.Offer.Market)
	case o.Fault != "":
		return fmt.Sprintf("offer %s (%s) is not used: %s", o.Name, o.Market, o.Fault)
	case o.PricedAt.Add(cluster.MaxPriceAge) < e.Now:
		return fmt.Sprintf("the price of %s (%s) is older than %s", o.Name, o.Market, cluster.MaxPriceAge)
	case c.Nodes < 1 || c.Nodes > maxLaunchNodes || c.MaxPrice > 2*cluster.MaxOfferPrice || c.Lifetime > maxLifetime:
		return fmt.Sprintf("a launch of %d nodes for at most %s an hour each and %s is out of range", c.Nodes, e.money(c.MaxPrice), c.Lifetime)
	case c.MaxPrice < o.Price:
		return fmt.Sprintf("the price of %s (%s) is %s an hour, above the maximum of %s", o.Name, o.Market, e.money(o.Price), e.money(c.MaxPrice))
	case c.Lifetime < j.Spec.TimeLimit:
		return fmt.Sprintf("the nodes would end after %s, before the time limit of the job", c.Lifetime)
	case c.Cost/int64(c.Nodes) < Amount(c.MaxPrice, c.Lifetime)-1: // less one for rounding
		return fmt.Sprintf("worst-case cost %s does not cover %s for %s at %s an hour each", e.money(c.Cost), words.Count(c.Nodes, "node"), c.Lifetime, e.money(c.MaxPrice))
	}
	if p, pauses := x.paused(e.Now, c.Offer); pauses {
		return fmt.Sprintf("offer %s (%s) is paused: %s", o.Name, o.Market, p.Why)
	}
	if why := refuseMarket(e.Policy, j.Spec, o.Market, o.Region); why != "" {
		return why
	}
	if why := x.tooManyNodes(e, c, j, jobOf); why != "" {
		return why
	}
	if most := j.Spec.Burst.MaxCost; most > 0 {
		if had := x.costOfAttempt(e, j.ID, c.Attempt); sum(c.Cost, had) > most {
			return fmt.Sprintf("worst-case cost %s, after %s for earlier leases of this attempt, exceeds --burst-max-cost=%s", e.money(c.Cost), e.money(had), cluster.FormatMoney(most))
		}
	}
	return x.overBudget(e, j.Spec.Account, c.Cost)
}

// The refusals that are kept.
const (
	maxRefused  = 1000
	keptRefusal = 2 * time.Hour // the scheduler decides again within an hour
)

// Refuse records why no nodes were leased for a job.
func (x *Leases) Refuse(e *Env, job cluster.JobID, why string) {
	if x.refused.Len() < maxRefused || x.refused.Has(job) {
		x.refused.Set(job, &cluster.LaunchRefusal{Job: job, At: e.Now, Why: command.Sanitize(why)})
	}
}

// refuseMarket returns why a job may not use nodes of a market and region; "" if it may. O(QOS).
func refuseMarket(p *cluster.Policy, spec *cluster.JobSpec, market cluster.Market, region string) string {
	switch qos, _ := p.QOSNamed(spec.QOS); {
	case spec.Burst.Market != cluster.AnyMarket && spec.Burst.Market != market:
		return fmt.Sprintf("the job requests %s nodes only", spec.Burst.Market)
	case !qos.AllowsSpot() && market == cluster.Spot:
		return fmt.Sprintf("qos %q allows no spot nodes (spot_share = 0)", spec.QOS)
	case len(spec.Burst.Regions) > 0 && !slices.Contains(spec.Burst.Regions, region):
		return fmt.Sprintf("region %q is not in --burst-regions", region)
	case len(p.Burst.Regions) > 0 && !slices.Contains(p.Burst.Regions, region):
		return fmt.Sprintf("region %q is not allowed by burst.regions", region)
	}
	return ""
}

// tooManyNodes returns which limit on leased nodes a launch exceeds; "" if none. jobOf finds a job that has not ended.
func (x *Leases) tooManyNodes(e *Env, c *cluster.Launch, j *cluster.Job, jobOf func(cluster.JobID) (*cluster.Job, bool)) string {
	if most := e.Policy.Burst.MaxNodes; most > 0 && x.Len()+int(c.Nodes) > int(most) {
		return fmt.Sprintf("%d leased nodes and %d more exceed burst.max_nodes = %d", x.Len(), c.Nodes, most)
	}
	qos, _ := e.Policy.QOSNamed(j.Spec.QOS)
	if qos.MinOnDemand == 0 || c.Offer.Market != cluster.Spot {
		return ""
	}
	onDemand, all := int64(0), int64(c.Nodes)
	for l := range x.Live() {
		if of, known := jobOf(l.Job); known && of.Spec.QOS == j.Spec.QOS {
			if all++; l.Offer.Market == cluster.OnDemand {
				onDemand++
			}
		}
	}
	if onDemand*100 < all*int64(qos.MinOnDemand) {
		return fmt.Sprintf("at most %d %% of the leased nodes of qos %q may be spot nodes (spot_share)", 100-qos.MinOnDemand, qos.Name)
	}
	return ""
}

// costOfAttempt returns what the leases of an attempt have cost, or may cost, in the policy's currency. O(leases).
func (x *Leases) costOfAttempt(e *Env, job cluster.JobID, attempt cluster.Attempt) (amount int64) {
	for _, l := range x.all.All() {
		if l.Job == job && l.Attempt == attempt && l.Currency == e.Policy.Burst.Currency {
			amount = sum(amount, sum(l.Reserved, l.Cost))
		}
	}
	return amount
}

func (x *Leases) offer(key cluster.OfferKey) *cluster.Offer {
	o, _ := x.offers.Get(key)
	return o
}

// Launch stores the leases of a launch that is not refused, and sets its cost aside. O(nodes × log n).
func (x *Leases) Launch(e *Env, c *cluster.Launch, spec *cluster.JobSpec) {
	x.refused.Delete(c.Job)
	first := x.next
	x.next += cluster.LeaseID(c.Nodes)
	for i := range cluster.LeaseID(c.Nodes) {
		l := &cluster.Lease{
			ID: first + i, Launch: first, Nodes: c.Nodes, Job: c.Job, Attempt: c.Attempt, Account: spec.Account, Offer: *x.offer(c.Offer),
			State: cluster.LeasePlanned, Since: e.Now, Created: e.Now, For: c.Job, MaxPrice: c.MaxPrice, Lifetime: c.Lifetime,
			Reserved: max((c.Cost+int64(c.Nodes)-1)/int64(c.Nodes), Amount(c.MaxPrice, c.Lifetime)), Month: MonthOf(e.Now), Currency: e.Policy.Burst.Currency,
		}
		l.Deadline = e.deadline(l)
		x.Put(e, l)
	}
}
