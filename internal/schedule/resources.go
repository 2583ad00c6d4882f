package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// resources is what jobs are placed on: the nodes that may be used, in the order in
// which they are near each other, and the sets of them that requests speak of.
type resources struct {
	nodes    map[string]*cluster.Node
	hosts    []*topology.Host
	places   map[string]int            // by name; reservations' twins are not in it
	twins    map[string][]reservedHost // those first that have the node before others
	levels   [][]int32                 // domains by level and host
	parts    map[string]*part
	qos      map[string]cluster.QOS
	licences map[string]int
	counts   []int32
	prices   map[string]int64 // of an hour of a GPU, by type
	lowered  budgetDemotion
	grace    time.Duration
}

// part is a partition with its nodes.
type part struct {
	cluster.Partition
	usable backfill.HostSet
	closed []*cluster.Node // its nodes that may not be used, by name
}

const (
	// unlimitedTime is how long a job without a limit is expected to run. It is finite so
	// that a job behind it can be planned, and so protected from those behind.
	unlimitedTime = 365 * 24 * time.Hour
	// cleanup is how long nodes may take to clear up after a job, beyond KillWait.
	cleanup = 10 * time.Second
	// slack is taken off the end that is expected of a job that runs, so that one that
	// started a moment later than planned delays nobody behind it on paper.
	slack = 5 * time.Second
	// Leeway is how much later than promised a job may start before its promise counts as
	// broken: as long as nodes may take to clean up, and slack was taken off that.
	Leeway = 2 * slack
	// overdue is the grain of the guess for a job that should be over for longer than that:
	// its end is guessed at the next full one, so that plans do not move in every pass.
	overdue = time.Minute
)

// Grace is how long nodes are planned to be a job's beyond its time limit: until it is
// killed, and has been cleared up after.
func Grace(p *cluster.Policy) time.Duration { return p.KillWait + cleanup }

func newGround(snap *cluster.Snapshot) *resources {
	g := &resources{
		nodes: make(map[string]*cluster.Node, len(snap.Nodes)), places: make(map[string]int, len(snap.Nodes)),
		twins: map[string][]reservedHost{}, parts: map[string]*part{}, qos: map[string]cluster.QOS{},
		licences: map[string]int{}, prices: pricesOf(snap), lowered: newLowered(snap), grace: Grace(snap.Policy),
	}
	for _, n := range snap.Nodes {
		g.nodes[n.Name] = n
		if n.Usable() {
			g.hosts = append(g.hosts, topology.NewHost(n))
		}
	}
	g.arrange(snap)
	for h, host := range g.hosts {
		g.places[host.Name] = h
	}
	for _, x := range reservationsOf(snap) {
		g.reserve(x, snap.Now)
	}
	for _, p := range snap.Policy.Partitions {
		g.parts[p.Name] = g.partition(p, snap.Nodes)
	}
	for _, q := range snap.Policy.QOS {
		g.qos[q.Name] = q
	}
	for i, l := range snap.Policy.Scheduling.Licences {
		g.licences[l.Name] = i
		g.counts = append(g.counts, l.Count)
	}
	return g
}

// arrange sorts the hosts so that neighbours are near each other in the fabric, and
// numbers their domains, narrowest level first.
func (g *resources) arrange(snap *cluster.Snapshot) {
	fabric, err := topology.NewFabric(snap.Switches)
	if err != nil { // the state has refused what is no fabric
		fabric = nil
	}
	for i, h := range g.hosts {
		if n := g.nodes[h.Name]; fabric.Block(h.Name) != "" {
			g.hosts[i] = topology.NewHost(fabric.Linked(n))
		}
	}
	of := func(level int, h *topology.Host) int32 {
		if d, ok := fabric.Domain(level, h.Name); ok {
			return d
		}
		return -1
	}
	slices.SortFunc(g.hosts, func(a, b *topology.Host) int {
		for level := fabric.Levels() - 1; level >= 0; level-- {
			if c := cmp.Compare(of(level, a), of(level, b)); c != 0 {
				return c
			}
		}
		return strings.Compare(a.Name, b.Name)
	})
	g.levels = [][]int32{g.links()}
	for level := range fabric.Levels() {
		domains := make([]int32, len(g.hosts))
		for i, h := range g.hosts {
			domains[i] = of(level, h)
		}
		g.levels = append(g.levels, domains)
	}
}

// links numbers the NVLink domains: those that reach across hosts, and the hosts whose
// GPUs are linked among themselves alone.
func (g *resources) links() []int32 {
	hosts := map[string]int{}
	for _, h := range g.hosts {
		seen := map[string]bool{}
		for i := range h.Pools {
			if d := h.Pools[i].Domain; d != "" && !seen[d] {
				seen[d] = true
				hosts[d]++
			}
		}
	}
	number := map[string]int32{}
	domains := make([]int32, len(g.hosts))
	for i, h := range g.hosts {
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

// within numbers the parts of domains that lie in one of the others each, and says of
// which domain each is a part. What is in no domain, or in none of the others, is in no part.
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

// partition finds the nodes of a partition.
func (g *resources) partition(p cluster.Partition, nodes []*cluster.Node) *part {
	member := cluster.ParseNodeNames(p.Nodes)
	out := &part{Partition: p, usable: backfill.NewHostSet(len(g.hosts))}
	for _, n := range nodes {
		if !member.Has(n.Name) {
			continue
		}
		if h, ok := g.places[n.Name]; ok {
			out.usable.Add(h)
			for _, t := range g.twins[n.Name] {
				if t.host != noHost {
					out.usable.Add(t.host)
				}
			}
		} else {
			out.closed = append(out.closed, n)
		}
	}
	slices.SortFunc(out.closed, func(a, b *cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// nodesOf returns the names of a partition's nodes in no order; none if there is no such partition.
func (g *resources) nodesOf(partition string) (list []string) {
	part, known := g.parts[partition]
	if !known {
		return nil
	}
	for node, h := range g.places {
		if part.usable.Has(h) {
			list = append(list, node)
		}
	}
	for _, n := range part.closed {
		list = append(list, n.Name)
	}
	return list
}

// holdTime is how long a job is planned to hold its nodes.
func (g *resources) holdTime(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return unlimitedTime
	}
	return spec.TimeLimit + g.grace
}

// leaves returns when a job should have left its nodes.
func (g *resources) leaves(job *cluster.Job) cluster.Instant {
	end := job.Started.Add(g.holdTime(job.Spec) - slack)
	if job.State == cluster.Completing {
		end = min(end, job.Ended.Add(g.grace))
	}
	return end
}

// end returns when a job is expected to have left its nodes.
func (g *resources) end(now cluster.Instant, job *cluster.Job) cluster.Instant {
	end := g.leaves(job)
	switch {
	case end > now:
		return end
	case end.Add(Leeway) > now:
		return end.Add(Leeway)
	case job.State == cluster.Completing && job.Ended.Add(g.grace) > now: // it was ended late
		return job.Ended.Add(g.grace)
	}
	return (now/cluster.Instant(overdue) + 1) * cluster.Instant(overdue)
}

// allowed is the hosts of a partition that a request may use.
func (g *resources) allowed(spec *cluster.JobSpec, p *part) backfill.HostSet {
	r := &spec.Request
	if len(r.Features) == 0 && len(r.NodeList) == 0 && len(r.Exclude) == 0 && len(r.Regions) == 0 && r.MaxPrice == 0 && len(g.twins) == 0 && spec.Reservation == "" {
		return p.usable
	}
	filter := g.filter(r)
	set := backfill.NewHostSet(len(g.hosts))
	for name, h := range g.places {
		if !p.usable.Has(h) || !filter.Suits(g.nodes[name]) {
			continue
		}
		if host, _, ok := g.hostOf(spec, name); ok {
			set.Add(host)
		}
	}
	return set
}
