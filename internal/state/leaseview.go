package state

import (
	"iter"
	"slices"

	"github.com/greylag/greylag/internal/state/leases"
	"github.com/greylag/greylag/pkg/cluster"
)

// Leases yields the leases by ID: all that are not GONE, and the newest that are.
func (v *View) Leases() iter.Seq[*cluster.Lease] { return v.leases.All() }

// Lease finds a lease of those that Leases yields. O(log n).
func (v *View) Lease(id cluster.LeaseID) (*cluster.Lease, bool) { return v.leases.Get(id) }

// LeaseWork lists the leases whose instances exist or may come into existence, by ID. O(leases).
func (v *View) LeaseWork() []*cluster.Lease { return slices.Collect(v.leases.Live()) }

// LeaseByToken finds the lease of an instance that has the join token of its launch, by the hash of the token; nil if no
// instance of that name is known yet. known reports whether a launch has that token. O(leases).
func (v *View) LeaseByToken(hash cluster.Digest, instance string) (l *cluster.Lease, known bool) {
	l, launch := v.leases.ByToken(hash, instance)
	return l, launch != nil
}

// EndedLeases returns the number of leases that have ended since the cluster began: the number of the newest in the archive.
func (v *View) EndedLeases() uint64 { return v.leases.Ended() }

// LeaseOutcomes returns how leases have ended since the cluster began.
func (v *View) LeaseOutcomes() leases.Outcomes { return v.leases.Outcomes }

// Offers yields the offers of the cloud by name and market, also those that are never used.
func (v *View) Offers() iter.Seq[*cluster.Offer] { return v.leases.AllOffers() }

// Pauses yields the pauses of offers, also those that are over, by offer.
func (v *View) Pauses() iter.Seq[*cluster.OfferPause] { return v.leases.Pauses() }

// Spend returns what leases of the month of an instant cost, by account; "" is the cluster. O(leases + accounts).
func (v *View) Spend(month cluster.Instant) []leases.Spend {
	return v.leases.SpendOf(v.leaseEnv(), month)
}

// checkLeases checks the leases, and that nodes and jobs agree with them.
func (x *checking) checkLeases() {
	x.faults = append(x.faults, x.State.leases.Check()...)
	for name, n := range x.State.nodes.All() {
		id, leased := cluster.LeaseOf(name)
		l, known := x.State.leases.Get(id)
		want := *n
		if !leased {
			rent(&want, nil)
		} else if known {
			rent(&want, l)
		}
		if leased && (!known || !l.Live() || l.State < cluster.LeaseLaunched) || want.Rental != n.Rental || want.Market != n.Market || want.Region != n.Region || want.Reclaim != n.Reclaim {
			x.fault("node %s does not agree with its lease: %+v", name, n.Rental)
		}
		if known && leased && l.State >= cluster.LeaseDraining && !n.Drain {
			x.fault("node %s takes jobs, and its lease is %s", name, l.State)
		}
		u, _ := x.State.uses.Get(name)
		if known && leased && l.Usable() && (u.Jobs > 0) == (l.IdleSince > 0) {
			x.fault("node %s has %d jobs, and its lease is idle since %d", name, u.Jobs, l.IdleSince)
		}
	}
	for l := range x.State.leases.Live() {
		if j, waits := x.pending.Get(l.For); l.For != 0 && (!waits || j.Hold != cluster.NotHeld) {
			x.fault("lease %d is for job %d, which does not wait", l.ID, l.For)
		}
	}
}
