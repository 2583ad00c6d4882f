package burst

import (
	"math"
	"math/bits"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// maxPrice is the highest price of an hour that decides, in millionths: a higher one is a mistake.
	maxPrice = cluster.MaxOfferPrice
	// maxNodes and maxLifetime bound one launch.
	maxNodes    = 10_000
	maxLifetime = 366 * 24 * time.Hour
	// spotMargin is the percentage of the present price that is offered for a spot node: spot prices move.
	spotMargin = 120
)

// highestPrice returns the price of an hour that a request for an offer contains.
func highestPrice(o *cluster.Offer) int64 {
	if o.Market != cluster.Spot {
		return o.Price
	}
	p, _ := mulDivUp(uint64(o.Price), spotMargin, 100)
	return int64(p)
}

// WorstCost returns the worst-case cost of nodes that are leased for some time at the price of an hour, with the risk of
// an interruption within an hour in millionths; false if it exceeds all budgets. Each step rounds up.
func WorstCost(nodes int32, lifetime time.Duration, price int64, risk int32) (int64, bool) {
	if nodes <= 0 || nodes > maxNodes || lifetime <= 0 || lifetime > maxLifetime || price <= 0 || price > 2*maxPrice || risk < 0 {
		return 0, false
	}
	seconds := uint64((lifetime + time.Second - 1) / time.Second)
	each, _ := mulDivUp(seconds, uint64(price), 3600) // the bounds of all four keep the products within 64 bits
	more, _ := mulDivUp(uint64(risk), seconds, 3600)
	each, ok := mulDivUp(each, cluster.OneUnit+more, cluster.OneUnit)
	cost, fits := mulDivUp(each, uint64(nodes), 1)
	if !ok || !fits || cost > cluster.MaxMoney {
		return 0, false
	}
	return int64(cost), true
}

// valueOf returns what saved time is worth at a value of an hour, rounded down; at most [math.MaxInt64].
func valueOf(hourly int64, saved time.Duration) int64 {
	if hourly <= 0 || saved <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(hourly), uint64(saved))
	if high >= uint64(time.Hour) {
		return math.MaxInt64
	}
	v, _ := bits.Div64(high, low, uint64(time.Hour))
	return int64(min(v, math.MaxInt64))
}

// hourlyValue returns what an hour less of waiting is worth for a job with GPUs; at most [math.MaxInt64].
func hourlyValue(each int64, gpus int32) int64 {
	high, low := bits.Mul64(uint64(max(each, 0)), uint64(max(gpus, 1)))
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// timeWorth returns how much time has to be saved so that it is worth a cost; [math.MaxInt64] if no time is.
func timeWorth(cost, hourly int64) time.Duration {
	if hourly <= 0 {
		return math.MaxInt64
	}
	d, ok := mulDivUp(uint64(cost), uint64(time.Hour), uint64(hourly))
	if !ok || d > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

// mulDivUp returns a times b divided by c, rounded up; false if that is too large.
func mulDivUp(a, b, c uint64) (uint64, bool) {
	high, low := bits.Mul64(a, b)
	low, over := bits.Add64(low, c-1, 0)
	if high += over; high >= c {
		return 0, false
	}
	q, _ := bits.Div64(high, low, c)
	return q, true
}
