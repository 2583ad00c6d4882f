package schedule

import (
	"fmt"
	"slices"

	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// chooser reports which nodes a request allows by name, features, region and price,
// whatever is free on them.
func (g *resources) chooser(r *cluster.Request) func(*cluster.Node) bool {
	only, all := names(r.NodeList)
	all = all || len(r.NodeList) == 0
	never, none := names(r.Exclude)
	return func(n *cluster.Node) bool {
		if none || never[n.Name] || !all && !only[n.Name] {
			return false
		}
		for _, f := range r.Features {
			if !slices.Contains(n.Features, f) {
				return false
			}
		}
		if len(r.Regions) > 0 && !slices.Contains(r.Regions, n.Region) {
			return false
		}
		_, dear := g.dearer(r, n)
		return !dear
	}
}

// dearer is the type of a GPU of a node that the job might be given and that costs more
// than it would pay, if there is one. Types without a price cost nothing.
func (g *resources) dearer(r *cluster.Request, n *cluster.Node) (kind string, is bool) {
	if r.MaxPrice == 0 {
		return "", false
	}
	for i := range n.GPUs {
		kind = n.GPUs[i].Type
		if g.prices[kind] > r.MaxPrice && (len(r.GPUTypes) == 0 || slices.Contains(r.GPUTypes, kind)) {
			return kind, true
		}
	}
	return "", false
}

// pricesOf is what an hour of a GPU costs at a snapshot's instant, by type.
func pricesOf(snap *cluster.Snapshot) map[string]int64 {
	prices := make(map[string]int64, len(snap.Prices))
	for _, p := range snap.Prices {
		if _, later := prices[p.Type]; !later && p.From <= snap.Now {
			prices[p.Type] = p.Hour
		}
	}
	return prices
}

// repriced is when a price changes next, as far as is known.
func repriced(snap *cluster.Snapshot) cluster.Instant {
	at := cluster.Never
	for _, p := range snap.Prices {
		if p.From > snap.Now {
			at = min(at, p.From)
		}
	}
	return at
}

// outside is why a node is in none of a request's regions, or too dear for it, in words.
func (g *resources) outside(r *cluster.Request, n *cluster.Node) (why []string) {
	if len(r.Regions) > 0 && !slices.Contains(r.Regions, n.Region) {
		where := "in no region that is known"
		if n.Region != "" {
			where = fmt.Sprintf("in region %s, not in --region", n.Region)
		}
		why = append(why, where)
	}
	if kind, is := g.dearer(r, n); is {
		why = append(why, fmt.Sprintf("dearer than --max-price: %s costs %s credits an hour", kind, accounting.Credits(g.prices[kind])))
	}
	return why
}
