package admission

import (
	"cmp"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// manyNodes stands for as many nodes of an offer as a job requests.
const manyNodes = 1 << 20

// setCloud adds the partition of the leased nodes to those of a job that requests it, or makes it the only one. A job
// that names the partition requests it; an update of the partitions decides in that way alone. Without the partition no
// node is leased for a job.
func (x *Checker) setCloud(spec, old *cluster.JobSpec) *command.Refusal {
	cloud, has := x.Policy.Cloud()
	b := &spec.Burst
	if !has {
		if b.Mode == cluster.BurstOnly {
			return command.WithHint(command.Refuse(command.InvalidArgument, "this cluster has no partition of cloud nodes", ""), "omit --burst=only")
		}
		if b.Mode == cluster.BurstAllow {
			b.Mode = cluster.BurstNever
		}
		return nil
	}
	named := slices.Contains(spec.AllPartitions(), cloud.Name)
	switch {
	case named && old == nil && b.Mode == cluster.BurstNever:
		return command.WithHint(command.Refusef(command.InvalidArgument, "--burst=never conflicts with partition %q, whose nodes are leased", cloud.Name), "omit one of them")
	case named && len(spec.OtherPartitions) == 0:
		b.Mode = cluster.BurstOnly
	case named && b.Mode != cluster.BurstOnly:
		b.Mode = cluster.BurstAllow
	case !named && old != nil && !slices.Equal(spec.AllPartitions(), old.AllPartitions()):
		b.Mode = cluster.BurstNever
	}
	switch {
	case b.Mode == cluster.BurstOnly:
		spec.Partition, spec.OtherPartitions = cloud.Name, nil
	case b.Mode == cluster.BurstAllow && !named:
		spec.OtherPartitions = append(slices.Clip(spec.OtherPartitions), cloud.Name)
	}
	return nil
}

// defaultBurst gives a job that says nothing about leased nodes the mode of its QOS, else of its first partition, and
// reports whether that mode is [cluster.BurstOnly], which moves the job. A default of [cluster.BurstAllow] is not for
// jobs that cannot run on leased nodes.
func (x *Checker) defaultBurst(spec *cluster.JobSpec, qos *cluster.QOS, part *cluster.Partition) (only bool) {
	cloud, has := x.Policy.Cloud()
	if !has || spec.Burst.Mode != cluster.BurstDefault {
		return false
	}
	switch cmp.Or(qos.Burst, part.Burst) {
	case cluster.BurstOnly:
		spec.Burst.Mode = cluster.BurstOnly
		return true
	case cluster.BurstAllow:
		if x.admits(spec, &cloud) && x.checkCloud(spec) == nil {
			spec.Burst.Mode = cluster.BurstAllow
			spec.OtherPartitions = append(slices.Clip(spec.OtherPartitions), cloud.Name)
		}
	}
	return false
}

// admits reports whether a partition admits the user and the account of a job, and its kind of GPU share.
func (x *Checker) admits(spec *cluster.JobSpec, part *cluster.Partition) bool {
	if !part.Allows(spec.Account) || part.RefuseShare(spec.Request.Share.Jobs) != "" {
		return false
	}
	if x.Accounts.Len() == 0 || spec.Account == "" {
		return true
	}
	key := spec.Association()
	key.Partition = part.Name
	_, member := x.Accounts.Association(key)
	return member
}

// checkCloud refuses a job for which nodes may be leased, and that cannot run on any.
func (x *Checker) checkCloud(spec *cluster.JobSpec) *command.Refusal {
	refuse := func(hint, format string, args ...any) *command.Refusal {
		if spec.Burst.Mode == cluster.BurstAllow {
			hint += ", or use --burst=never"
		}
		return command.WithHint(command.Refusef(command.InvalidArgument, format, args...), "%s", hint)
	}
	switch {
	case spec.Image == "":
		return refuse("name an image with --image", "the job may burst but has no image: cloud nodes lack the site's file systems and accounts")
	case spec.TimeLimit == 0:
		return refuse("request a time limit with --time", "the job may burst but has no time limit; its cost would be unbounded")
	case spec.Reservation != "":
		return refuse("omit --reservation", "reservation %q has no leased nodes", spec.Reservation)
	}
	for _, name := range spec.Request.NodeList {
		if !cluster.IsLeased(name) {
			return refuse("omit --nodelist", "node %q is not a leased node", name)
		}
	}
	allowed, asked := x.Policy.Burst.Regions, spec.Burst.Regions
	if len(allowed) > 0 && len(asked) > 0 && !slices.ContainsFunc(asked, func(r string) bool { return slices.Contains(allowed, r) }) {
		return refuse("use --burst-regions="+strings.Join(allowed, ","), "region %s is not allowed by burst.regions", strings.Join(asked, " or "))
	}
	return nil
}

// checkOffers refuses a job that no offer of the cloud could serve. Without offers it refuses nothing. O(offers).
func (x *Checker) checkOffers(spec *cluster.JobSpec, partition string) *command.Refusal {
	r := &spec.Request
	part, _ := x.Policy.Partition(partition)
	where := nodeScope{partition: partition, most: int64(part.MaxNodes)}
	if most := int64(x.Policy.Burst.MaxNodes); most > 0 && int64(r.Nodes) > most {
		return command.WithHint(command.Refusef(command.InvalidArgument, "--nodes=%d exceeds burst.max_nodes = %d", r.Nodes, most), "request at most %s with --nodes", words.Count(most, "node"))
	}
	var shapes []shape
	known := false
	for o := range x.Offers {
		if known = true; x.mayLease(spec, o) {
			shapes = append(shapes, offerShape(o))
		}
	}
	if !known {
		return nil
	}
	if len(shapes) == 0 {
		return command.WithHint(command.Refuse(command.InvalidArgument, "no cloud offer is in the markets and regions of the job", ""), "gctl burst offers lists the offers")
	}
	if refusal := tooLarge(r, shapes, where); refusal != nil {
		return refusal
	}
	for i := range shapes { // all nodes of a job are of one offer
		if tooLarge(r, shapes[i:i+1], where) == nil && checkSets(r, shapes[i:i+1], where) == nil {
			return nil
		}
	}
	return command.WithHint(command.Refuse(command.InvalidArgument, "no cloud offer satisfies the whole request", ""), "gctl burst offers lists the offers")
}

// mayLease reports whether the policy and the job allow an offer by its market and region.
func (x *Checker) mayLease(spec *cluster.JobSpec, o *cluster.Offer) bool {
	in := func(regions []string) bool { return len(regions) == 0 || slices.Contains(regions, o.Region) }
	qos, _ := x.Policy.QOSNamed(spec.QOS)
	return in(x.Policy.Burst.Regions) && in(spec.Burst.Regions) && in(spec.Request.Regions) &&
		(spec.Burst.Market == cluster.AnyMarket || spec.Burst.Market == o.Market) &&
		!(o.Market == cluster.Spot && qos.MinOnDemand == 100)
}

// offerShape returns what nodes of an offer have.
func offerShape(o *cluster.Offer) shape {
	s := shapeOf(o.Node())
	s.nodes = manyNodes
	return s
}
