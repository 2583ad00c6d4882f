package burstsim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/pkg/cluster"
)

// newCloud returns a cloud that fails in many ways, as often as r says.
func newCloud(seed uint64, r *rand.Rand, begin cluster.Instant) *cloud.Cloud {
	reclaimEvery := float64(1 + r.IntN(20)) // mean hours
	offer := cluster.Offer{
		Name: "gpu8/zone-a", Market: cluster.OnDemand, Region: "west", Type: "gpu8", Price: 12_000_000, CPUs: 64, Memory: 512 * cluster.GiB,
		GPUs: 8, GPUType: "h100", GPUMemory: 80 * cluster.GiB, Boot: 3 * time.Minute,
	}
	spot := offer
	spot.Market, spot.Risk = cluster.Spot, int32((1-math.Exp(-1/reclaimEvery))*cluster.OneUnit)
	kinds := []cloud.Kind{
		{Offer: spot, BootMin: 30 * time.Second, NoCapacity: 0.3 * r.Float64(), Prices: spotPrices(r)},
		{Offer: offer, BootMin: 30 * time.Second},
	}
	c := cloud.New(kinds, seed, begin)
	c.Faults = cloud.Faults{
		Throttled: 0.1 * r.Float64(), LostAnswer: 0.3 * r.Float64(), NeverJoins: 0.2 * r.Float64(), EndFails: 0.2 * r.Float64(), NoNotice: 0.3,
		ShownAfter: time.Duration(r.Int64N(int64(2 * time.Minute))), EndsAfter: time.Minute,
	}
	return c
}

// priceEvery is how often the spot price changes.
const priceEvery = 10 * time.Minute

// spotPrices returns prices that change by up to a fifth at a time.
func spotPrices(r *rand.Rand) (list []cloud.Price) {
	price := int64(4_000_000)
	for at := time.Duration(0); at < runFor+drainFor; at += priceEvery {
		list = append(list, cloud.Price{After: at, Price: price})
		price = max(2_000_000, min(9_000_000, price*(80+r.Int64N(41))/100))
	}
	return list
}
