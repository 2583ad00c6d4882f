package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// CheckFeasible refuses a job that the registered nodes of its partitions could not run even if
// all of them were free. A partition without nodes refuses nothing: nodes may join later. A
// partition whose limits refuse the job counts as one without suitable nodes. The refusal is
// that of the first partition. O(shapes), or O(nodes) if the job names nodes or a reservation,
// or is the first since a change that requires locality.
func (x *Checker) CheckFeasible(spec *cluster.JobSpec) *command.Refusal {
	if len(spec.OtherPartitions) == 0 {
		return x.fitsIn(spec, spec.Partition)
	}
	var first *command.Refusal
	qos, _ := x.Policy.QOSNamed(spec.QOS)
	for _, name := range spec.AllPartitions() {
		part, _ := x.Policy.Partition(name)
		refusal := limited(spec, part, qos)
		if refusal == nil {
			refusal = x.fitsIn(spec, part.Name)
		}
		if refusal == nil {
			return nil
		}
		if first == nil {
			first = refusal
		}
	}
	return first
}

// NodesFor returns the fewest nodes whose CPUs suffice for the job's tasks, were all like the largest, and
// the number of nodes of its partitions. Both are at least 1. O(shapes).
func (x *Checker) NodesFor(spec *cluster.JobSpec) (least, most int32) {
	var cpus, nodes int64
	for _, name := range spec.AllPartitions() {
		part, _ := x.Policy.Partition(name)
		if part.Cloud() {
			for o := range x.Offers {
				if x.mayLease(spec, o) {
					cpus, nodes = max(cpus, int64(o.CPUs)), max(nodes, int64(cmp.Or(x.Policy.Burst.MaxNodes, manyNodes)))
				}
			}
			continue
		}
		place := x.Index.Partition(part.Name)
		if place == nil {
			continue
		}
		nodes = max(nodes, int64(len(place.nodes)))
		for _, s := range place.shapes {
			cpus = max(cpus, int64(s.cpus))
		}
	}
	if cpus == 0 {
		return 1, 1
	}
	need := int64(spec.Request.Tasks) * int64(max(spec.Request.CPUsPerTask, 1))
	least = int32(min((need-1)/cpus+1, nodes))
	return least, int32(nodes)
}

// fitsIn is CheckFeasible for one partition.
func (x *Checker) fitsIn(spec *cluster.JobSpec, partition string) *command.Refusal {
	place := x.Index.Partition(partition)
	r := &spec.Request
	part, _ := x.Policy.Partition(partition)
	switch {
	case part.Cloud(): // nodes of other kinds can be leased
		return x.checkOffers(spec, partition)
	case place == nil || len(place.nodes) == 0:
		return nil
	}
	where := nodeScope{partition: partition, most: int64(part.MaxNodes)}
	names, shapes := place.nodes, place.shapes
	if len(r.NodeList) > 0 || len(r.Exclude) > 0 || len(r.Regions) > 0 || spec.Reservation != "" {
		var refusal *command.Refusal
		if names, refusal = x.chosen(place, spec, partition); refusal != nil {
			return refusal
		}
		where.some, shapes = true, nil
		for _, name := range names {
			n, _ := x.Nodes.Get(name)
			shapes = addShape(shapes, n)
		}
	}
	if refusal := tooLarge(r, shapes, where); refusal != nil {
		return refusal
	}
	if spec.Elastic.On() && int(r.MaxNodes) > len(names) {
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s has %s, fewer than the maximum of the elastic job, %d", where, words.Count(int32(len(names)), "node"), r.MaxNodes),
			"request at most --nodes=%d-%d", r.Nodes, len(names))
	}
	if refusal := checkSets(r, shapes, where); refusal != nil {
		return refusal
	}
	if !r.HasLocality() || r.SwitchWait >= 0 { // one that starts without, later
		return nil
	}
	t := x.Localities[partition]
	if where.some {
		t = x.localityOf(names)
	} else if t == nil {
		t = x.localityOf(names)
		x.Localities[partition] = t
	}
	return checkLocality(r, t, where)
}

// nodeScope describes the nodes that were considered.
type nodeScope struct {
	partition string
	some      bool  // not all of the partition's
	most      int64 // a job's most nodes there; 0 means no limit
}

// String writes the scope for messages.
func (w nodeScope) String() string {
	if w.some {
		return fmt.Sprintf("the nodes that the job may use in partition %q", w.partition)
	}
	return fmt.Sprintf("partition %q", w.partition)
}

// chosen returns the partition's nodes that the job may use.
func (x *Checker) chosen(place *NodeSet, spec *cluster.JobSpec, partition string) ([]string, *command.Refusal) {
	names := place.nodes
	if spec.Reservation != "" {
		if names = x.reserved(place, spec.Reservation); len(names) == 0 {
			return nil, command.Refusef(command.InvalidArgument, "no node of reservation %q is in partition %q", spec.Reservation, partition)
		}
	}
	if list := spec.Request.NodeList; len(list) > 0 {
		inside, all := setOf(names), names
		names = slices.Compact(slices.Sorted(slices.Values(list)))
		for _, name := range names {
			if _, in := inside[name]; in {
				continue
			}
			if x.Nodes.Has(name) && place.Has(name) {
				return nil, command.Refusef(command.InvalidArgument, "reservation %q has no node %q", spec.Reservation, name)
			}
			return nil, command.WithHint(command.Refusef(command.InvalidArgument, "partition %q has no node %q", partition, name), "gctl info lists them")
		}
		if spec.Request.IncludesList() {
			filter := sizeFilter(&spec.Request)
			for _, name := range names {
				if n, _ := x.Nodes.Get(name); !shapeOf(n).suits(filter) {
					return nil, command.WithHint(command.Refusef(command.InvalidArgument, "node %q does not satisfy the whole request", name), "gctl show node lists what it has")
				}
			}
			names = all
		}
	}
	return x.suitable(names, spec, partition)
}

// suitable returns those of some nodes that the job does not exclude, in its regions.
func (x *Checker) suitable(names []string, spec *cluster.JobSpec, partition string) ([]string, *command.Refusal) {
	filter := cluster.NewNodeFilter(&spec.Request)
	var left, known []string
	inside := false // some node is in one of the regions
	for _, name := range names {
		n, _ := x.Nodes.Get(name)
		excluded, outside := false, false
		for m := range filter.Attributes(n) {
			excluded, outside = excluded || m.Kind == cluster.Excluded, outside || m.Kind == cluster.OutsideRegions
		}
		inside = inside || !outside
		switch {
		case outside && n.Region != "":
			known = append(known, n.Region)
		case !outside && !excluded:
			left = append(left, name)
		}
	}
	switch {
	case len(left) > 0:
		return left, nil
	case inside:
		return nil, command.WithHint(command.Refusef(command.InvalidArgument, "every node of partition %q that the job may use is excluded", partition), "name fewer nodes with --exclude")
	}
	refusal := command.Refusef(command.InvalidArgument, "no node that the job may use in partition %q is in region %s", partition, strings.Join(spec.Request.Regions, " or "))
	if len(known) == 0 {
		return nil, command.WithHint(refusal, "none of them reports a region; omit --region")
	}
	slices.Sort(known)
	return nil, command.WithHint(refusal, "they are in %s", strings.Join(slices.Compact(known), ", "))
}

func setOf(names []string) map[string]struct{} {
	set := make(map[string]struct{}, len(names))
	for _, n := range names {
		set[n] = struct{}{}
	}
	return set
}

// reserved returns the registered nodes of a partition that a reservation has, by name.
func (x *Checker) reserved(place *NodeSet, name string) []string {
	r, _ := x.Policy.Scheduling.Reservation(name)
	if r == nil {
		return nil
	}
	listed := map[string]struct{}{}
	for _, expr := range r.Nodes {
		if expr == "ALL" {
			return place.nodes
		}
		names, _ := hostlist.Expand(expr) // checked when the policy came
		for _, n := range names {
			listed[n] = struct{}{}
		}
	}
	var all []string
	for _, n := range place.nodes {
		if _, in := listed[n]; in {
			all = append(all, n)
		}
	}
	return all
}

// tooLarge refuses the first resource that no node has.
func tooLarge(r *cluster.Request, shapes []shape, where nodeScope) *command.Refusal {
	var cpus, gpus int32
	var memory cluster.Bytes
	types, features := len(r.GPUTypes) == 0, false
	anyMemory := *r
	anyMemory.GPUMemory = 0
	var largest cluster.Bytes // of a GPU that is of the types
	for _, s := range shapes {
		cpus, memory, gpus = max(cpus, s.cpus), max(memory, s.memory), max(gpus, s.gpusOf(r))
		types = types || s.gpusOf(&anyMemory) > 0
		largest = max(largest, s.gpuMemory(r))
		features = features || s.hasFeatures(r.Features)
	}
	least := leastMemory(r)
	switch {
	case !types:
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s has no GPU of type %s", where, strings.Join(r.GPUTypes, " or ")), "gctl info lists the types")
	case r.GPUMemory > largest:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no %s of %s has %s of memory (the largest has %s)", gpuNoun(r), where, r.GPUMemory, largest), "request at most --gpu-mem=%s", largest)
	case !features:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has the features %s", where, cluster.FormatFeatures(r.Features)), "gctl show node lists the features of each node")
	case r.GPUsPerNode > gpus:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %s (the largest has %d)", where, words.Count(r.GPUsPerNode, "GPU"), gpus), "request at most %d with --gpus-per-node, or more nodes with --nodes", gpus)
	case r.CPUsPerNode() > cpus:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %s (the largest has %d)", where, words.Count(int64(r.CPUsPerNode()), "CPU"), cpus), "%s", fewerCPUs(r))
	case least > memory:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %s of memory (the largest has %s)", where, least, roundDown(memory)), "request less with --mem")
	}
	return tooManyGres(r, shapes, where)
}

// tooManyGres refuses the first generic resource that no node has, or that no node has enough of.
func tooManyGres(r *cluster.Request, shapes []shape, where nodeScope) *command.Refusal {
	for i := range r.Gres {
		want := &r.Gres[i]
		var most int64
		var types []string
		for _, s := range shapes {
			most = max(most, cluster.CountGres(s.gres, want))
			for _, g := range s.gres {
				if g.Name == want.Name && g.Type != "" && !slices.Contains(types, g.Type) {
					types = append(types, g.Type)
				}
			}
		}
		slices.Sort(types)
		switch {
		case most >= want.Count:
		case most > 0:
			largest := cluster.Gres{Name: want.Name, Count: most}
			return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %s (the maximum is %s)", where, words.Gres(want), words.GresCount(&largest)), "use %s or less per node, and more nodes with --nodes", largest.Option())
		case want.Type != "" && len(types) > 0:
			return command.WithHint(command.Refusef(command.InvalidArgument, "%s has no %s of type %s", where, want.Name, want.Type), "gctl show node lists the types; available: %s", strings.Join(types, ", "))
		default:
			return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s has %s", where, words.GresName(want.Name)), "gctl show node lists the resources of each node")
		}
	}
	return nil
}

// roundDown rounds a size down to two digits or more of the largest unit, for people: the memory of
// a host is no round number.
func roundDown(b cluster.Bytes) cluster.Bytes {
	for _, unit := range []cluster.Bytes{cluster.TiB, cluster.GiB, cluster.MiB} {
		if b >= 10*unit {
			return b - b%unit
		}
	}
	return b
}

// fewerCPUs returns the hint for too many CPUs on a node: several tasks can be spread over more
// nodes, one task cannot.
func fewerCPUs(r *cluster.Request) string {
	if r.TasksPerNode > 1 {
		return "spread the tasks over more nodes with --nodes, or request fewer with --cpus-per-task"
	}
	return "request fewer with --cpus-per-task"
}

// leastMemory returns the least memory that the job takes on a node.
func leastMemory(r *cluster.Request) cluster.Bytes {
	gpus := r.GPUsPerNode
	if gpus == 0 && r.GPUs > 0 {
		gpus = 1
	}
	return r.MemoryOn(gpus)
}

// gpuNoun returns the noun for a GPU of the request's types.
func gpuNoun(r *cluster.Request) string {
	if len(r.GPUTypes) == 0 {
		return "GPU"
	}
	return strings.Join(r.GPUTypes, " or ") + " GPU"
}

// sizeFilter returns the filter of the request's features, CPUs, memory and GPUs. Which nodes, and
// their locality, are checked elsewhere. A faulty GPU counts, since it may be repaired.
func sizeFilter(r *cluster.Request) *cluster.NodeFilter {
	size := *r
	size.NodeList, size.Exclude, size.Regions, size.Connect = nil, nil, nil, cluster.ConnectAny
	f := cluster.NewNodeFilter(&size)
	f.WithFaulty = true
	if len(r.GPUTypes) > 0 {
		f.GPUs = max(1, f.GPUs)
	}
	return f
}

// suits reports whether nodes of the shape can each be one of the job's.
func (s shape) suits(f *cluster.NodeFilter) bool {
	for range f.Capacity(s.sample, cluster.NodeUse{}) {
		return false
	}
	return f.Suits(s.sample)
}

// capacity returns how many nodes suit the request, and how many GPUs the largest of them have: of
// as many as it asks for, and at most most of them, unless that is 0.
func capacity(r *cluster.Request, shapes []shape, most int64) (nodes, gpus int64) {
	type group struct{ nodes, each int64 }
	var groups []group
	filter := sizeFilter(r)
	for _, s := range shapes {
		if s.suits(filter) {
			nodes += s.nodes
			groups = append(groups, group{s.nodes, int64(s.gpusOf(r))})
		}
	}
	slices.SortFunc(groups, func(a, b group) int { return int(b.each - a.each) }) // the largest first
	left := int64(r.Nodes)
	if left == 0 {
		left = nodes
	}
	if most > 0 {
		left = min(left, most)
	}
	for _, g := range groups {
		n := min(left, g.nodes)
		gpus, left = gpus+n*g.each, left-n
	}
	return nodes, gpus
}

// checkSets is checkCapacity for each set of features in brackets: one must do.
func checkSets(r *cluster.Request, shapes []shape, where nodeScope) *command.Refusal {
	var first *command.Refusal
	for i, features := range cluster.FeatureSets(r.Features) {
		one := *r
		one.Features = features
		refusal := checkCapacity(&one, shapes, where)
		if refusal == nil {
			return nil
		}
		if i == 0 {
			first = refusal
		}
	}
	return first
}

// checkCapacity refuses more nodes or GPUs than the nodes that are large enough have.
func checkCapacity(r *cluster.Request, shapes []shape, where nodeScope) *command.Refusal {
	nodes, gpus := capacity(r, shapes, where.most)
	_, all := capacity(r, shapes, 0)
	switch {
	case nodes == 0:
		return command.WithHint(command.Refusef(command.InvalidArgument, "no node of %s satisfies the whole request", where), "request less; gctl info shows the nodes")
	case int64(r.Nodes) > nodes:
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s has %s large enough, the job requests %d", where, words.Count(nodes, "node"), r.Nodes), "request at most %d with --nodes", nodes)
	case int64(r.GPUs) > gpus && gpus < all:
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s has at most %s for the job on %s, requested: %d", where, words.Count(gpus, "GPU"), words.Count(where.most, "node"), r.GPUs), "request at most %d with --gpus", gpus)
	case int64(r.GPUs) > gpus:
		return command.WithHint(command.Refusef(command.InvalidArgument, "%s can provide %s for the job, requested: %d", where, words.Count(gpus, "GPU"), r.GPUs), "request at most %d with --gpus", gpus)
	}
	return nil
}
