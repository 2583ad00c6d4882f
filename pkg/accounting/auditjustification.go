package accounting

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// auditedLien is a lien as the journal describes it, while it may still be charged for metered use.
type auditedLien struct {
	held    Credits
	counted Credits // charged for metered use, less refunds of it
	rates   []Rate  // of its quote; empty for floating prices
	wanted  string  // the type that it requested, for floating prices
	final   bool    // no more use will be metered
}

// quotedBy records the prices that bind.
func (n *auditedLien) quotedBy(e *Entry) {
	switch {
	case !e.For.Floating:
		n.rates = e.For.Rates
	case len(e.For.Rates) > 0:
		n.wanted = e.For.Rates[0].GPUType
	}
}

// putKey is a lien and a bucket that limits the amount per lien.
type putKey struct {
	lien   LienID
	bucket BucketID
}

// owing is a charge with entries still to come.
type owing struct {
	lien LienID
	left Credits
}

// checkEntry compares an entry with its justification. It returns what is wrong, or "".
func (a *Audit) checkEntry(e *Entry, b *auditedBucket) string {
	if a.owes.left > 0 && !a.full() && (e.Lien != a.owes.lien || e.Bill == nil) {
		return fmt.Sprintf("%s of what lien %s is charged are missing before it", a.owes.left, a.owes.lien)
	}
	begins := e.Kind == Granted || e.Kind == Refunded && b != nil && b.amount == e.Amount && b.terms == nil && e.Terms != nil
	switch {
	case begins != (e.Terms != nil):
		return "the terms of a bucket stand where it begins, and nowhere else"
	case begins:
		if what := a.begin(e, b); what != "" {
			return what
		}
	}
	takes := e.Debit.Kind == InBucket && (e.Kind == SetAside || e.Kind == Overshoot || e.Kind == Repaid)
	switch {
	case takes != (e.For != nil):
		return "what a bucket pays for stands where it pays, and nowhere else"
	case takes:
		if what := a.allowed(e, b); what != "" {
			return what
		}
	}
	bills := e.Kind == Captured || e.Kind == Overshoot || e.Kind == Refunded
	switch {
	case bills != (e.Bill != nil):
		return "a bill stands where something is charged or refunded, and nowhere else"
	case bills:
		return a.billed(e)
	}
	return ""
}

// begin records the terms of a new bucket.
func (a *Audit) begin(e *Entry, b *auditedBucket) string {
	g := e.Terms
	switch {
	case b == nil || g.Amount != e.Amount || len(g.Owner) != 1 || g.Owner[0] != e.Node:
		return "the bucket's terms are another's"
	case e.Kind == Granted && (g.Class == Purchase) != (e.Debit.Kind == External):
		return "what was bought comes from outside, and nothing else does"
	}
	b.terms = g
	return ""
}

// allowed returns why a bucket may not pay: its owner, its validity, or its scope.
func (a *Audit) allowed(e *Entry, b *auditedBucket) string {
	x, g := e.For, b.terms
	if len(x.Chain) == 0 || x.Chain[0] != e.Node {
		return fmt.Sprintf("it is not %s who pays", e.Node)
	}
	id := e.Debit.Bucket
	switch {
	case g == nil:
		return fmt.Sprintf("bucket %d pays, and no entry says its terms", id)
	case !slices.Contains(x.Chain, g.Owner[0]):
		return fmt.Sprintf("bucket %d of %s does not pay for %s", id, g.Owner[0], e.Node)
	case e.At < g.Effective:
		return fmt.Sprintf("bucket %d pays before it begins", id)
	case g.Expires != 0 && e.At >= g.Expires:
		return fmt.Sprintf("bucket %d pays after it expired", id)
	case e.Kind == Repaid && (&Bucket{Grant: *g}).scoped():
		return fmt.Sprintf("bucket %d pays a debt, and pays for some jobs only", id)
	case e.Kind == Repaid:
		return ""
	}
	if what := a.quotes(e); what != "" {
		return what
	}
	return a.inScope(e, g)
}

// inScope returns why the lien's purpose is outside a bucket's scope, or "".
func (a *Audit) inScope(e *Entry, g *Grant) string {
	x, s, id := e.For, &g.Scope, e.Debit.Bucket
	for _, list := range []struct {
		what    string
		allowed []string
		used    []string
	}{{"partition", s.Partitions, x.Partitions}, {"GPU type", s.GPUTypes, namesOf(append(typesOf(x.Rates), x.On...))}, {"QOS", s.QOS, []string{x.QOS}}} {
		for _, one := range list.used {
			if !within(list.allowed, one) {
				return fmt.Sprintf("bucket %d does not pay for %s %s", id, list.what, one)
			}
		}
	}
	if s.PerJob == 0 && s.Permille == 0 {
		return ""
	}
	put := a.puts[putKey{e.Lien, id}]
	switch {
	case s.PerJob > 0 && put > s.PerJob, s.Permille > 0 && put > permille(x.Amount, s.Permille):
		return fmt.Sprintf("bucket %d pays %s of lien %s, more than it may", id, put, e.Lien)
	}
	return ""
}

func typesOf(rates []Rate) (types []string) {
	for _, r := range rates {
		types = append(types, r.GPUType)
	}
	return types
}

// namesOf returns the types that scopes name for GPUs.
func namesOf(priced []string) []string {
	for i := range priced {
		priced[i] = cluster.TypeOfPriced(priced[i])
	}
	return priced
}

// billed recomputes a bill: segments no longer than possible, at the quoted prices, come to what
// was charged for them so far and what is left.
func (a *Audit) billed(e *Entry) string {
	b, n := e.Bill, a.liens[e.Lien]
	a.owes = owing{}
	if b.Kind != Counted {
		return ""
	}
	for i := range b.Segments {
		end := e.At
		if i+1 < len(b.Segments) {
			end = b.Segments[i+1].Since
		}
		if what := b.Segments[i].possible(end); what != "" {
			return what
		}
	}
	var counted Credits
	if n != nil {
		if counted = n.counted; len(n.rates) > 0 {
			for i := range b.Segments {
				for _, p := range b.Segments[i].Shares {
					if want := quoted(n.rates, p.Type); p.Price != want {
						return fmt.Sprintf("a GPU of type %s is charged at %s, and %s was quoted", p.Type, p.Price, want)
					}
				}
			}
		}
		if n.wanted != "" && a.prices != nil {
			if what := a.follows(b, n.wanted); what != "" {
				return what
			}
		}
		n.final = n.final || b.Final && b.Left == 0
	}
	due := b.Due()
	switch {
	case e.Kind == Refunded && counted < due:
		return fmt.Sprintf("lien %s is left with a charge of %s and comes to %s", e.Lien, counted, due)
	case e.Kind != Refunded && counted+b.Left != due:
		return fmt.Sprintf("lien %s is charged %s and comes to %s", e.Lien, counted+b.Left, due)
	case e.Kind != Refunded && (b.Left < 0 || b.Left > 0 && e.Debit.Kind == Owed && !a.full()):
		return fmt.Sprintf("%s of lien %s are not charged", b.Left, e.Lien)
	}
	if e.Kind != Refunded && e.Debit.Kind != Owed {
		a.owes = owing{e.Lien, b.Left}
	}
	return ""
}

// full reports whether the total ever granted and owed is at its bound: a charge beyond it becomes
// no debt.
func (a *Audit) full() bool { return a.owed-a.outside[External]-a.outside[Promotion] >= maxTotal }

// possible returns why a segment that ended at an instant is impossible, or "".
func (x *BillSegment) possible(end cluster.Instant) string {
	gpus := int64(0)
	for _, p := range x.Shares {
		if p.Count < 1 || p.Price < 0 {
			return "a segment has no GPUs, or a price below zero"
		}
		gpus += p.Count
	}
	lasted := end.Sub(x.Since) + slack
	if x.Millis > millis(gpus, (lasted+time.Millisecond-1).Milliseconds()) {
		return fmt.Sprintf("%d GPUs are charged for %d ms, longer than they were had", gpus, x.Millis)
	}
	return ""
}

// quoted returns the price of a GPU of a type under a quote: that of its type, or of its part of a quoted type, such as
// a MIG instance or a shared GPU. A type that was not quoted costs as much as the requested one.
func quoted(rates []Rate, gpuType string) Credits {
	_, parent, share := cluster.CutPricedType(gpuType)
	price, part := rates[0].Price, Credits(math.MaxInt64)
	for _, r := range rates {
		if r.GPUType == gpuType {
			return r.Price
		}
		if parent != "" && r.GPUType == parent {
			part = min(part, ofInstance(r.Price, share))
		}
	}
	if part != math.MaxInt64 {
		price = part
	}
	return price
}
