package accounting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// state formats all balances.
func (o *oracle) state() string {
	var out strings.Builder
	for _, b := range o.buckets {
		spent := o.total("revenue", func(m *movement) bool { return m.bucket == b.id }) + o.total("debt", func(m *movement) bool { return m.bucket == b.id })
		fmt.Fprintf(&out, "bucket %d: %d %d %d %d\n", b.id, o.inBucket(b.id, "avail"), o.inBucket(b.id, "held"), spent, o.inBucket(b.id, "gone"))
	}
	ids := make([]LienID, 0, len(o.liens))
	for id := range o.liens {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b LienID) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt)) })
	for _, id := range ids {
		n := o.liens[id]
		fmt.Fprintf(&out, "lien %s: %d of %d, %d due, cut short %t", id, n.state, int64(n.Amount), o.due(n), n.cutShort)
		for _, p := range n.parts {
			back := o.refunded(id, p.number)
			fmt.Fprintf(&out, " %d:%d/%d/%d", p.bucket, o.inPart(id, p.number, "held"), o.inPart(id, p.number, "revenue")+back, back)
		}
		fmt.Fprintln(&out)
	}
	names := make([]PayerID, 0, len(o.nodes))
	for id := range o.nodes {
		names = append(names, id)
	}
	slices.Sort(names)
	for _, id := range names {
		held, spent, debt, owes := o.sums(id)
		fmt.Fprintf(&out, "account %s: %d %d %d %d, used %d\n", id, held, spent, debt, owes, o.used(id))
	}
	return out.String()
}
