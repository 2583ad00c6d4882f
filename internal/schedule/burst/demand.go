package burst

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Demand is what jobs with equal requests need of the cloud. It is shared by all of them.
type Demand struct {
	spec    *cluster.JobSpec // of one of them
	filter  *cluster.NodeFilter
	refused string // why no node is leased for them, whatever is offered; "" if one may be

	// Of the terms:
	terms    *terms
	hourly   int64         // what an hour less of waiting is worth
	maxWait  time.Duration // 0: none
	lifetime time.Duration
	staging  time.Duration // until its input files are on a node; 0: it has none
	quotes   []quote       // of all suitable offers, the cheapest first

	// Of the state of the market:
	state  uint64
	budget budget
	most   int64         // the highest worst-case cost of a lease
	enough time.Duration // before the planned start, the least at which one of the open quotes saves what it costs
	open   []quote       // those that may be requested now, without those that cost no less and take no less time to join
}

// quote is what one offer costs for a demand.
type quote struct {
	offer int // its index in the terms
	nodes int32
	price int64         // highest price of an hour
	cost  int64         // in the worst case
	boot  time.Duration // until the job can start: with the time for its input files
	least time.Duration // that has to be saved so that it is worth the cost
}

// demandKey is all of a specification that decides which offers suit, and what they cost and are worth.
type demandKey struct {
	partition, account, qos, reservation         string
	limit, wait                                  time.Duration
	nodes, perNode, gpus, tasks, cpus, switches  int32
	connect                                      cluster.Connect
	memPerNode, memPerCPU, memPerGPU, gpuMemory  cluster.Bytes
	memFrom                                      cluster.MemorySource
	types, features, only, regions, gres, others string
	burstRegions                                 string
	maxPrice, maxCost                            int64
	mode                                         cluster.BurstMode
	market                                       cluster.Market
	share                                        cluster.GPUShare
	stagesIn, stagesOut                          bool
}

func keyOf(spec *cluster.JobSpec) demandKey {
	q, b := &spec.Request, &spec.Burst
	join := func(list []string) string { return strings.Join(list, "\x00") }
	return demandKey{
		partition: spec.Partition, account: spec.Account, qos: spec.QOS, reservation: spec.Reservation,
		limit: spec.TimeLimit, wait: q.SwitchWait, nodes: q.Nodes, perNode: q.GPUsPerNode, gpus: q.GPUs,
		tasks: q.TasksPerNode, cpus: q.CPUsPerTask, switches: q.Switches, connect: q.Connect,
		memPerNode: q.MemPerNode, memPerCPU: q.MemPerCPU, memPerGPU: q.MemPerGPU, gpuMemory: q.GPUMemory, memFrom: q.MemFrom,
		types: join(q.GPUTypes), features: join(q.Features), only: join(q.NodeList), regions: join(q.Regions),
		gres: cluster.FormatGres(q.Gres), others: join(spec.OtherPartitions), burstRegions: join(b.Regions),
		maxPrice: q.MaxPrice, maxCost: b.MaxCost, mode: b.Mode, market: b.Market, share: q.Share,
		stagesIn: len(spec.StageIn) > 0, stagesOut: len(spec.StageOut) > 0,
	}
}

// refusal returns why no node is leased for jobs of a specification, whatever is offered; "" if one may be.
func refusal(spec *cluster.JobSpec, rules *eligible.Rules, cloud string) string {
	q := &spec.Request
	switch {
	case cloud == "" || !slices.Contains(spec.AllPartitions(), cloud):
		return "none of its partitions has cloud nodes"
	case spec.TimeLimit == 0:
		return "it has no time limit"
	case spec.Reservation != "":
		return fmt.Sprintf("it runs within reservation %q", spec.Reservation)
	case len(q.NodeList) > 0:
		return "it requests nodes by name (--nodelist)"
	case spec.TimeLimit > maxLifetime/2:
		return fmt.Sprintf("its time limit exceeds %s", cluster.FormatLimit(maxLifetime/2))
	case q.Nodes > 1 && q.SwitchWait < 0 && (q.Connect == cluster.ConnectNVLink || q.Connect == cluster.ConnectLeaf || q.Switches > 0):
		return "it requires locality across nodes (--connect, --switches), which cloud nodes do not have"
	}
	if x, refuses := rules.Refusal(spec, cloud); refuses {
		return fmt.Sprintf("partition %q %s", cloud, x.Says)
	}
	return ""
}

// quote computes the demand by new terms.
func (d *Demand) quote(t *terms) {
	d.terms, d.state, d.quotes, d.open = t, 0, d.quotes[:0], d.open[:0]
	qos := t.qos[d.spec.QOS]
	gpus := max(d.spec.Request.TotalGPUs(), 1)
	d.hourly, d.maxWait = hourlyValue(qos.BurstValue, gpus), qos.BurstMaxWait
	d.filter = cluster.NewNodeFilter(&d.spec.Request)
	d.filter.Price = t.priceOf
	if d.refused = refusal(d.spec, t.rules, t.cloud); d.refused != "" {
		return
	}
	d.lifetime, d.staging = t.rules.HoldTime(d.spec)+t.policy.Burst.BootTimeout, 0
	if in, out := len(d.spec.StageIn) > 0, len(d.spec.StageOut) > 0; in || out {
		d.lifetime += t.policy.Burst.StagingTime
		if in {
			d.staging = t.policy.Burst.StagingTime
		}
	}
	for i := range t.offers {
		o := &t.offers[i]
		if o.fault != "" || d.mismatch(o) != "" {
			continue
		}
		q := quote{offer: i, nodes: d.nodes(o), price: highestPrice(&o.Offer), boot: max(o.Boot, 0) + d.staging}
		known := false
		q.cost, known = WorstCost(q.nodes, d.lifetime, q.price, t.risk(&o.Offer))
		if part := t.partition; !known || part.MaxNodes > 0 && q.nodes > part.MaxNodes {
			continue
		}
		q.least = timeWorth(q.cost, d.hourly)
		d.quotes = append(d.quotes, q)
	}
	slices.SortFunc(d.quotes, func(a, b quote) int { return t.compare(&a, &b) })
}

// mismatch returns why an offer does not suit the demand; "" if it suits.
func (d *Demand) mismatch(o *offer) string {
	b := &d.spec.Burst
	switch {
	case b.Market != cluster.AnyMarket && b.Market != o.Market:
		return "not in --burst-market=" + b.Market.String()
	case len(b.Regions) > 0 && !slices.Contains(b.Regions, o.Region):
		return "not in --burst-regions"
	}
	for m := range d.filter.Attributes(o.node) {
		return describe(m)
	}
	for m := range d.filter.Capacity(o.node, cluster.NodeUse{}) {
		return describe(m)
	}
	if d.nodes(o) == 0 {
		return "fewer GPUs than the job needs on its nodes"
	}
	return ""
}

// describe describes a mismatch of an offer.
func describe(m cluster.Mismatch) string {
	switch m.Kind {
	case cluster.MissingFeature:
		return "without the features of the job"
	case cluster.OutsideRegions:
		return "not in --region"
	case cluster.TooExpensive:
		return "price above --max-price"
	case cluster.TooFewCPUs:
		return "fewer than " + words.Count(m.Want, "CPU")
	case cluster.TooLittleMemory:
		return "less than " + cluster.Bytes(m.Want).String() + " of memory"
	case cluster.TooFewGres:
		return words.GresShortage(m.Name, m.Have, m.Want)
	case cluster.SmallGPUs:
		return "GPUs with too little memory"
	}
	return "fewer than " + words.Count(m.Want, "suitable GPU")
}

// nodes returns how many nodes of an offer the demand needs: where its GPUs are spread, the fewest that have enough; 0 if
// they never do.
func (d *Demand) nodes(o *offer) int32 {
	q := &d.spec.Request
	if q.GPUs == 0 || q.GPUsPerNode > 0 {
		return max(q.Nodes, 1)
	}
	gives := int32(0) // by each node
	for n := range o.GPUs {
		if q.MemoryRule().On(o.node.Size(), n+1) <= o.Memory {
			gives = n + 1
		}
	}
	switch {
	case gives == 0, q.Nodes > 0 && int64(q.Nodes)*int64(gives) < int64(q.GPUs):
		return 0
	case q.Nodes > 0:
		return q.Nodes
	}
	return (q.GPUs + gives - 1) / gives
}
