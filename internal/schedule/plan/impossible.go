package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// inReservation returns the nodes of a list that the job's reservation has; all when it names none.
func (t *classes) inReservation(spec *cluster.JobSpec, nodes []*cluster.Node) []*cluster.Node {
	if spec.Reservation == "" {
		return nodes
	}
	x, known := t.res.policy.Scheduling.Reservation(spec.Reservation)
	if !known {
		return nil
	}
	member := cluster.ParseNodeNames(x.Nodes)
	return slices.DeleteFunc(slices.Clone(nodes), func(n *cluster.Node) bool { return !member.Has(n.Name) })
}

// impossible returns why no job of a class could start even in an empty cluster, for each of its
// partitions. The reason is that of the first partition whose nodes may become available again. waits is true for a
// class of jobs that run on leased nodes alone.
func (t *classes) impossible(c *Class, need topology.NodeRequest) (found eligible.Obstacle, waits bool) {
	var all []string
	cloud := "" // why no leased node suits
	for _, name := range c.Spec.AllPartitions() {
		if _, refuses := t.res.Refusal(c.Spec, name); refuses {
			continue // c.Refused names it
		}
		if t.res.parts[name].cloud {
			if waits = c.Spec.Burst.Mode == cluster.BurstOnly; waits {
				return eligible.Obstacle{Reason: cluster.ReasonReqNodeNotAvail, Detail: c.Needs() + "; waits for a cloud node"}, true
			}
			cloud = fmt.Sprintf("; in partition %q no cloud node is suitable", name)
			continue
		}
		v := t.impossibleIn(c, need, t.res.parts[name])
		why := strings.TrimPrefix(v.Detail, c.Needs()+"; ")
		if !strings.Contains(why, strconv.Quote(name)) {
			why = fmt.Sprintf("in partition %q %s", name, why)
		}
		all = append(all, why)
		if found.Reason == cluster.ReasonNone || found.Reason != cluster.ReasonReqNodeNotAvail && v.Reason == cluster.ReasonReqNodeNotAvail {
			found = v
		}
	}
	switch len(all) {
	case 0:
		if cloud != "" {
			return eligible.Obstacle{Reason: cluster.ReasonReqNodeNotAvail, Detail: c.Needs() + cloud + c.Refused}, false
		}
		found, _ = t.res.Partitions(c.Spec)
		return found, false
	case 1:
	default:
		found.Detail = c.Needs() + "; " + strings.Join(all, "; ")
	}
	found.Detail += cloud + c.Refused
	return found, false
}

// impossibleIn returns why no job of a class could start in one partition even if that were empty: the
// nodes that are not available, its reservation, or the size of the partition.
func (t *classes) impossibleIn(c *Class, need topology.NodeRequest, part *partition) eligible.Obstacle {
	need.Most = part.MaxNodes
	var open []*cluster.Node
	for name, h := range t.res.index {
		if part.usable.Has(h) {
			open = append(open, t.res.Nodes[name])
		}
	}
	request := c.Spec.Request
	fitsSet := func(features []string, lists ...[]*cluster.Node) (ok bool, used []string) {
		one := request
		one.Features = features
		filter := t.res.Filter(&one)
		var all []topology.Free
		for i, list := range lists {
			for _, n := range list {
				if !filter.Suits(n) {
					continue
				}
				host := topology.NewHost(n)
				if h, ok := t.res.index[n.Name]; ok {
					host = t.res.Hosts[h]
				}
				all = append(all, topology.AllOf(host))
				if i > 0 {
					used = append(used, n.Name)
				}
			}
		}
		_, ok = topology.Place(all, &need)
		return ok, used
	}
	fits := func(lists ...[]*cluster.Node) (ok bool, used []string) {
		for _, features := range cluster.FeatureSets(request.Features) {
			if ok, used = fitsSet(features, lists...); ok {
				break
			}
		}
		return ok, used
	}
	if ok, closed := fits(t.inReservation(c.Spec, open), t.inReservation(c.Spec, part.closed)); ok && len(closed) > 0 {
		return eligible.Obstacle{Reason: cluster.ReasonReqNodeNotAvail, Detail: c.Needs() + "; this needs unavailable nodes: " + hostlist.Compress(closed)}
	}
	if c.Spec.Reservation != "" {
		if ok, _ := fits(open, part.closed); ok {
			return eligible.Obstacle{Reason: cluster.ReasonReservation, Detail: c.Needs() + fmt.Sprintf("; the nodes of reservation %q in partition %q can never satisfy this", c.Spec.Reservation, part.Name)}
		}
	}
	for _, limit := range []struct {
		set  bool
		drop func()
		says string
	}{
		{request.MaxPrice > 0, func() { request.MaxPrice = 0 }, "every suitable node costs more than --max-price"},
		{len(request.Regions) > 0, func() { request.Regions = nil }, "no node in region " + strings.Join(request.Regions, " or ") + " is suitable"},
	} {
		if !limit.set {
			continue
		}
		limit.drop()
		if ok, _ := fits(t.inReservation(c.Spec, open), t.inReservation(c.Spec, part.closed)); ok {
			return eligible.Obstacle{Reason: cluster.ReasonReqNodeNotAvail, Detail: c.Needs() + "; " + limit.says}
		}
	}
	if len(open)+len(part.closed) == 0 {
		return eligible.Obstacle{Reason: cluster.ReasonReqNodeNotAvail, Detail: fmt.Sprintf("partition %q has no nodes", part.Name)}
	}
	if c.Bounded() {
		return eligible.Obstacle{Reason: cluster.ReasonBadConstraints, Detail: c.Needs() + words.SearchBounded}
	}
	return eligible.Obstacle{Reason: cluster.ReasonBadConstraints, Detail: c.Needs() + fmt.Sprintf("; the nodes of partition %q that it may use can never satisfy this", part.Name)}
}
