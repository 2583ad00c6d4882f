package accounting

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// priceKey orders prices by type, the newest first.
type priceKey struct {
	gpuType string
	before  cluster.Instant // minus the instant at which it starts
}

func comparePrices(a, b priceKey) int {
	return cmp.Or(strings.Compare(a.gpuType, b.gpuType), cmp.Compare(a.before, b.before))
}

// Rate is the price of a GPU-hour of a type, as fixed by a quote.
type Rate struct {
	GPUType string
	Price   Credits
}

// SetPrice sets the price of a GPU type from an instant on, which must not be past: history is
// never rewritten. 0 is now.
func (l *Ledger) SetPrice(s Stamp, r Rate, from cluster.Instant) (Receipt, error) {
	type payload struct {
		Rate
		from cluster.Instant
	}
	p := printOf(l, s, opPrice, &payload{r, from}, func(c *codec.Coder, x *payload) {
		rate(c, &x.Rate)
		codec.Int(c, &x.from)
	})
	return l.once(s, p, func() (Receipt, error) {
		switch {
		case r.Price < 0 || r.Price > MaxAmount:
			return Receipt{}, fmt.Errorf("%w: a price of %s", ErrAmount, r.Price)
		case r.GPUType == "" || len(r.GPUType) > maxText:
			return Receipt{}, fmt.Errorf("%w: a price needs a GPU type of at most %d bytes", ErrInvalid, maxText)
		case from != 0 && from < l.now:
			return Receipt{}, fmt.Errorf("%w: a price cannot hold from before now", ErrInvalid)
		}
		l.putPrice(priceKey{r.GPUType, -max(from, l.now)}, r.Price)
		if from > l.now {
			l.due.Set(dueKey{from, 0}, none{})
		} else {
			l.free(Freed{})
		}
		return Receipt{}, nil
	})
}

// Price returns the price of a GPU-hour of a type at an instant. A MIG instance, under the name that
// [cluster.GPU.PricedType] returns, costs what its profile does, or else its share of its parent's price, rounded
// down. O(log n).
func (l *Ledger) Price(gpuType string, at cluster.Instant) (Credits, error) {
	profile, parent, share := cluster.CutPricedType(gpuType)
	if p, found := l.ownPrice(profile, at); found {
		return p, nil
	}
	if parent == "" {
		return 0, fmt.Errorf("%w for GPU type %s", ErrNoPrice, gpuType)
	}
	p, found := l.ownPrice(parent, at)
	if !found && profile == "" {
		return 0, fmt.Errorf("%w for GPU type %s", ErrNoPrice, parent)
	}
	if !found {
		return 0, fmt.Errorf("%w for GPU type %s, nor for %s, which it is a part of", ErrNoPrice, profile, parent)
	}
	return ofInstance(p, share), nil
}

// ownPrice returns the price that was set for a type.
func (l *Ledger) ownPrice(gpuType string, at cluster.Instant) (Credits, bool) {
	for k, p := range l.prices.From(priceKey{gpuType, -at}) {
		if k.gpuType != gpuType {
			break
		}
		return p, true
	}
	return 0, false
}

// ofInstance returns the price of a MIG instance with a share in a GPU of a price, rounded down.
func ofInstance(price Credits, share int64) Credits {
	return Credits(cluster.OfMIGShare(int64(price), share))
}

// pricedBy returns the types whose prices determine that of a GPU.
func pricedBy(gpuTypes []string) []string {
	var all []string
	for _, t := range gpuTypes {
		profile, parent, _ := cluster.CutPricedType(t)
		if all = append(all, profile); parent != "" {
			all = append(all, parent)
		}
	}
	return all
}

// QuoteRequest is the part of a job's request that determines its price.
type QuoteRequest struct {
	Accepts []string // GPU types, the requested one first
	GPUs    int64
	Millis  int64 // the time limit in milliseconds
}

// Quote holds the prices that a job will pay and its highest possible cost: the most expensive type
// that it accepts, for its whole time limit.
type Quote struct {
	Rates  []Rate // the requested type first
	Amount Credits
}

// Quote prices an order at an instant. A lien made with it keeps its prices.
func (l *Ledger) Quote(o QuoteRequest, at cluster.Instant) (Quote, error) {
	if len(o.Accepts) == 0 || o.GPUs < 1 || o.Millis < 1 {
		return Quote{}, fmt.Errorf("%w: an order needs GPU types, GPUs and a time", ErrInvalid)
	}
	var q Quote
	var dearest Credits
	for _, t := range o.Accepts {
		p, err := l.Price(t, at)
		if err != nil {
			return Quote{}, err
		}
		q.Rates = append(q.Rates, Rate{t, p})
		dearest = max(dearest, p)
	}
	if q.Amount = Cost(dearest, millis(o.GPUs, o.Millis)); q.Amount > MaxAmount {
		return Quote{}, fmt.Errorf("%w: it costs %s, more than %s", ErrAmount, q.Amount, MaxAmount)
	}
	return q, nil
}
