package burst

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Choice is what is decided for one job. Money is in millionths of the policy's currency.
type Choice struct {
	Job      cluster.JobID
	At       cluster.Instant // its planned start; 0: none
	Saved    time.Duration   // that the lease would save
	Offer    *cluster.Offer  // nil for none
	Nodes    int32
	Lifetime time.Duration
	MaxPrice int64 // of an hour of one node
	Cost     int64 // in the worst case
	Value    int64 // of the saved time
	Commit   bool  // the nodes are leased: in the next pass, or after those for jobs with a better ratio
	// Why is a sentence: why they are, or why not.
	Why string
}

// Money writes an amount with its currency, rounded to hundredths: costs up, other amounts down.
func Money(n int64, up bool, currency string) string {
	const cent = cluster.OneUnit / 100
	if rest := n % cent; rest > 0 {
		if n -= rest; up {
			n += cent
		}
	}
	return cluster.FormatMoney(n) + " " + currency
}

func (v *View) money(n int64, up bool) string { return Money(n, up, v.policy.Currency) }

// Choose says what is decided for a candidate, and why.
func (v *View) Choose(c *Candidate) Choice {
	v.prepare(c.Demand)
	x := Choice{Job: c.Job.ID, At: c.planned(v.now)}
	if why := v.obstacle(c); why != "" {
		x.Why = why
		return x
	}
	d := c.Demand
	q, pays := v.pays(c)
	if !pays {
		q = v.nearest(c)
	}
	v.fill(&x, c, q)
	refusal, refused := v.refused[c.Job.ID]
	switch at, settled := v.settled(c.Job); {
	case pays && refused:
		x.Why = fmt.Sprintf("not sent to the cloud: refused at %s: %s; it is decided again within %s", words.Instant(refusal.At), refusal.Why, elapsed(MaxRelaunch))
	case !pays:
		x.Why = v.shortfall(c, q)
	case !settled:
		x.Why = fmt.Sprintf("not sent to the cloud yet: eligible for %s; nodes are leased after %s (min_pending)",
			elapsed(v.now.Sub(since(c.Job))), elapsed(at.Sub(since(c.Job))))
	default:
		x.Commit, x.Why = true, v.reason(&choice{c, q, valueOf(d.hourly, v.saves(c, q))})
	}
	return x
}

// fill records a quote.
func (v *View) fill(x *Choice, c *Candidate, q *quote) {
	d := c.Demand
	o := v.terms.offers[q.offer].Offer
	x.Offer, x.Nodes, x.MaxPrice, x.Cost, x.Lifetime = &o, q.nodes, q.price, q.cost, d.lifetime
	x.Saved = v.saves(c, q)
	x.Value = valueOf(d.hourly, x.Saved)
}

// obstacle returns why no offer is considered for a candidate; "" if one is.
func (v *View) obstacle(c *Candidate) string {
	d, notes := c.Demand, cmp.Or(c.Notes, &Notes{})
	if l := v.leases[c.Job.ID]; len(l) > 0 {
		return leased(l)
	}
	switch {
	case c.Closed:
		return "not sent to the cloud: " + cmp.Or(notes.Obstacle, "it is not eligible")
	case d.refused != "":
		return "not sent to the cloud: " + d.refused
	case len(d.open) == 0:
		return "not sent to the cloud: " + v.unsuitable(d)
	case c.planned(v.now) == 0 && d.spec.Burst.Mode != cluster.BurstOnly:
		return "not sent to the cloud: no planned start: " + cmp.Or(notes.Unplanned, "it depends on jobs without a time limit")
	}
	return ""
}

// leased says which nodes are leased for a job.
func leased(list []*cluster.Lease) string {
	var each []string
	for _, l := range list[:min(len(list), maxNamed)] {
		each = append(each, fmt.Sprintf("%s %s since %s", l.ID.NodeName(), l.State, words.Instant(l.Since)))
	}
	if more := len(list) - maxNamed; more > 0 {
		each = append(each, words.Count(more, "more node"))
	}
	if len(list) == 1 {
		return "a cloud node is leased for it: " + each[0]
	}
	return fmt.Sprintf("%d cloud nodes are leased for it: %s", len(list), strings.Join(each, ", "))
}

// maxNamed is how many leases, or reasons, a sentence names.
const maxNamed = 4

// unsuitable returns why no offer may be requested for a demand: how many offers each reason excludes.
func (v *View) unsuitable(d *Demand) string {
	if len(v.terms.offers) == 0 {
		return "no offers known yet (see gctl burst offers)"
	}
	qos := v.terms.qos[d.spec.QOS]
	counts := map[string]int{}
	for i := range v.terms.offers {
		o := &v.terms.offers[i]
		why := d.mismatch(o)
		at := slices.IndexFunc(d.quotes, func(q quote) bool { return q.offer == i })
		switch {
		case why != "":
		case v.market.closed[i] != "":
			why = v.market.closed[i]
		case at < 0:
			why = "exceeding launch limits (nodes, lifetime or cost)"
		case v.market.paused[i]:
			why = "paused after failures"
		case o.Market == cluster.Spot && !v.market.allowsSpot(&qos, d.quotes[at].nodes):
			why = "spot, above spot_share of qos " + qos.Name
		case !v.market.allowsMore(v.terms.policy, d.quotes[at].nodes):
			why = fmt.Sprintf("exceeding burst.max_nodes = %d", v.policy.MaxNodes)
		default:
			why = fmt.Sprintf("on-demand, used only after spot requests have failed for %s (spot_patience)", elapsed(v.policy.SpotPatience))
		}
		counts[why]++
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	var reasons []string
	for _, why := range all[:min(len(all), maxNamed)] {
		reasons = append(reasons, fmt.Sprintf("%s: %s", words.Count(counts[why], "offer"), why))
	}
	if len(all) > maxNamed {
		reasons = append(reasons, "and more")
	}
	return "no suitable offer; " + strings.Join(reasons, "; ")
}

// nearest returns the open quote that an explanation is about: the cheapest one that saves time, else the one whose node joins
// first.
func (v *View) nearest(c *Candidate) *quote {
	open := c.Demand.open
	for i := range open {
		if v.saves(c, &open[i]) > 0 {
			return &open[i]
		}
	}
	return &open[len(open)-1]
}

// shortfall says why a quote does not pay.
func (v *View) shortfall(c *Candidate, q *quote) string {
	d, cost := c.Demand, v.money(q.cost, true)
	saved := v.saves(c, q)
	at := c.planned(v.now)
	value := valueOf(d.hourly, saved)
	switch b := d.budget; {
	case at > 0 && saved == 0:
		return fmt.Sprintf("not sent to the cloud: it is planned to start in %s, before a cloud node could join (%s%s)", elapsed(at.Sub(v.now)), elapsed(q.boot-d.staging), d.copies())
	case !v.anyway(c) && value < q.cost:
		return fmt.Sprintf("not sent to the cloud: it would save %s of waiting, worth %s; worst-case cost %s", elapsed(saved), v.money(value, false), cost)
	case d.spec.Burst.MaxCost > 0 && q.cost > d.spec.Burst.MaxCost:
		return fmt.Sprintf("not sent to the cloud: worst-case cost %s exceeds --burst-max-cost=%s", cost, cluster.FormatMoney(d.spec.Burst.MaxCost))
	default:
		return fmt.Sprintf("not sent to the cloud: worst-case cost %s exceeds the %s left in the budget of %s this month", cost, v.money(max(0, b.left), false), owner(b.of))
	}
}

// copies says how long the input files take; "" without any.
func (d *Demand) copies() string {
	if d.staging == 0 {
		return ""
	}
	return fmt.Sprintf(", and %s for its input files", elapsed(d.staging))
}

// owner names the owner of a budget.
func owner(account string) string {
	if account == "" {
		return "the cluster"
	}
	return "account " + account
}

// reason says why nodes are leased.
func (v *View) reason(x *choice) string {
	d, q := x.Demand, x.quote
	o := &v.terms.offers[q.offer]
	what := fmt.Sprintf("%s of %s (%s%s)", words.Count(q.nodes, "node"), o.Name, o.Market, d.copies())
	saved, cost := elapsed(v.saves(x.Candidate, q)), v.money(q.cost, true)
	switch at := x.planned(v.now); {
	case at > 0 && x.value >= q.cost:
		return fmt.Sprintf("%s: saves %s of waiting, worth %s; worst-case cost %s", what, saved, v.money(x.value, false), cost)
	case d.spec.Burst.Mode == cluster.BurstOnly:
		return fmt.Sprintf("%s: it runs on cloud nodes only; worst-case cost %s", what, cost)
	default:
		return fmt.Sprintf("%s: it would wait %s, longer than burst_max_wait (%s) of qos %s; worst-case cost %s", what,
			elapsed(at.Sub(since(x.Job))), elapsed(d.maxWait), d.spec.QOS, cost)
	}
}

func elapsed(d time.Duration) string { return cluster.FormatElapsed(d) }
