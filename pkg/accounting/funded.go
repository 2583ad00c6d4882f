package accounting

import (
	"sort"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// The future cost of an attempt is computed from how long it will have had its GPUs, as its bill
// will be. Its counters lag, and bound the bill only when a node is lost.

// outlook returns a lien as it will be: floating prices are those known now.
type outlook struct {
	Lien
	covered Credits // what its segments may cost: held, or charged for them
}

func (l *Ledger) outlook(n *Lien, until cluster.Instant) outlook {
	x := outlook{Lien: n.copied()}
	l.followTo(&x.Lien, until)
	held, spent, _ := n.sum()
	x.covered = held + spent - n.Adjusted
	return x
}

// cost returns the cost of its segments if the last one lasts that long.
func (x *outlook) cost(ms int64) (sum Credits) {
	last := len(x.Segments) - 1
	for i := range x.Segments[:last] {
		sum += x.Segments[i].sum(x.Segments[i].Base + x.Segments[i].Count)
	}
	g := &x.Segments[last]
	return min(sum, maxTotal) + min(g.sum(max(g.Base+g.Count, millis(g.GPUs, ms))), maxTotal)
}

// MissingCredits returns how much more an open lien would have to hold to pay for its current GPUs until an
// instant at the prices known now; negative for an excess. It is 0 for one that does not run.
// O(segments + log n).
func (l *Ledger) MissingCredits(n *Lien, until cluster.Instant) Credits {
	last := len(n.Segments) - 1
	if last < 0 {
		return 0
	}
	x := l.outlook(n, until)
	const ms = cluster.Instant(time.Millisecond)
	return x.cost(int64((max(0, until-x.Segments[last].Since)+ms-1)/ms)) - x.covered
}

// FundedUntil returns until when a lien pays for its current GPUs, to the millisecond, at the
// prices known now. It is in the past where the lien does not pay for time already used, and limit
// where it pays for all until then, nothing runs or it costs nothing. Time after limit is not
// examined; limit is Never for jobs without a time limit. O(segments + prices until limit).
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
