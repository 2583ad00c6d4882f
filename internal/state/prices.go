package state

import "github.com/greylag/greylag/pkg/cluster"

// prices is what an hour of each type of GPU costs now and will cost, by type, the latest
// first. O(prices that were ever set).
func (t *tables) prices() []cluster.Price {
	var all []cluster.Price
	now := ""                           // the type whose present price has been met
	for p := range t.credits.Prices() { // by type, the newest first
		if p.GPUType == now && len(all) > 0 {
			continue
		}
		all = append(all, cluster.Price{Type: p.GPUType, Hour: int64(p.Price), From: p.From})
		if p.From <= t.now {
			now = p.GPUType
		}
	}
	return all
}

// priceOf is what an hour of a GPU of a type costs now; 0 when nobody has said.
func (t *tables) priceOf(kind string) int64 {
	p, err := t.credits.Price(kind, t.now)
	if err != nil {
		return 0
	}
	return int64(p)
}
