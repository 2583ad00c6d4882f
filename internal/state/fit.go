package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// fill puts the policy's defaults into a specification and refuses what the policy
// does not allow.
func (s *State) fill(spec *cluster.JobSpec, defaultTime bool) *command.Refusal {
	part, known := s.policy.Partition(spec.Partition)
	switch {
	case !known && spec.Partition == "":
		return refuse(command.InvalidArgument, "there is no default partition", "choose one with --partition: "+s.partitionNames())
	case !known:
		return hinting(refusef(command.InvalidArgument, "unknown partition %q", spec.Partition), "partitions: %s", s.partitionNames())
	}
	qos, known := s.policy.QOSNamed(spec.QOS)
	if !known && (spec.QOS != "" || s.policy.DefaultQOS != "") {
		return hinting(refusef(command.InvalidArgument, "unknown qos %q", spec.QOS), "qos: %s", s.qosNames())
	}
	spec.Partition, spec.QOS = part.Name, qos.Name
	if defaultTime {
		if spec.TimeLimit = part.DefaultTime; spec.TimeLimit == 0 {
			spec.TimeLimit = part.MaxTime
		}
		if qos.MaxTime > 0 && (spec.TimeLimit == 0 || spec.TimeLimit > qos.MaxTime) {
			spec.TimeLimit = qos.MaxTime
		}
	}
	r := &spec.Request
	if r.MemPerNode == 0 && r.MemPerCPU == 0 && r.MemPerGPU == 0 {
		r.MemPerCPU = part.MemPerCPU
	}
	if len(part.AllowAccounts) > 0 && !slices.Contains(part.AllowAccounts, spec.Account) {
		return hinting(refusef(command.Denied, "account %q may not use partition %q", spec.Account, part.Name), "its accounts: %s", strings.Join(part.AllowAccounts, ", "))
	}
	if part.MaxNodes > 0 && r.Nodes > part.MaxNodes {
		return hinting(refusef(command.InvalidArgument, "partition %q gives a job at most %d nodes, not %d", part.Name, part.MaxNodes, r.Nodes), "ask for at most %d with --nodes", part.MaxNodes)
	}
	return checkTime(spec, part, qos)
}

// checkTime compares the time limit with those of the partition and the QOS.
func checkTime(spec *cluster.JobSpec, part cluster.Partition, qos cluster.QOS) *command.Refusal {
	for _, most := range []struct {
		what string
		time int64
	}{{"partition " + part.Name, int64(part.MaxTime)}, {"qos " + qos.Name, int64(qos.MaxTime)}} {
		if most.time > 0 && (spec.TimeLimit == 0 || int64(spec.TimeLimit) > most.time) {
			limit := cluster.FormatLimit(cluster.Instant(most.time).Sub(0))
			return hinting(refusef(command.InvalidArgument, "the time limit %s is above that of %s, %s", cluster.FormatLimit(spec.TimeLimit), most.what, limit), "ask for at most --time=%s", limit)
		}
	}
	return nil
}

func (s *State) partitionNames() string {
	names := make([]string, 0, len(s.policy.Partitions))
	for _, p := range s.policy.Partitions {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func (s *State) qosNames() string {
	names := make([]string, 0, len(s.policy.QOS))
	for _, q := range s.policy.QOS {
		names = append(names, q.Name)
	}
	return strings.Join(names, ", ")
}

// fits refuses what the registered nodes of the partition could not give even if
// they were all free. A partition without nodes refuses nothing: they may come.
// O(shapes), or O(nodes) when the job names nodes.
func (s *State) fits(spec *cluster.JobSpec) *command.Refusal {
	place := s.rooms.names[spec.Partition]
	r := &spec.Request
	if place == nil || len(place.nodes) == 0 {
		return nil
	}
	shapes := place.shapes
	where := within{partition: spec.Partition}
	if len(r.NodeList) > 0 || len(r.Exclude) > 0 {
		var refusal *command.Refusal
		if shapes, refusal = s.chosen(place, spec); refusal != nil {
			return refusal
		}
		if len(shapes) == 0 {
			return hinting(refusef(command.InvalidArgument, "every node of partition %q that the job may use is excluded", spec.Partition), "name fewer nodes with --exclude")
		}
		where.some = true
	}
	if refusal := tooLarge(r, shapes, where); refusal != nil {
		return refusal
	}
	return tooMany(r, shapes, where)
}

// within names the nodes that were looked at.
type within struct {
	partition string
	some      bool // not all of the partition's
}

// String is for messages.
func (w within) String() string {
	if w.some {
		return fmt.Sprintf("the nodes that the job may use in partition %q", w.partition)
	}
	return fmt.Sprintf("partition %q", w.partition)
}

// chosen are the shapes of the partition's nodes that the job may use.
func (s *State) chosen(place *room, spec *cluster.JobSpec) ([]shape, *command.Refusal) {
	names := place.nodes
	if list := spec.Request.NodeList; len(list) > 0 {
		names = slices.Compact(slices.Sorted(slices.Values(list)))
	}
	excluded := make(map[string]none, len(spec.Request.Exclude))
	for _, name := range spec.Request.Exclude {
		excluded[name] = none{}
	}
	var shapes []shape
	for _, name := range names {
		n, known := s.nodes.Get(name)
		if !place.has(name) || !known {
			return nil, hinting(refusef(command.InvalidArgument, "partition %q has no node %q", spec.Partition, name), "gctl info lists them")
		}
		if _, out := excluded[name]; !out {
			shapes = addShape(shapes, n)
		}
	}
	return shapes, nil
}

// tooLarge names the first thing that no node has.
func tooLarge(r *cluster.Request, shapes []shape, where within) *command.Refusal {
	var cpus, gpus int32
	var memory cluster.Bytes
	types, features := len(r.GPUTypes) == 0, false
	for _, s := range shapes {
		cpus, memory, gpus = max(cpus, s.cpus), max(memory, s.memory), max(gpus, s.gpusOf(r.GPUTypes))
		types = types || s.gpusOf(r.GPUTypes) > 0
		features = features || s.hasFeatures(r.Features)
	}
	least := leastMemory(r)
	switch {
	case !types:
		return hinting(refusef(command.InvalidArgument, "%s has no GPU of type %s", where, strings.Join(r.GPUTypes, " or ")), "gctl info shows which types there are")
	case !features:
		return refusef(command.InvalidArgument, "no node of %s has the features %s", where, strings.Join(r.Features, ", "))
	case r.GPUsPerNode > gpus:
		return hinting(refusef(command.InvalidArgument, "no node of %s has %d GPUs (the largest has %d)", where, r.GPUsPerNode, gpus), "ask for at most %d with --gpus-per-node, or more nodes with --nodes", gpus)
	case r.CPUsPerNode() > cpus:
		return hinting(refusef(command.InvalidArgument, "no node of %s has %d CPUs (the largest has %d)", where, r.CPUsPerNode(), cpus), "ask for fewer with --cpus-per-task or --ntasks-per-node")
	case least > memory:
		return hinting(refusef(command.InvalidArgument, "no node of %s has %s of memory (the largest has %s)", where, least, memory), "ask for less with --mem")
	}
	return nil
}

// leastMemory is what the job takes on a node at least.
func leastMemory(r *cluster.Request) cluster.Bytes {
	gpus := r.GPUsPerNode
	if gpus == 0 && r.GPUs > 0 {
		gpus = 1
	}
	return r.MemoryOn(gpus)
}

// tooMany refuses more nodes or GPUs than the nodes that are large enough have.
func tooMany(r *cluster.Request, shapes []shape, where within) *command.Refusal {
	var nodes int64
	var perNode []typeCount // count is GPUs of one node; typ is not used
	var counts []int64
	least := leastMemory(r)
	for _, s := range shapes {
		n := s.gpusOf(r.GPUTypes)
		if s.cpus < r.CPUsPerNode() || s.memory < least || n < r.GPUsPerNode || !s.hasFeatures(r.Features) || len(r.GPUTypes) > 0 && n == 0 {
			continue
		}
		nodes += s.nodes
		perNode, counts = append(perNode, typeCount{count: n}), append(counts, s.nodes)
	}
	if nodes == 0 {
		return hinting(refusef(command.InvalidArgument, "no node of %s has all that the job asks for at once", where), "ask for less, or look at gctl info")
	}
	if int64(r.Nodes) > nodes {
		return hinting(refusef(command.InvalidArgument, "%s has %d nodes large enough, the job asks for %d", where, nodes, r.Nodes), "ask for at most %d with --nodes", nodes)
	}
	if r.GPUs == 0 {
		return nil
	}
	left, gpus := int64(r.Nodes), int64(0)
	if left == 0 {
		left = nodes
	}
	for left > 0 && len(counts) > 0 { // the largest first
		at := 0
		for i := range perNode {
			if perNode[i].count > perNode[at].count {
				at = i
			}
		}
		n := min(left, counts[at])
		gpus, left = gpus+n*int64(perNode[at].count), left-n
		perNode, counts = slices.Delete(perNode, at, at+1), slices.Delete(counts, at, at+1)
	}
	if int64(r.GPUs) > gpus {
		return hinting(refusef(command.InvalidArgument, "%s can give the job %d GPUs, it asks for %d", where, gpus, r.GPUs), "ask for at most %d with --gpus", gpus)
	}
	return nil
}
