package leases

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// Check returns every invariant that does not hold. O(n).
func (x *Leases) Check() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	live, due, held := 0, 0, 0
	instances := map[string]cluster.LeaseID{}
	waiting := map[cluster.JobID]cluster.LeaseID{} // launch by job
	for id, l := range x.all.All() {
		x.checkLease(id, l, fault)
		if other, duplicate := instances[l.Instance]; duplicate && l.Instance != "" {
			fault("leases %d and %d have instance %s", other, id, l.Instance)
		}
		instances[l.Instance] = id
		if !l.Live() {
			continue
		}
		live++
		if l.Deadline > 0 {
			due++
		}
		if l.For != 0 {
			held++
			if launch, waits := waiting[l.For]; waits && launch != l.Launch {
				fault("launches %d and %d are for job %d", launch, l.Launch, l.For)
			}
			waiting[l.For] = l.Launch
		}
	}
	if x.live.Len() != live || x.due.Len() != due || x.held.Len() != held || x.gone.Len() != x.all.Len()-live || x.gone.Len() > maxGone {
		fault("%d leases: %d live, %d due, %d held, %d gone; want %d, %d and %d", x.all.Len(), x.live.Len(), x.due.Len(), x.held.Len(), x.gone.Len(), live, due, held)
	}
	for key, o := range x.offers.All() {
		if key != o.Key() || !validOffer(o) {
			fault("offer %s is not well formed", key.Name)
		}
	}
	for key, p := range x.pauses.All() {
		if key != p.Offer || p.Failures < 1 || p.Until < p.Since {
			fault("the pause of offer %s is not well formed: %+v", key.Name, *p)
		}
	}
	if o := x.Outcomes; o.Cancelled+o.Failed+o.Reclaimed > x.ended {
		fault("%d leases have ended: %+v", x.ended, o)
	}
	for key, amount := range x.spent.All() {
		if amount <= 0 || key.month != MonthOf(key.month) {
			fault("account %q spent %d %s in month %d", key.name, amount, key.currency, key.month)
		}
	}
	if x.refused.Len() > maxRefused || uint64(x.gone.Len()) > x.ended || x.ended >= uint64(x.next) && x.ended > 0 {
		fault("%d refusals; %d leases have ended, %d are kept, the next is %d", x.refused.Len(), x.ended, x.gone.Len(), x.next)
	}
	return append(faults, x.all.Check(), x.offers.Check(), x.pauses.Check(), x.spent.Check(), x.refused.Check())
}

// checkLease checks one lease.
func (x *Leases) checkLease(id cluster.LeaseID, l *cluster.Lease, fault func(string, ...any)) {
	requested := l.Try > 0 && !l.Token.IsZero() || l.Adopted
	switch {
	case id != l.ID || id == 0 || id >= x.next || l.Launch > id || id >= l.Launch+cluster.LeaseID(l.Nodes):
		fault("lease %d has ID %d, launch %d of %d, next is %d", id, l.ID, l.Launch, l.Nodes, x.next)
	case l.Reserved < 0 || l.Cost < 0 || (l.Reserved > 0) != l.Live() || l.Live() && l.Cost != 0:
		fault("lease %d is %s with %d committed and a cost of %d", id, l.State, l.Reserved, l.Cost)
	case (l.Instance == "") != (l.Launched == 0), (l.Launched == 0) != (l.Expires == 0), l.Instance != "" && !requested:
		fault("lease %d: instance %q, launched %d, expires %d, try %d", id, l.Instance, l.Launched, l.Expires, l.Try)
	case l.State == cluster.LeasePlanned && (l.Try > 0 || l.Instance != ""), l.State == cluster.LeaseRequested && (!requested || l.Instance != ""):
		fault("lease %d is %s: try %d, instance %q", id, l.State, l.Try, l.Instance)
	case l.State >= cluster.LeaseLaunched && l.State <= cluster.LeaseDraining && l.Instance == "":
		fault("lease %d is %s without an instance", id, l.State)
	case l.Usable() && l.Joined == 0, l.Joined > 0 && l.Launched == 0, l.For != 0 && l.State >= cluster.LeaseRunning:
		fault("lease %d is %s: joined %d, for job %d", id, l.State, l.Joined, l.For)
	case (l.Deadline > 0) != (l.State < cluster.LeaseTerminating), l.State == cluster.LeaseGone && (l.Ended == 0 || !l.NodeGone):
		fault("lease %d is %s: deadline %d, ended %d, its node is gone: %v", id, l.State, l.Deadline, l.Ended, l.NodeGone)
	}
	if x.live.Has(id) != l.Live() || x.gone.Has(dueLease{l.Since, id}) == l.Live() {
		fault("lease %d is %s: live %v", id, l.State, x.live.Has(id))
	}
	if l.Live() && (l.Deadline > 0 && !x.due.Has(dueLease{l.Deadline, id}) || l.For != 0 && !x.held.Has(heldLease{l.For, id})) {
		fault("lease %d is not listed as due at %d, or for job %d", id, l.Deadline, l.For)
	}
}
