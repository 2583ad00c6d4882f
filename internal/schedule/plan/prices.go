package plan

import "github.com/greylag/greylag/pkg/cluster"

// Filter returns the filter of a request's nodes at the prices of the snapshot.
func (r *Resources) Filter(q *cluster.Request) *cluster.NodeFilter {
	f := cluster.NewNodeFilter(q)
	f.Price = func(name string) int64 { return PriceOf(r.Prices, name) }
	return f
}

// PriceOf returns what an hour of a GPU costs by the name under which it is charged, from the prices of types.
func PriceOf(prices map[string]int64, name string) int64 {
	return cluster.PriceByType(func(gpuType string) (int64, bool) {
		price, found := prices[gpuType]
		return price, found
	}, name)
}

// PricesOf returns what an hour of a GPU costs at the snapshot's instant, by type.
func PricesOf(snap *cluster.Snapshot) map[string]int64 {
	prices := make(map[string]int64, len(snap.Prices))
	for _, p := range snap.Prices {
		if _, later := prices[p.Type]; !later && p.From <= snap.Now {
			prices[p.Type] = p.Hour
		}
	}
	return prices
}

// nextPriceChange returns the next instant at which a known price takes effect.
func nextPriceChange(snap *cluster.Snapshot) cluster.Instant {
	at := cluster.Never
	for _, p := range snap.Prices {
		if p.From > snap.Now {
			at = min(at, p.From)
		}
	}
	return at
}
