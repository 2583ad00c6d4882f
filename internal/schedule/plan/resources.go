package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Resources are what jobs are placed on: the usable nodes in the order of the fabric, with their
// domains, partitions, reservations, licences and prices. They do not change until everything is
// planned again.
type Resources struct {
	*eligible.Rules
	*order.Ranking

	Nodes    map[string]*cluster.Node // all, by name
	Hosts    []*topology.Host         // the usable ones, and one more for each of their reservations
	QOS      map[string]cluster.QOS
	Licences []int32          // of each row of the profile, how many there are
	Prices   map[string]int64 // of an hour of a GPU, by type
	Failing  []string         // the nodes that fail often, by name

	Lead time.Duration // from the decision to reclaim an extra node until it is free

	policy      *cluster.Policy
	switches    []cluster.Switch
	index       map[string]int            // host of a node, outside reservations
	reserved    map[string][]reservedHost // by node; the reservation that has the node first comes first
	levels      [][]int32                 // domains by level and host
	parts       map[string]*partition
	licenceRows map[string]int
	degraded    bool                   // a node is
	leased      []*cluster.Node        // the usable leased nodes
	leasees     map[cluster.JobID]bool // jobs for which a node is leased that no other may use; nil for none
}

// partition is a partition with its nodes.
type partition struct {
	cluster.Partition
	usable backfill.HostSet
	closed []*cluster.Node // its unusable nodes, by name
	cloud  bool            // it is the partition of leased nodes
	leased bool            // and it has usable ones
}

const (
	// slack is subtracted from the expected end of a running job, so that one that started a moment
	// late delays no planned start.
	slack = 5 * time.Second
	// Leeway is how much later than promised a job may start before its promise counts as broken:
	// as long as nodes may take to clean up beyond the expected end.
	Leeway = 2 * slack
	// overdueStep rounds the expected end of a job that is later than that, so that it does not move
	// in every pass.
	overdueStep = time.Minute
)

// NewResources reads a snapshot. O(nodes log nodes + partitions × nodes).
func NewResources(snap *cluster.Snapshot, rules *eligible.Rules) *Resources {
	r := &Resources{
		Rules: rules, Ranking: order.NewRanking(snap), policy: snap.Policy, switches: snap.Switches,
		Nodes: make(map[string]*cluster.Node, len(snap.Nodes)), index: make(map[string]int, len(snap.Nodes)),
		reserved: map[string][]reservedHost{}, parts: map[string]*partition{}, QOS: map[string]cluster.QOS{},
		licenceRows: map[string]int{}, Prices: PricesOf(snap),
	}
	for _, n := range snap.Nodes {
		r.Nodes[n.Name] = n
		r.degraded = r.degraded || n.Degraded() != ""
		if n.Usable() {
			r.Hosts = append(r.Hosts, topology.NewHost(n))
			r.lease(n)
		}
	}
	r.Lead = snap.Policy.Elastic.Grace + r.Grace
	r.Failing = cluster.OftenFailing(snap.Nodes, snap.Now)
	r.arrange(snap)
	for h, host := range r.Hosts {
		r.index[host.Name] = h
	}
	for _, x := range ReservationsOf(snap) {
		r.reserve(x, snap.Now)
	}
	for _, p := range snap.Policy.Partitions {
		r.parts[p.Name] = r.partition(p, snap.Nodes)
	}
	for _, q := range snap.Policy.QOS {
		r.QOS[q.Name] = q
	}
	for i, l := range snap.Policy.Scheduling.Licences {
		r.licenceRows[l.Name] = i
		r.Licences = append(r.Licences, l.Count)
	}
	return r
}

// lease records a usable node, if it is a leased one.
func (r *Resources) lease(n *cluster.Node) {
	if n.Rental.Lease == 0 {
		return
	}
	r.leased = append(r.leased, n)
	if id := n.Rental.For; id != 0 {
		if r.leasees == nil {
			r.leasees = map[cluster.JobID]bool{}
		}
		r.leasees[id] = true
	}
}

// at returns the resources of a later snapshot: nil if nodes, policy, fabric or prices differ, or a
// reservation may have begun or ended. O(nodes).
func (r *Resources) at(snap *cluster.Snapshot) *Resources {
	changed := func(n *cluster.Node) bool { return r.Nodes[n.Name] != n }
	if len(r.reserved) > 0 || len(snap.Policy.Scheduling.Reservations) > 0 ||
		r.policy != snap.Policy || !sameFabric(r.switches, snap.Switches) || !maps.Equal(r.Prices, PricesOf(snap)) ||
		len(r.Nodes) != len(snap.Nodes) || slices.ContainsFunc(snap.Nodes, changed) {
		return nil
	}
	c := *r
	c.Ranking, c.Failing = order.NewRanking(snap), cluster.OftenFailing(snap.Nodes, snap.Now)
	return &c
}

// Licence returns the row of a licence in the profile, and how many there are.
func (r *Resources) Licence(name string) (row int, count int32) {
	row = r.licenceRows[name]
	return row, r.Licences[row]
}

// licencesOf returns the licences of a request by row; false when one does not exist.
func (r *Resources) licencesOf(q *cluster.Request) (list []backfill.Licence, ok bool) {
	for _, l := range q.Licences {
		row, known := r.licenceRows[l.Name]
		if !known {
			return nil, false
		}
		list = append(list, backfill.Licence{Row: row, Count: l.Count})
	}
	return list, true
}

// arrange sorts the hosts by fabric, so that hosts of one domain are neighbours, and numbers their
// domains, narrowest level first.
func (r *Resources) arrange(snap *cluster.Snapshot) {
	fabric, err := topology.NewFabric(snap.Switches)
	if err != nil { // the state refuses what is not a fabric
		fabric = nil
	}
	for i, h := range r.Hosts {
		if n := r.Nodes[h.Name]; fabric.Block(h.Name) != "" {
			r.Hosts[i] = topology.NewHost(fabric.Linked(n))
		}
	}
	of := func(level int, h *topology.Host) int32 {
		if d, ok := fabric.Domain(level, h.Name); ok {
			return d
		}
		return -1
	}
	slices.SortFunc(r.Hosts, func(a, b *topology.Host) int {
		for level := fabric.Levels() - 1; level >= 0; level-- {
			if c := cmp.Compare(of(level, a), of(level, b)); c != 0 {
				return c
			}
		}
		return strings.Compare(a.Name, b.Name)
	})
	r.levels = [][]int32{r.links()}
	for level := range fabric.Levels() {
		domains := make([]int32, len(r.Hosts))
		for i, h := range r.Hosts {
			domains[i] = of(level, h)
		}
		r.levels = append(r.levels, domains)
	}
}

// links numbers the NVLink domains: those across hosts, and those of hosts with a domain of their own.
func (r *Resources) links() []int32 {
	hosts := map[string]int{}
	for _, h := range r.Hosts {
		seen := map[string]bool{}
		for i := range h.Pools {
			if d := h.Pools[i].Domain; d != "" && !seen[d] {
				seen[d] = true
				hosts[d]++
			}
		}
	}
	number := map[string]int32{}
	domains := make([]int32, len(r.Hosts))
	for i, h := range r.Hosts {
		domains[i] = -1
		for j := range h.Pools {
			d := h.Pools[j].Domain
			if d == "" || hosts[d] < 2 && domains[i] >= 0 {
				continue
			}
			if _, known := number[d]; !known {
				number[d] = int32(len(number))
			}
			domains[i] = number[d]
		}
	}
	return domains
}

// within numbers the intersections of domains with the other ones, and returns the domain of each. A
// host without a domain, or without one of the others, is in none: -1.
func within(domains, others []int32) (parts, of []int32) {
	type pair struct{ domain, other int32 }
	number := map[pair]int32{}
	parts = make([]int32, len(domains))
	for h := range domains {
		parts[h] = -1
		x := pair{domains[h], others[h]}
		if x.domain < 0 || x.other < 0 {
			continue
		}
		n, known := number[x]
		if !known {
			n = int32(len(of))
			number[x] = n
			of = append(of, x.domain)
		}
		parts[h] = n
	}
	return parts, of
}

// partition returns a partition with its nodes.
func (r *Resources) partition(p cluster.Partition, nodes []*cluster.Node) *partition {
	member := cluster.ParseNodeNames(p.Nodes)
	out := &partition{Partition: p, usable: backfill.NewHostSet(len(r.Hosts)), cloud: member.Leased}
	for _, n := range nodes {
		if !member.Has(n.Name) {
			continue
		}
		if h, ok := r.index[n.Name]; ok {
			out.usable.Add(h)
			out.leased = out.leased || n.Rental.Lease != 0
			for _, x := range r.reserved[n.Name] {
				if x.host != noHost {
					out.usable.Add(x.host)
				}
			}
		} else {
			out.closed = append(out.closed, n)
		}
	}
	slices.SortFunc(out.closed, func(a, b *cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// NodesOf returns the names of a partition's nodes, in no order; none if the partition does not exist.
func (r *Resources) NodesOf(partition string) (list []string) {
	part, known := r.parts[partition]
	if !known {
		return nil
	}
	for node, h := range r.index {
		if part.usable.Has(h) {
			list = append(list, node)
		}
	}
	for _, n := range part.closed {
		list = append(list, n.Name)
	}
	return list
}

// AllowAccounts returns the accounts that a partition lists; nil when it allows all, or does not exist.
func (r *Resources) AllowAccounts(partition string) []string {
	if part := r.parts[partition]; part != nil {
		return part.AllowAccounts
	}
	return nil
}

// ReservedNodes returns the names of the nodes with a reservation that has not ended, in no order.
func (r *Resources) ReservedNodes() []string {
	list := make([]string, 0, len(r.reserved))
	for name := range r.reserved {
		list = append(list, name)
	}
	return list
}

// leaves returns when a job should have left its nodes.
func (r *Resources) leaves(job *cluster.Job) cluster.Instant {
	end := job.Started.Add(r.HoldTime(job.Spec) - slack)
	if job.State == cluster.Completing {
		end = min(end, job.Ended.Add(r.Grace))
	}
	if job.Preempting != nil {
		end = min(end, job.Preempting.At.Add(r.Grace))
	}
	return end
}

// End returns when a job is expected to have left its nodes.
func (r *Resources) End(now cluster.Instant, job *cluster.Job) cluster.Instant {
	end := r.leaves(job)
	if job.State == cluster.Completing && end.Add(Leeway) <= now && job.Ended.Add(r.Grace) > now { // its end was late
		return job.Ended.Add(r.Grace)
	}
	return overdue(now, end)
}

// overdue returns when what should be free by an instant is expected to be free.
func overdue(now, end cluster.Instant) cluster.Instant {
	switch {
	case end > now:
		return end
	case end.Add(Leeway) > now:
		return end.Add(Leeway)
	}
	return (now/cluster.Instant(overdueStep) + 1) * cluster.Instant(overdueStep)
}

// required returns the hosts of the nodes that a job names and takes with others; nil for none, and false
// if one of them is not available.
func (r *Resources) required(spec *cluster.JobSpec) (backfill.HostSet, bool) {
	if !spec.Request.IncludesList() {
		return nil, true
	}
	set := backfill.NewHostSet(len(r.Hosts))
	for _, name := range spec.Request.NodeList {
		h, _, ok := r.HostOf(spec, name)
		if !ok {
			return nil, false
		}
		set.Add(h)
	}
	return set, true
}

// allowsSpot reports whether the QOS of a job allows spot nodes.
func (r *Resources) allowsSpot(spec *cluster.JobSpec) bool {
	q := r.QOS[spec.QOS]
	return q.AllowsSpot()
}

// mayUse returns whether a job may use a node, if that is a leased one.
func (r *Resources) mayUse(c *Class) func(*cluster.Node) bool {
	spot := r.allowsSpot(c.Spec)
	return func(n *cluster.Node) bool {
		return n.LeaseRefusal(c.leasee, c.Spec, spot, r.policy.Burst.Regions) == ""
	}
}

// allowed returns the hosts of a partition that a class with some features may use, without the nodes to avoid.
func (r *Resources) allowed(c *Class, p *partition, features, avoids []string) backfill.HostSet {
	spec := c.Spec
	q := spec.Request
	q.Features = features
	if len(avoids) > 0 {
		q.Exclude = append(slices.Clip(q.Exclude), avoids...)
	}
	if len(q.Features) == 0 && len(q.NodeList) == 0 && len(q.Exclude) == 0 && len(q.Regions) == 0 && q.MaxPrice == 0 && len(r.reserved) == 0 && spec.Reservation == "" &&
		!p.leased && !(r.degraded && q.NeedsSeveral()) {
		return p.usable
	}
	filter, mayUse := r.Filter(&q), r.mayUse(c)
	set := backfill.NewHostSet(len(r.Hosts))
	for name, h := range r.index {
		if !p.usable.Has(h) || !filter.Suits(r.Nodes[name]) || !mayUse(r.Nodes[name]) {
			continue
		}
		if host, _, ok := r.HostOf(spec, name); ok {
			set.Add(host)
		}
	}
	return set
}
