package admission

import (
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// Locality counts groups of some nodes: by NVLink domain, and by leaf switch.
type Locality struct {
	links  []domainGroup // NVLink domains, with the GPUs that are in them
	nodes  []shape       // nodes, each once for every NVLink domain it has GPUs in
	leaves []domainGroup
}

// domainGroup is the nodes of one domain; equal domains are counted.
type domainGroup struct {
	times  int64
	shapes []shape
}

func equalGroups(a, b domainGroup) bool {
	return slices.EqualFunc(a.shapes, b.shapes, func(x, y shape) bool { return x.nodes == y.nodes && x.same(y) })
}

// counted merges equal groups. O(groups × different ones).
func counted(all []*domainGroup) []domainGroup {
	var out []domainGroup
	for _, i := range all {
		at := slices.IndexFunc(out, func(o domainGroup) bool { return equalGroups(o, *i) })
		if at < 0 {
			at = len(out)
			out = append(out, domainGroup{shapes: i.shapes})
		}
		out[at].times++
	}
	return out
}

// gatherer collects groups in the order of the nodes, so that replicas agree.
type gatherer struct {
	at  map[string]*domainGroup
	all []*domainGroup
}

func (x *gatherer) add(name string, s shape) {
	i := x.at[name]
	if i == nil {
		i = &domainGroup{}
		x.at[name] = i
		x.all = append(x.all, i)
	}
	i.shapes = countShape(i.shapes, s)
}

// localityOf groups the named nodes. O(GPUs).
func (x *Checker) localityOf(names []string) *Locality {
	t := &Locality{}
	links, leaves := gatherer{at: map[string]*domainGroup{}}, gatherer{at: map[string]*domainGroup{}}
	for _, name := range names {
		reported, _ := x.Nodes.Get(name)
		n := x.Fabric.Linked(reported)
		leaf := "/" + name // a node that the fabric does not name is its own leaf
		if d, known := x.Fabric.Domain(0, name); known {
			leaf = x.Fabric.Name(0, d)
		}
		leaves.add(leaf, shapeOf(n))
		for _, d := range domainsOf(n.GPUs) {
			part := *n
			part.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g cluster.GPU) bool { return g.Domain != d })
			links.add(d, shapeOf(&part))
			t.nodes = countShape(t.nodes, shapeOf(&part))
		}
	}
	t.links, t.leaves = counted(links.all), counted(leaves.all)
	return t
}

// domainsOf returns the NVLink domains of a node's GPUs, in their order.
func domainsOf(gpus []cluster.GPU) []string {
	var all []string
	for _, g := range gpus {
		if g.Domain != "" && !slices.Contains(all, g.Domain) {
			all = append(all, g.Domain)
		}
	}
	return all
}

// sameLinks reports whether GPUs are in the same NVLink domains as before.
func sameLinks(a, b []cluster.GPU) bool {
	return slices.EqualFunc(a, b, func(x, y cluster.GPU) bool { return x.Domain == y.Domain })
}

// checkLocality refuses a job that fits the nodes, but nowhere within the domain that it
// requires.
func checkLocality(r *cluster.Request, t *Locality, where nodeScope) *command.Refusal {
	var refusal *command.Refusal
	switch r.Connect {
	case cluster.ConnectNVLink:
		refusal = checkNVLinkDomain(r, t, where)
	case cluster.ConnectNode:
		refusal = unlinkedNodes(r, t, where)
	case cluster.ConnectLeaf:
		refusal = spread(r, t, 1, where)
	}
	if refusal == nil && r.Switches > 0 {
		refusal = spread(r, t, int64(r.Switches), where)
	}
	return refusal
}

// checkNVLinkDomain refuses a job that fits into no NVLink domain.
func checkNVLinkDomain(r *cluster.Request, t *Locality, where nodeScope) *command.Refusal {
	var most int64 // GPUs of the largest domain
	beyond := false
	for _, l := range t.links {
		nodes, gpus := capacity(r, l.shapes, where.most)
		if nodes >= int64(max(r.Nodes, 1)) && gpus >= int64(r.TotalGPUs()) {
			return nil
		}
		nodes, gpus = 0, 0
		for _, s := range l.shapes {
			nodes, gpus = nodes+s.nodes, gpus+s.nodes*int64(s.gpusOf(r))
		}
		beyond = beyond || nodes > 1
		most = max(most, gpus)
	}
	const other = "request less, or for --connect=nvlink-node: the GPUs of each node in one domain"
	switch {
	case len(t.links) == 0:
		return command.Refusef(command.InvalidArgument, "no node of %s has GPUs connected by NVLink", where)
	case r.Nodes > 1 && !beyond:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no NVLink domain of %s spans more than one node, the job requests %d nodes", where, r.Nodes), other)
	case int64(r.TotalGPUs()) > most:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no NVLink domain of %s has %d GPUs for the job (the largest has %d)", where, r.TotalGPUs(), most), other)
	}
	return command.WithHint(command.Refusef(command.InvalidArgument, "no NVLink domain of %s satisfies the whole request", where), other)
}

// unlinkedNodes refuses a job if too few nodes have their GPUs in one domain.
func unlinkedNodes(r *cluster.Request, t *Locality, where nodeScope) *command.Refusal {
	var most int32
	for _, s := range t.nodes {
		most = max(most, s.gpusOf(r))
	}
	each := *r
	if r.Nodes == 1 && r.GPUs > 0 {
		each.GPUsPerNode = r.GPUs
	}
	nodes, gpus := capacity(&each, t.nodes, where.most)
	switch {
	case each.GPUsPerNode > most:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %d GPUs in one NVLink domain (maximum: %d)", where, each.GPUsPerNode, most), "request at most %d on each node, or omit --connect", most)
	case nodes < int64(max(r.Nodes, 1)) || gpus < int64(r.TotalGPUs()):
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s has %d nodes large enough with their GPUs in one NVLink domain, too few for the job", where, nodes), "request fewer, or omit --connect")
	}
	return nil
}

// spread refuses a job that needs more leaf switches than it accepts.
func spread(r *cluster.Request, t *Locality, most int64, where nodeScope) *command.Refusal {
	var nodes, gpus []int64 // of each leaf, as many as may be used
	for _, l := range t.leaves {
		n, g := capacity(r, l.shapes, where.most)
		for range min(l.times, most) {
			nodes, gpus = append(nodes, n), append(gpus, g)
		}
	}
	n, g := largest(nodes, most), largest(gpus, most)
	if n >= int64(max(r.Nodes, 1)) && g >= int64(r.TotalGPUs()) {
		return nil
	}
	under := "one leaf switch"
	if most > 1 {
		under = words.Count(most, "leaf switch", "leaf switches")
	}
	const advice = "request less, or set a time after which it may start anyway, such as --switches=1@30"
	if r.Nodes > 0 && n < int64(r.Nodes) {
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s under %s of %s are large enough, the job requests %d", words.Count(n, "node"), under, where, r.Nodes), advice)
	}
	return command.WithHint(command.Refusef(command.InvalidArgument, "%s of %s can give the job %d GPUs, it asks for %d", under, where, g, r.TotalGPUs()), advice)
}

// largest returns the sum of the largest few numbers. It consumes the list.
func largest(list []int64, few int64) int64 {
	slices.Sort(list)
	slices.Reverse(list)
	var sum int64
	for _, n := range list[:min(few, int64(len(list)))] {
		sum += n
	}
	return sum
}
