// Package instances compares leases with the instances in the cloud, and returns the next actions.
//
// It decides from three values: the leases, the list of the cloud, and the instant. It never acts: package controller
// carries the actions out, records the results and asks again. It ends only instances with the tag of the cluster, which
// alone a provider lists.
package instances

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The times of leases.
const (
	// OrphanAfter is the age from which on an instance of the cluster that no lease explains is ended. It exceeds the time
	// in which clouds show new instances, and in which the answer to a request is recorded.
	OrphanAfter = 5 * time.Minute
	// RestoredWait replaces OrphanAfter after the state was restored from a backup: leases since the backup are unknown.
	RestoredWait = cluster.AdoptFor
	// AbsentAfter is for how long an instance must have been absent from the list of the cloud to count as ended.
	AbsentAfter = 5 * time.Minute
)

// Sets are the desired and the actual state. Instances must have been listed before Leases were read: then
// every listed instance of a request is known.
type Sets struct {
	Now       cluster.Instant
	Elapsed   time.Duration                // by a monotonic clock, which measures Absent
	Restored  cluster.Instant              // when the state was restored from a backup; 0: never
	Leases    []*cluster.Lease             // that are not GONE, by ID
	Instances []cluster.Instance           // by ID, no two with the same
	Requests  map[cluster.LeaseID]struct{} // launches whose request is in progress, or is to be repeated later: they are left alone
	// Absent is since which Elapsed an instance is absent, or an unknown one present, by ID; and a lease whose instance was not
	// seen yet. Compare updates it; a new leader begins with an empty one.
	Absent map[string]time.Duration
}

// Actions are what makes both states agree.
type Actions struct {
	Launches  [][]*cluster.Lease // each is one request, for all leases of a launch
	Terminate []string           // IDs of instances
	Console   []*cluster.Lease   // whose console output is still to be read
	Updates   []command.LeaseUpdate
	Orphans   int // instances without a lease
}

// Compare returns the actions for leases. It is a function of its argument, except that it updates sets.Absent.
// O(n log n).
func Compare(sets *Sets) Actions {
	c := comparison{Sets: sets, owned: map[string]bool{}, listed: map[string]*cluster.Instance{}, seen: map[string]bool{}}
	c.byLaunch = map[cluster.LeaseID][]*cluster.Instance{}
	for i := range sets.Instances {
		x := &sets.Instances[i]
		c.listed[x.ID] = x
		c.byLaunch[x.Launch] = append(c.byLaunch[x.Launch], x)
	}
	for _, l := range sets.Leases {
		if l.Instance != "" {
			c.owned[l.Instance] = true
		}
	}
	for _, launch := range launchesOf(sets.Leases) {
		c.launch(launch)
	}
	c.orphans()
	for key := range sets.Absent {
		if !c.seen[key] {
			delete(sets.Absent, key)
		}
	}
	return c.out
}

// launchesOf groups leases by launch.
func launchesOf(leases []*cluster.Lease) (groups [][]*cluster.Lease) {
	sorted := slices.SortedStableFunc(slices.Values(leases), func(a, b *cluster.Lease) int {
		return cmp.Or(cmp.Compare(a.Launch, b.Launch), cmp.Compare(a.ID, b.ID))
	})
	for i, l := range sorted {
		if i == 0 || l.Launch != sorted[i-1].Launch {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], l)
	}
	return groups
}

type comparison struct {
	*Sets
	out      Actions
	listed   map[string]*cluster.Instance
	byLaunch map[cluster.LeaseID][]*cluster.Instance
	owned    map[string]bool
	seen     map[string]bool // keys of Absent that still hold
}

// since returns for how long something holds: since it was found first.
func (c *comparison) since(key string) time.Duration {
	c.seen[key] = true
	if _, known := c.Absent[key]; !known {
		c.Absent[key] = c.Elapsed
	}
	return c.Elapsed - c.Absent[key]
}

// launch compares the leases of one launch.
func (c *comparison) launch(leases []*cluster.Lease) {
	if _, asks := c.Requests[leases[0].Launch]; asks {
		for _, x := range c.byLaunch[leases[0].Launch] {
			c.owned[x.ID] = true // its request explains it
		}
		return
	}
	var wanted, without []*cluster.Lease
	for _, l := range leases {
		switch {
		case l.Instance != "":
			c.instance(l)
		case l.State == cluster.LeasePlanned, l.State == cluster.LeaseRequested:
			wanted, without = append(wanted, l), append(without, l)
		default:
			without = append(without, l)
		}
	}
	if len(without) == 0 {
		return
	}
	found := c.unowned(leases[0].Launch, without[0].Try)
	for i, l := range without {
		if i < len(found) {
			c.started(l, found[i])
		}
	}
	switch {
	case len(found) >= len(without):
	case len(wanted) == len(without):
		c.out.Launches = append(c.out.Launches, wanted)
	default: // no longer wanted, and the request may have reached the cloud
		for _, l := range without[len(found):] {
			if c.since("lease/"+l.ID.NodeName()) >= AbsentAfter {
				c.out.Updates = append(c.out.Updates, command.LeaseUpdate{Lease: l.ID, Event: command.LeaseEnded, Cost: 0})
			}
		}
	}
}

// unowned returns the instances of a request that no lease has yet.
func (c *comparison) unowned(launch cluster.LeaseID, try uint32) (list []*cluster.Instance) {
	for _, x := range c.byLaunch[launch] {
		if x.Try == try && try > 0 && !c.owned[x.ID] {
			list = append(list, x)
		}
	}
	return list
}

// started assigns an instance to a lease.
func (c *comparison) started(l *cluster.Lease, x *cluster.Instance) {
	c.owned[x.ID] = true
	c.out.Updates = append(c.out.Updates, startedUpdate(l, x.Try, x))
}

// instance compares a lease with its instance.
func (c *comparison) instance(l *cluster.Lease) {
	x, listed := c.listed[l.Instance]
	switch {
	case !listed:
		if c.since("instance/"+l.Instance) >= AbsentAfter {
			c.out.Updates = append(c.out.Updates, command.LeaseUpdate{Lease: l.ID, Event: command.LeaseEnded, Cost: -1})
		}
	case x.Terminated:
		c.out.Updates = append(c.out.Updates, command.LeaseUpdate{Lease: l.ID, Event: command.LeaseEnded, Interrupted: x.Interrupted, Cost: x.Cost})
	default:
		if l.Adopted && l.Price == 0 && x.Price > 0 {
			c.out.Updates = append(c.out.Updates, startedUpdate(l, l.Try, x))
		}
		if x.Reclaim > 0 && l.Reclaim == 0 {
			c.out.Updates = append(c.out.Updates, command.LeaseUpdate{Lease: l.ID, Event: command.LeaseReclaimed, Reclaim: x.Reclaim})
		}
		if u, differs := mismatch(l, x); differs && l.State < cluster.LeaseTerminating && l.Reclaim == 0 {
			c.out.Updates = append(c.out.Updates, u)
		}
		if l.State == cluster.LeaseTerminating {
			if l.Joined == 0 && l.Console == "" && c.since("console/"+l.Instance) == 0 {
				c.out.Console = append(c.out.Console, l)
			}
			c.out.Terminate = append(c.out.Terminate, l.Instance)
		}
	}
}

// mismatch returns the event of a lease whose instance is not what was requested; false if it is.
func mismatch(l *cluster.Lease, x *cluster.Instance) (command.LeaseUpdate, bool) {
	u := command.LeaseUpdate{Lease: l.ID, Event: command.LeaseMismatched, Instance: x.ID}
	switch {
	case x.Type != "" && x.Type != l.Offer.Type:
		u.Why = fmt.Sprintf("its instance is of type %s, and %s was requested", x.Type, l.Offer.Type)
	case x.Price > l.MaxPrice:
		u.Price = x.Price
		u.Why = fmt.Sprintf("its price is %s an hour, above the %s of its request", cluster.FormatMoney(x.Price), cluster.FormatMoney(l.MaxPrice))
	default:
		return u, false
	}
	return u, true
}

// orphans ends the instances that no lease explains.
func (c *comparison) orphans() {
	wait := OrphanAfter
	if c.Restored > 0 && c.Now.Sub(c.Restored) < RestoredWait {
		wait = RestoredWait
	}
	for i := range c.Instances {
		x := &c.Instances[i]
		if c.owned[x.ID] || x.Terminated {
			continue
		}
		c.out.Orphans++
		age := c.since("orphan/" + x.ID)
		if x.Launched > 0 && x.Launched < c.Now && wait == OrphanAfter {
			age = max(age, c.Now.Sub(x.Launched))
		}
		if age >= wait {
			c.out.Terminate = append(c.out.Terminate, x.ID)
		}
	}
}

// Started assigns the instances of the answer to a request to the leases of its launch that have none. leases may be
// those of all launches.
func Started(leases []*cluster.Lease, of *cluster.Lease, instances []cluster.Instance) (list []command.LeaseUpdate) {
	var without []*cluster.Lease
	owned := map[string]bool{}
	for _, l := range leases {
		switch {
		case l.Launch != of.Launch:
		case l.Instance == "":
			without = append(without, l)
		default:
			owned[l.Instance] = true
		}
	}
	for i := range instances {
		if owned[instances[i].ID] || len(without) == 0 {
			continue
		}
		x := &instances[i]
		list = append(list, startedUpdate(without[0], of.Try, x))
		without = without[1:]
	}
	return list
}

func startedUpdate(l *cluster.Lease, try uint32, x *cluster.Instance) command.LeaseUpdate {
	return command.LeaseUpdate{
		Lease: l.ID, Event: command.LeaseStarted, Try: try, Instance: x.ID, Address: x.Address, Price: x.Price, At: x.Launched,
	}
}
