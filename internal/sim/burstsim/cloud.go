package burstsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// The failures of the simulated cloud.
var (
	errNoCapacity = errors.New("no capacity")
	errPrice      = errors.New("the price is above the maximum")
	errThrottled  = errors.New("too many requests")
)

// cloudFaults are the probabilities of its failures, and their times.
type cloudFaults struct {
	noCapacity, throttled, lostAnswer, neverJoins, small, endFails float64
	shownAfter                                                     time.Duration // at most
	boot                                                           time.Duration // mean
	reclaimEvery                                                   time.Duration // mean, of one instance
	noNotice                                                       float64       // part of the reclaims
}

// cloud is the simulated cloud.
type cloud struct {
	faults cloudFaults
	r      *rand.Rand
	price  [cluster.OnDemand + 1]int64 // of an hour, by market
	tokens map[string][]*instance
	all    []*instance
}

// instance is one instance.
type instance struct {
	cluster.Instance
	node    string // once it has joined
	market  cluster.Market
	shown   cluster.Instant // from then on it is listed
	expires cluster.Instant // it powers itself off
	ended   cluster.Instant // 0: it exists
	machine *machine
}

// offers returns the present prices.
func (c *cloud) offers(now cluster.Instant) (list []cluster.Offer) {
	for _, m := range []cluster.Market{cluster.Spot, cluster.OnDemand} {
		list = append(list, cluster.Offer{
			Name: "gpu8/zone-a", Market: m, Region: "west", Type: "gpu8", Price: c.price[m], PricedAt: now, CPUs: 64, Memory: 512 * cluster.GiB,
			GPUs: 8, GPUType: "h100", GPUMemory: 80 * cluster.GiB, Boot: 3 * time.Minute, Risk: 50_000,
		})
	}
	return list
}

// drift changes the spot price by up to a fifth.
func (c *cloud) drift() {
	c.price[cluster.Spot] = max(2_000_000, min(9_000_000, c.price[cluster.Spot]*(80+c.r.Int64N(41))/100))
}

// launch starts instances. lost means that the answer is lost, whether or not there are instances.
func (c *cloud) launch(now cluster.Instant, l *cluster.Lease) (list []*instance, lost bool, err error) {
	token := l.ClientToken("simulated")
	lost = faults.Yes(c.r, c.faults.lostAnswer)
	if known := c.tokens[token]; known != nil {
		return known, lost, nil
	}
	switch {
	case faults.Yes(c.r, c.faults.throttled):
		return nil, lost, errThrottled
	case l.Offer.Market == cluster.Spot && faults.Yes(c.r, c.faults.noCapacity):
		return nil, lost, errNoCapacity
	case c.price[l.Offer.Market] > l.MaxPrice:
		return nil, lost, errPrice
	}
	for range l.Nodes {
		x := &instance{Instance: cluster.Instance{
			ID: fmt.Sprintf("i-%06d", len(c.all)+1), Launch: l.Launch, Try: l.Try, Address: "192.0.2.1", Price: c.price[l.Offer.Market], Launched: now, Cost: -1,
		}, market: l.Offer.Market, expires: now.Add(l.Lifetime)}
		x.shown = now.Add(time.Duration(c.r.Int64N(int64(c.faults.shownAfter) + 1)))
		c.all, list = append(c.all, x), append(list, x)
	}
	c.tokens[token] = list
	return list, lost, nil
}

// list returns the instances that are shown, by ID. Those that ended an hour ago are not.
func (c *cloud) list(now cluster.Instant) (list []cluster.Instance) {
	for _, x := range c.all {
		if x.shown > now || x.ended > 0 && now.Sub(x.ended) > time.Hour {
			continue
		}
		list = append(list, x.Instance)
	}
	return list
}

// find returns an instance.
func (c *cloud) find(id string) *instance {
	i := slices.IndexFunc(c.all, func(x *instance) bool { return x.ID == id })
	return c.all[i]
}
