package cloud

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// Errors of a request.
var (
	ErrNoCapacity = errors.New("no capacity")
	ErrPrice      = errors.New("the price is above the maximum")
	ErrNoKind     = errors.New("no such kind of node")
	ErrThrottled  = errors.New("too many requests")
	ErrNoAnswer   = errors.New("the answer is lost")
)

// Faults are probabilities of further failures, and delays. The zero value has none.
type Faults struct {
	Throttled  float64       // a request is refused for now
	LostAnswer float64       // the answer to a request is lost, whether or not that made instances
	NeverJoins float64       // the node of an instance does not join
	EndFails   float64       // a request to end an instance fails
	NoNotice   float64       // an instance that is taken back ends without notice
	ShownAfter time.Duration // most time until a new instance is listed
	EndsAfter  time.Duration // most time until an instance ends after a request
}

// listedFor is for how long an instance is listed after its end.
const listedFor = time.Hour

// Notice is how long before it takes a node back the cloud says so.
const Notice = 2 * time.Minute

// Kind is one kind of node in one market, and how the cloud behaves for it.
type Kind struct {
	Offer      cluster.Offer // Boot is the longest time until a node has joined, and Risk the probability of a reclaim within an hour
	BootMin    time.Duration // the shortest; equally likely up to Offer.Boot
	NoCapacity float64       // probability that a request fails
	Prices     []Price       // from the begin on, in order; empty: that of Offer. The list repeats.
}

// Price is a price of an hour from a time on, since the first price of the list.
type Price struct {
	After time.Duration
	Price int64 // in millionths of the currency
}

// Instance is an instance, and what will become of it.
type Instance struct {
	cluster.Instance
	Kind    *Kind
	Shown   cluster.Instant // it is listed from then on
	Joins   cluster.Instant // its node is ready to register; [cluster.Never] if it does not join
	Notice  cluster.Instant // the cloud says that it takes it back; [cluster.Never] if it does not
	Sudden  bool            // it ends at Notice
	Expires cluster.Instant // it powers itself off
	Ended   cluster.Instant // 0: it exists
}

// request identifies a request, which may be repeated.
type request struct {
	launch cluster.LeaseID
	try    uint32
}

// Cloud is the cloud of one simulation. It has one user.
type Cloud struct {
	Faults  Faults
	Created func(*Instance) // called with each new instance

	kinds  []Kind
	begin  cluster.Instant
	r      *rand.Rand
	made   int
	tokens map[request][]*Instance
	known  map[string]*Instance // by ID; without those that were forgotten
}

// New returns a cloud at its first instant.
func New(kinds []Kind, seed uint64, begin cluster.Instant) *Cloud {
	return &Cloud{kinds: kinds, begin: begin, r: rand.New(rand.NewPCG(seed, stream)), tokens: map[request][]*Instance{}, known: map[string]*Instance{}, Created: func(*Instance) {}}
}

// stream distinguishes the random numbers of the cloud from others under the same seed.
const stream = 0xc1

// price returns the price of a kind at an instant, and the instant of its next change.
func (c *Cloud) price(k *Kind, now cluster.Instant) (int64, cluster.Instant) {
	if len(k.Prices) == 0 {
		return k.Offer.Price, cluster.Never
	}
	last := k.Prices[len(k.Prices)-1].After
	period := last + last/time.Duration(len(k.Prices)) + time.Second // the last price holds as long as others do
	passed := now.Sub(c.begin)
	round := passed / period
	at, found := slices.BinarySearchFunc(k.Prices, passed%period, func(p Price, d time.Duration) int { return int(p.After - d) })
	if !found {
		at--
	}
	next := period
	if at+1 < len(k.Prices) {
		next = k.Prices[at+1].After
	}
	return k.Prices[max(at, 0)].Price, c.begin.Add(round*period + next)
}

// Offers returns the offers at an instant, and the instant of the next change of a price.
func (c *Cloud) Offers(now cluster.Instant) (list []cluster.Offer, change cluster.Instant) {
	change = cluster.Never
	for i := range c.kinds {
		o := c.kinds[i].Offer
		next := cluster.Never
		o.Price, next = c.price(&c.kinds[i], now)
		o.PricedAt = now
		list, change = append(list, o), min(change, next)
	}
	return list, change
}

// Launch starts the instances of the launch of a lease; all or none. A repeated request returns the same.
func (c *Cloud) Launch(now cluster.Instant, l *cluster.Lease) ([]*Instance, error) {
	list, err := c.launch(now, l)
	if faults.Yes(c.r, c.Faults.LostAnswer) {
		return nil, ErrNoAnswer
	}
	return list, err
}

func (c *Cloud) launch(now cluster.Instant, l *cluster.Lease) ([]*Instance, error) {
	token := request{l.Launch, l.Try}
	if list := c.tokens[token]; list != nil {
		return list, nil
	}
	k := c.kind(l.Offer.Key())
	if k == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoKind, l.Offer.Name)
	}
	if faults.Yes(c.r, c.Faults.Throttled) {
		return nil, ErrThrottled
	}
	if c.r.Float64() < k.NoCapacity {
		return nil, fmt.Errorf("%w of %s", ErrNoCapacity, l.Offer.Name)
	}
	price, _ := c.price(k, now)
	if price > l.MaxPrice {
		return nil, fmt.Errorf("%w: %s costs %s", ErrPrice, l.Offer.Name, cluster.FormatMoney(price))
	}
	var list []*Instance
	for range l.Nodes {
		c.made++
		x := &Instance{Kind: k, Shown: now, Expires: now.Add(l.Lifetime), Notice: cluster.Never}
		x.Instance = cluster.Instance{
			ID: fmt.Sprintf("i-%08d", c.made), Launch: l.Launch, Try: l.Try, Type: k.Offer.Type, Price: price, Launched: now, Cost: -1,
		}
		x.Joins = now.Add(k.BootMin + time.Duration(c.r.Float64()*float64(k.Offer.Boot-k.BootMin)))
		c.doom(x, now)
		if faults.Yes(c.r, c.Faults.NeverJoins) {
			x.Joins = cluster.Never
		}
		if d := c.Faults.ShownAfter; d > 0 {
			x.Shown = now.Add(time.Duration(c.r.Int64N(int64(d))))
		}
		c.known[x.ID], list = x, append(list, x)
		c.Created(x)
	}
	c.tokens[token] = list
	return list, nil
}

// doom draws when an instance is taken back.
func (c *Cloud) doom(x *Instance, from cluster.Instant) {
	if risk := float64(x.Kind.Offer.Risk) / cluster.OneUnit; x.Kind.Offer.Market == cluster.Spot && risk > 0 {
		hours := math.Log(1-c.r.Float64()) / math.Log(1-min(risk, 0.999_999))
		x.Notice = from.Add(time.Duration(min(hours, maxHours) * float64(time.Hour)))
		x.Sudden = faults.Yes(c.r, c.Faults.NoNotice)
	}
}

// maxHours bounds the life of an instance, so that an instant of its end exists.
const maxHours = 100_000

// Adopt adds the instance of a lease that began before the simulation.
func (c *Cloud) Adopt(now cluster.Instant, l *cluster.Lease) *Instance {
	k := c.kind(l.Offer.Key())
	if k == nil {
		k = &Kind{Offer: l.Offer, BootMin: l.Offer.Boot}
	}
	x := &Instance{Kind: k, Joins: max(now, l.Launched.Add(k.Offer.Boot)), Expires: l.Expires, Notice: cluster.Never}
	x.Instance = cluster.Instance{ID: l.Instance, Launch: l.Launch, Try: l.Try, Type: l.Offer.Type, Price: l.Price, Launched: l.Launched, Reclaim: l.Reclaim, Cost: -1}
	if c.doom(x, now); l.Reclaim > 0 {
		x.Notice = max(now, l.Reclaim.Add(-Notice))
	}
	c.known[x.ID] = x
	return x
}

func (c *Cloud) kind(key cluster.OfferKey) *Kind {
	i := slices.IndexFunc(c.kinds, func(k Kind) bool { return k.Offer.Key() == key })
	if i < 0 {
		return nil
	}
	return &c.kinds[i]
}

// Terminate requests the end of an instance, and returns when it ends; false if the request fails.
func (c *Cloud) Terminate(now cluster.Instant) (cluster.Instant, bool) {
	if faults.Yes(c.r, c.Faults.EndFails) {
		return 0, false
	}
	if d := c.Faults.EndsAfter; d > 0 {
		now = now.Add(time.Duration(c.r.Int64N(int64(d))))
	}
	return now, true
}

// End ends an instance, at the request of its user or because the cloud takes it back.
func (c *Cloud) End(now cluster.Instant, x *Instance, interrupted bool) {
	if x.Ended == 0 {
		x.Ended, x.Terminated, x.Interrupted = now, true, interrupted
	}
}

// Find finds an instance by ID; nil if it does not exist or was forgotten.
func (c *Cloud) Find(id string) *Instance { return c.known[id] }

// All returns the instances by ID: those that exist, and those that have ended and were not forgotten.
func (c *Cloud) All() []*Instance {
	return slices.SortedFunc(maps.Values(c.known), func(a, b *Instance) int { return strings.Compare(a.ID, b.ID) })
}

// List returns the instances that the cloud lists at an instant, by ID.
func (c *Cloud) List(now cluster.Instant) []cluster.Instance {
	list := make([]cluster.Instance, 0, len(c.known))
	for _, x := range c.All() {
		if x.Shown <= now && (x.Ended == 0 || now.Sub(x.Ended) <= listedFor) {
			list = append(list, x.Instance)
		}
	}
	return list
}

// Forget forgets an instance that has ended, and the request that made it.
func (c *Cloud) Forget(x *Instance) {
	delete(c.known, x.ID)
	delete(c.tokens, request{x.Launch, x.Try})
}

// Live returns the number of instances that exist.
func (c *Cloud) Live() (n int) {
	for _, x := range c.known {
		if x.Ended == 0 {
			n++
		}
	}
	return n
}

// Hours returns for how long an instance has existed until an instant.
func (x *Instance) Hours(until cluster.Instant) float64 {
	if x.Ended > 0 {
		until = min(until, x.Ended)
	}
	return until.Sub(x.Launched).Hours()
}
