package accounting

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// NewAudit returns an Audit that also compares quoted and floating prices with all prices that a
// ledger ever had.
func NewAudit(prices *Ledger) *Audit { return &Audit{prices: prices} }

// quotes returns the first price of a quote that was not in force when it was made. Quotes are made
// just before the lien is placed.
func (a *Audit) quotes(e *Entry) string {
	if a.prices == nil {
		return ""
	}
	for _, r := range e.For.Rates {
		is, err := a.prices.Price(r.GPUType, e.For.Since)
		if was, _ := a.prices.Price(r.GPUType, e.For.Since.Add(-time.Millisecond)); err != nil || r.Price != is && r.Price != was {
			return fmt.Sprintf("an hour of %s is quoted at %s, and cost %s", r.GPUType, r.Price, is)
		}
	}
	return ""
}

// follows returns the first segment of a floating bill that does not match the prices.
func (a *Audit) follows(b *Bill, wanted string) string {
	for i := range b.Segments {
		x := &b.Segments[i]
		if len(b.Segments)*len(x.Shares) >= maxSegments {
			return "" // no more prices are kept
		}
		gpus := int64(0)
		for _, s := range x.Shares {
			gpus += s.Count
		}
		// Node counters may run slightly long, and into the next price.
		sure := x.Since.Add(time.Duration(x.Millis/max(gpus, 1)-1)*time.Millisecond - slack)
		for _, s := range x.Shares {
			for _, at := range append(a.prices.changes(x.Since, sure, s.Type, wanted), x.Since) {
				if price, err := a.prices.floating(s.Type, wanted, at); err != nil || price != s.Price {
					return fmt.Sprintf("a GPU of type %s is charged at %s, and cost %s at %s", s.Type, s.Price, price, at.Time().UTC().Format(time.RFC3339))
				}
			}
		}
	}
	return ""
}

// floating returns the floating price of a GPU of a type for a job that requested another: that of
// the requested type, if the type has no price.
func (l *Ledger) floating(gpuType, wanted string, at cluster.Instant) (Credits, error) {
	if price, err := l.Price(gpuType, at); err == nil {
		return price, nil
	}
	return l.Price(wanted, at)
}
