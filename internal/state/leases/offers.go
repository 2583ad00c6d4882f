package leases

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of offers.
const (
	maxOffers    = 10_000
	maxOfferName = 256                    // bytes of each text
	keptOffer    = 24 * time.Hour         // since the price of an offer that is no longer reported
	maxBoot      = 24 * time.Hour         // of an offer
	maxNodeBytes = cluster.Bytes(1) << 50 // memory of a node
	maxNodeGPUs  = 1024                   // GPUs of a node
	maxNodeCPUs  = 1 << 16                // CPUs of a node
	certain      = int32(1_000_000)       // a probability of 1, in millionths
)

// unlisted is the fault of an offer that the newest answer of the provider does not have.
const unlisted = "the provider no longer lists it"

// SetOffers replaces the offers. Those that are not reported are not used, and are shown for a day. An offer with a fault,
// such as a price of 0, is kept without a price: it is never used. One without a key is left out.
func (x *Leases) SetOffers(e *Env, c *command.SetOffers) {
	now := e.Now
	reported := make(map[cluster.OfferKey]struct{}, len(c.Offers))
	for i := range c.Offers {
		o := c.Offers[i]
		_, duplicate := reported[o.Key()]
		if duplicate || !validKey(&o) || len(reported) >= maxOffers {
			continue
		}
		if o = e.checkOffer(&o, c.Currency); o.Fault != "" {
			o.PricedAt = now
		}
		if o.PricedAt <= 0 || o.PricedAt > now {
			o.PricedAt = now
		}
		reported[o.Key()] = struct{}{}
		if old, known := x.offers.Get(o.Key()); !known || *old != o {
			x.offers.Set(o.Key(), &o)
		}
	}
	all := x.offers.Map.Clone()
	for key, o := range all.All() {
		switch _, is := reported[key]; {
		case is:
		case o.PricedAt.Add(keptOffer) <= now || x.offers.Len() > maxOffers:
			x.offers.Delete(key)
		case o.Fault == "":
			x.offers.Set(key, &cluster.Offer{Name: o.Name, Market: o.Market, Region: o.Region, Type: o.Type, PricedAt: o.PricedAt, Fault: unlisted})
		}
	}
}

// checkOffer returns an offer whose price is in a currency, or one with a fault that is never used.
func (e *Env) checkOffer(o *cluster.Offer, currency string) cluster.Offer {
	fault := o.Fault
	switch own := e.Policy.Burst.Currency; {
	case fault != "":
	case currency != "" && currency != own:
		fault = fmt.Sprintf("its price is in %s, and the currency of the policy is %s", currency, own)
	case o.Price <= 0 || o.Price > cluster.MaxOfferPrice:
		fault = fmt.Sprintf("a price of %s is out of range, above 0 to %s", cluster.FormatMoney(o.Price), cluster.FormatMoney(cluster.MaxOfferPrice))
	case !validOffer(o):
		fault = "a field is out of range"
	default:
		return *o
	}
	return cluster.Offer{Name: o.Name, Market: o.Market, Region: shortText(o.Region), Type: shortText(o.Type), Fault: shortText(fault)}
}

// shortText returns a text that is safe to display, of at most maxOfferName bytes.
func shortText(text string) string { return cluster.Sanitize(text, maxOfferName) }

// validKey reports whether an offer has a name and a market.
func validKey(o *cluster.Offer) bool {
	return o.Name != "" && len(o.Name) <= maxOfferName && o.Name == command.Sanitize(o.Name) && (o.Market == cluster.Spot || o.Market == cluster.OnDemand)
}

// DropOffers drops all offers: their prices are in another currency.
func (x *Leases) DropOffers() {
	all := x.offers.Map.Clone()
	for key := range all.All() {
		x.offers.Delete(key)
	}
}

// validOffer reports whether an offer is well formed: it may be used, or has a fault and no price.
func validOffer(o *cluster.Offer) bool {
	for _, text := range [...]string{o.Region, o.Type, o.GPUType, o.Fault} {
		if len(text) > maxOfferName || text != command.Sanitize(text) {
			return false
		}
	}
	if !validKey(o) || o.Fault != "" {
		return validKey(o) && o.Price == 0
	}
	return o.Price > 0 && o.Price <= cluster.MaxOfferPrice &&
		o.CPUs > 0 && o.CPUs <= maxNodeCPUs && o.Memory >= 0 && o.Memory <= maxNodeBytes && o.GPUs >= 0 && o.GPUs <= maxNodeGPUs &&
		o.GPUMemory >= 0 && o.GPUMemory <= maxNodeBytes && o.Boot >= 0 && o.Boot <= maxBoot && o.Risk >= 0 && o.Risk <= certain
}

// Failure is how a request for an offer, or its node, failed.
type Failure uint8

// The failures.
const (
	NoCapacity  Failure = iota // the cloud has none, or only at a higher price
	NotAllowed                 // the request is wrong, or exceeds what the cloud allows
	NeverJoined                // the instance exists, and its node does not join as offered
)

// The pauses after failures.
const (
	notAllowedPause = 30 * time.Minute
	breakerPause    = time.Hour // after breakerAt failures in a row, when the node does not join
	breakerAt       = 10
	pauseMemory     = time.Hour // after which a pause that is over no longer counts
)

var capacityPauses = [...]time.Duration{3 * time.Minute, 6 * time.Minute, 12 * time.Minute, 30 * time.Minute} // never written

// Pause keeps an offer from being used for a time after a failure. One that pauses already is left alone: several nodes of
// one launch count once.
func (x *Leases) Pause(now cluster.Instant, offer cluster.OfferKey, how Failure, why string) {
	p := cluster.OfferPause{Offer: offer, Since: now, Capacity: how == NoCapacity}
	if old, known := x.pauses.Get(offer); known {
		if old.Until > now {
			return
		}
		if p.Failures = old.Failures; old.Capacity == p.Capacity {
			p.Since = old.Since
		}
	}
	p.Failures++
	pause := capacityPauses[min(int(p.Failures), len(capacityPauses))-1]
	switch {
	case how == NotAllowed:
		pause = notAllowedPause
	case how == NeverJoined && p.Failures >= breakerAt:
		pause = breakerPause
	}
	p.Until, p.Why = now.Add(pause), command.Sanitize(why)
	x.pauses.Set(offer, &p)
}

// Resume ends the pause of an offer, since one of its nodes has joined.
func (x *Leases) Resume(offer cluster.OfferKey) { x.pauses.Delete(offer) }

// paused returns the pause of an offer that is not over.
func (x *Leases) paused(now cluster.Instant, offer cluster.OfferKey) (*cluster.OfferPause, bool) {
	p, known := x.pauses.Get(offer)
	return p, known && p.Until > now
}
