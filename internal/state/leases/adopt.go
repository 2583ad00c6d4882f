package leases

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// adoptedOffer is the name of the unknown offer of an adopted lease.
const adoptedOffer = "unknown"

// leastReserved is committed for a live lease whose price is not known yet.
const leastReserved = 1

// Adopt returns the lease of a node that registers with a name of the time that a restore from a backup lost: its node
// drains, and ends with its tasks. nil if the state was not restored of late, or the name or the instance cannot be of that
// time. Nothing is known of its job, its account and its price: the cost counts for the cluster.
func (x *Leases) Adopt(e *Env, restored cluster.Instant, n *cluster.Node, instance string) *cluster.Lease {
	id, leased := cluster.LeaseOf(n.Name)
	_, known := x.Get(id)
	if !leased || known || restored == 0 || e.Now.Sub(restored) >= cluster.AdoptFor || id >= x.next || !validInstance(instance) || x.hasInstance(instance) {
		return nil
	}
	l := &cluster.Lease{
		ID: id, Launch: id, Nodes: 1, Created: e.Now, Adopted: true, Instance: instance, Launched: e.Now, Joined: e.Now, Month: MonthOf(e.Now),
		Lifetime: cluster.AdoptFor, Expires: e.Now.Add(cluster.AdoptFor), Reserved: leastReserved, Currency: e.Policy.Burst.Currency,
		Offer: cluster.Offer{Name: adoptedOffer, Region: n.Region, CPUs: n.CPUs, Memory: n.Memory, GPUs: int32(len(n.GPUs))},
	}
	return e.moved(l, cluster.LeaseDraining, "adopted: a restore from a backup lost the lease")
}

// priced returns an adopted lease with what the cloud says of its instance; nil if it says no price.
func (e *Env) priced(l *cluster.Lease, u *command.LeaseUpdate) *cluster.Lease {
	if u.Price <= 0 {
		return nil
	}
	n := *l
	n.Price = min(u.Price, cluster.MaxOfferPrice)
	n.MaxPrice, n.Address = n.Price, command.Sanitize(u.Address)
	if u.At > 0 && u.At < l.Launched {
		n.Launched = max(u.At, l.Launched.Add(-maxLifetime+2*cluster.AdoptFor))
	}
	n.Lifetime = n.Expires.Sub(n.Launched)
	n.Reserved = max(leastReserved, Amount(n.Price, n.Lifetime))
	return &n
}
