package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	backfill "github.com/greylag/greylag/internal/schedule/first"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// explain is the last step: it gives every job that waits without a planned start
// its reason. Those that have one were told in step 3.
func (r *round) explain() {
	for _, c := range r.served {
		for _, job := range c.jobs[c.next:] {
			r.wait(job, c.rest, 0)
		}
	}
}

// impossible is why no job of a class could start even if nothing ran.
func (r *round) impossible(c *class) verdict {
	allowed := chooser(&c.spec.Request)
	hosts, closed := []*topology.Host{}, []string{}
	for _, place := range c.want.Hosts {
		hosts = append(hosts, r.ground.profile.Host(place))
	}
	for _, n := range c.part.closed {
		if allowed(n) {
			hosts, closed = append(hosts, topology.NewHost(n)), append(closed, n.Name)
		}
	}
	all := backfill.New(r.snap.Now, hosts, maxEffort)
	want := backfill.Want{Need: c.want.Need, Lasts: c.want.Lasts}
	for i := range all.Hosts() {
		want.Hosts = append(want.Hosts, i)
	}
	if all.FitsEmpty(&want) {
		return verdict{cluster.ReasonReqNodeNotAvail,
			needs(&want.Need) + "; that takes nodes that are not available: " + hostlist.Compress(closed)}
	}
	return verdict{cluster.ReasonBadConstraints,
		needs(&want.Need) + fmt.Sprintf("; the nodes of partition %q that it may use can never give that", c.part.Name)}
}

// shortage is why a job of a class does not start now: not enough is free, or what
// is free is kept for jobs before it.
func (r *round) shortage(c *class) verdict {
	profile := r.ground.profile
	if profile.FitsNow(&c.want) {
		return verdict{cluster.ReasonPriority, "fits now, but would delay jobs ahead of it"}
	}
	var free []topology.Free
	for _, place := range c.want.Hosts {
		free = append(free, profile.Now(place))
	}
	return verdict{cluster.ReasonResources, needs(&c.want.Need) + "; " + lacks(&c.want.Need, free)}
}

// needs says what a need asks for.
func needs(n *topology.Need) string {
	kind := ""
	if n.Total > 0 && n.Types[0] != "" {
		kind = strings.Join(n.Types, " or ") + " "
	}
	var what []string
	if n.PerNode > 0 {
		what = append(what, count(n.PerNode, kind+"GPU"))
	}
	if n.CPUs > 1 || n.PerNode < 1 {
		what = append(what, count(n.CPUs, "CPU"))
	}
	if m := n.Memory(n.PerNode); m > 0 {
		what = append(what, m.String()+" of memory")
	}
	where := " on one node"
	switch {
	case n.PerNode < 0 && n.Nodes == 0:
		return "needs " + count(n.Total, kind+"GPU") + " in all, and " + and(what) + " on each node"
	case n.PerNode < 0:
		return fmt.Sprintf("needs %s on %d nodes, and %s on each", count(n.Total, kind+"GPU"), n.Nodes, and(what))
	case n.Nodes > 1:
		where = fmt.Sprintf(" on each of %d nodes", n.Nodes)
	}
	if n.Exclusive {
		where += " to itself"
	}
	return "needs " + and(what) + where
}

// lacks says what of a need is not free, one resource if that alone explains it.
func lacks(n *topology.Need, free []topology.Free) string {
	if n.PerNode < 0 {
		sum := int32(0)
		for i := range free {
			gives, _ := n.Gives(&free[i], n.Types[0])
			sum += gives
		}
		return count(sum, "GPU is", "GPUs are") + " free now"
	}
	for _, res := range resources(n) {
		most, node, enough := int64(-1), "", int32(0)
		for i := range free {
			has := res.has(&free[i])
			if has > most {
				most, node = has, free[i].Host.Name
			}
			if has >= res.need {
				enough++
			}
		}
		switch {
		case enough >= n.Nodes:
		case n.Nodes == 1:
			return fmt.Sprintf("the most free now is %s on %s", res.show(most), node)
		default:
			return fmt.Sprintf("%s that free now", count(enough, "node has", "nodes have"))
		}
	}
	if n.Exclusive {
		return "not enough nodes are idle now"
	}
	return "no set of nodes has all of that free now"
}

// resource is one quantity that a node gives.
type resource struct {
	need int64
	has  func(*topology.Free) int64
	show func(int64) string
}

func resources(n *topology.Need) []resource {
	number := func(v int64) string { return fmt.Sprint(v) }
	return []resource{
		{int64(n.PerNode), func(f *topology.Free) int64 {
			best := int32(0)
			for _, kind := range n.Types {
				best = max(best, f.GPUs.And(f.Host.OfType(kind)).Len())
			}
			return int64(best)
		}, number},
		{int64(n.CPUs), func(f *topology.Free) int64 { return int64(f.CPUs) },
			func(v int64) string { return count(int32(v), "CPU") }},
		{int64(n.Memory(n.PerNode)), func(f *topology.Free) int64 { return int64(f.Memory) },
			func(v int64) string { return cluster.Bytes(v).String() + " of memory" }},
	}
}

// count writes a number with its noun, whose plural adds an s or is given.
func count(n int32, noun string, plural ...string) string {
	if n != 1 {
		noun = slices.Concat(plural, []string{noun + "s"})[0]
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
