package admission

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// anyProfile is the GPU type of requests for the smallest MIG instances that suffice.
const anyProfile = "mig"

// chooseProfile replaces the type mig of a request by the profile of the smallest instances of its partitions that
// have the requested memory: the least memory, then the least share of a GPU. If no instance has it, it chooses the
// whole GPUs with the least memory that suffices. The requested memory becomes that of the instances if they have
// less than their profile states, as drivers keep some for themselves. Other types do not change. O(shapes × types).
func (x *Checker) chooseProfile(spec *cluster.JobSpec) *command.Refusal {
	r := &spec.Request
	at := slices.Index(r.GPUTypes, anyProfile)
	if at < 0 {
		return nil
	}
	var all []typeCount
	for _, name := range spec.AllPartitions() {
		if set := x.Index.Partition(name); set != nil {
			for i := range set.shapes {
				all = append(all, set.shapes[i].gpus...)
			}
		}
	}
	least := smallest(all, r.GPUMemory)
	if len(least) == 0 {
		return noInstance(r, all)
	}
	var types []string
	for _, g := range least {
		if r.GPUMemory = min(r.GPUMemory, g.memory); !slices.Contains(types, g.typ) {
			types = append(types, g.typ)
		}
	}
	r.GPUTypes = slices.Concat(r.GPUTypes[:at], types, r.GPUTypes[at+1:])
	return nil
}

// smallest returns the instances of the smallest profile with that much memory, or else the whole GPUs with the
// least memory that suffices. It sorts all.
func smallest(all []typeCount, memory cluster.Bytes) []typeCount {
	all = slices.DeleteFunc(slices.Clone(all), func(g typeCount) bool { return g.stated() < memory })
	rank := func(g typeCount) int64 {
		if _, parent, share := cluster.CutPricedType(g.priced); parent != "" {
			return share
		}
		return cluster.MIGShares
	}
	whole := func(g typeCount) int {
		if cluster.IsMIGProfile(g.typ) {
			return 0
		}
		return 1
	}
	order := func(a, b typeCount) int {
		return cmp.Or(cmp.Compare(whole(a), whole(b)), cmp.Compare(a.stated(), b.stated()), cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.typ), len(b.typ)), cmp.Compare(a.typ, b.typ))
	}
	slices.SortStableFunc(all, order)
	return slices.DeleteFunc(all, func(g typeCount) bool {
		first := all[0]
		if whole(first) == 0 {
			return g.typ != first.typ
		}
		return g.memory != first.memory
	})
}

// stated returns the memory of a GPU, of an instance at least what its profile states.
func (g typeCount) stated() cluster.Bytes { return max(g.memory, cluster.MIGMemory(g.typ)) }

// noInstance refuses a request for instances that are larger than all GPUs.
func noInstance(r *cluster.Request, all []typeCount) *command.Refusal {
	if len(all) == 0 {
		return command.Refuse(command.InvalidArgument, "the partition has no GPU", "gctl info lists the types")
	}
	largest := slices.MaxFunc(all, func(a, b typeCount) int { return cmp.Compare(a.stated(), b.stated()) }).stated()
	return command.WithHint(command.Refusef(command.InvalidArgument, "no MIG instance or GPU of the partition has %s of memory (the largest has %s)", r.GPUMemory, largest), "request at most --gpu-mem=%s", largest)
}
