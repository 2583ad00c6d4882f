package accounting

import (
	"sort"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// What an attempt will cost is told by how long it will have had its GPUs, as its bill will
// be: its counters run behind, and only bound the bill where a node is lost.

// outlook is a lien as it will be: the prices of what floats are those that are set by now.
type outlook struct {
	Lien
	covered Credits // what its segments may come to: held, or charged for them
}

func (l *Ledger) outlook(n *Lien, until cluster.Instant) outlook {
	x := outlook{Lien: n.copied()}
	l.followTo(&x.Lien, until)
	held, spent, _ := n.sum()
	x.covered = held + spent - n.Adjusted
	return x
}

// cost is what its segments come to when the last one lasts for so long.
func (x *outlook) cost(ms int64) (sum Credits) {
	last := len(x.Segments) - 1
	for i := range x.Segments[:last] {
		sum += x.Segments[i].sum(x.Segments[i].Base + x.Segments[i].Count)
	}
	g := &x.Segments[last]
	return min(sum, maxTotal) + min(g.sum(max(g.Base+g.Count, millis(g.GPUs, ms))), maxTotal)
}

// Lacks is what an open lien would have to hold besides, to pay for what it runs on until an
// instant at the prices that are set by now; less than nothing is what it does not need for
// that. Nothing for one that does not run. O(segments + log n).
func (l *Ledger) Lacks(n *Lien, until cluster.Instant) Credits {
	last := len(n.Segments) - 1
	if last < 0 {
		return 0
	}
	x := l.outlook(n, until)
	const ms = cluster.Instant(time.Millisecond)
	return x.cost(int64((max(0, until-x.Segments[last].Since)+ms-1)/ms)) - x.covered
}

// FundedUntil is until when what a lien holds pays for what it runs on, to the millisecond, at
// the prices that are set by now, which is past where it does not pay for what was had already; limit
// where it pays for all until then, nothing runs or it costs nothing. What comes after limit is
// not looked at; it is Never for what may run for ever. O(segments + prices until limit).
func (l *Ledger) FundedUntil(n *Lien, limit cluster.Instant) cluster.Instant {
	last := len(n.Segments) - 1
	if last < 0 {
		return limit
	}
	x := l.outlook(n, min(limit, latest))
	since := x.Segments[last].Since
	most := int(max(0, min(limit, latest).Sub(since)) / time.Millisecond)
	ms := sort.Search(most, func(ms int) bool { return x.cost(int64(ms)+1) > x.covered })
	if ms == most {
		return limit
	}
	return min(limit, since.Add(time.Duration(ms)*time.Millisecond))
}
