package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LeaseID numbers leases: it never returns in a cluster.
type LeaseID uint64

// NodeName returns the name of the node of the lease.
func (id LeaseID) NodeName() string { return fmt.Sprintf("%s%d", LeasedPrefix, id) }

// IsLeased reports whether a node name is that of a leased node.
func IsLeased(node string) bool {
	_, leased := LeaseOf(node)
	return leased
}

// LeaseState is the state of a leased node.
type LeaseState uint8

// The states. A lease only moves forward; it may skip states.
const (
	LeasePlanned     LeaseState = iota + 1 // decided and paid for; no request was sent
	LeaseRequested                         // a request may have reached the cloud
	LeaseLaunched                          // the cloud has the instance
	LeaseJoined                            // its node has registered, and has had no job yet
	LeaseRunning                           // its node has had a job
	LeaseDraining                          // its node takes no new jobs: it ends when the last one has ended
	LeaseTerminating                       // the instance is to end
	LeaseGone                              // the cloud has confirmed that there is no instance
)

var leaseStateNames = [...]string{
	LeasePlanned: "PLANNED", LeaseRequested: "REQUESTED", LeaseLaunched: "LAUNCHED", LeaseJoined: "JOINED", LeaseRunning: "RUNNING",
	LeaseDraining: "DRAINING", LeaseTerminating: "TERMINATING", LeaseGone: "GONE",
}

// String is the state's name as users read it.
func (s LeaseState) String() string {
	if s == 0 || int(s) >= len(leaseStateNames) {
		return "?"
	}
	return leaseStateNames[s]
}

// Lease is one rented node. A Lease is replaced, never changed in place. Money is in millionths of its
// Currency.
type Lease struct {
	ID      LeaseID
	Launch  LeaseID // the first of the leases that one request is for; its own ID if it is the first
	Nodes   int32   // leases of the launch
	Job     JobID   // the job that it was leased for
	Attempt Attempt
	Account string // that pays, and whose jobs may use the node
	Offer   Offer  // as it was at the decision
	State   LeaseState
	Since   Instant // of the state
	Created Instant
	// Deadline is when the state ends at the latest: a request that is not answered, a node that does not join, a job
	// that does not end, an instance that does not terminate. 0: none.
	Deadline Instant
	Try      uint32 // requests for the launch: each has a client token of its own; it grows only after a confirmed failure
	// For is the pending job that only may use the node; 0 once it has started or no longer needs the node.
	For       JobID
	IdleSince Instant // since when its node has had no job; 0 while it has one, or has not joined
	MaxPrice  int64   // of an hour: the cloud refuses a higher one
	Price     int64   // of an hour, as the cloud has confirmed; 0 before that
	Lifetime  time.Duration
	Expires   Instant // the instance ends then at the latest: Launched plus Lifetime; 0 before that
	Reserved  int64   // committed for it; 0 once it is Gone
	Cost      int64   // once it is Gone
	Month     Instant // start of the month (UTC) whose budgets it counts in: that of the decision
	Currency  string  // of all its amounts: that of the policy at the decision

	Instance string // instance ID; "" before it is launched
	Address  string
	Launched Instant // when the request that succeeded was sent
	Joined   Instant
	Ended    Instant // when the cloud no longer had the instance
	// Reclaim is the deadline of the cloud's notice that it takes the instance back; 0 without one.
	Reclaim     Instant
	Interrupted bool   // the cloud took the instance back
	Why         string // why it ended or ends, or what its last request failed with
	Console     string // the end of the console output of an instance that never joined; at most MaxConsole bytes
	Token       Digest // hash of the join token of the launch
	NodeGone    bool   // its node is no longer registered
	Mismatch    bool   // it ends since its instance was not what was requested
	// Adopted says that a restore from a backup lost the lease: it was made when its node registered, and only drains.
	Adopted bool
}

// AdoptFor is for how long after a restore from a backup nodes of unknown leases are adopted, and for how long such a
// lease lasts at most.
const AdoptFor = time.Hour

// EndedLease is a lease whose instance no longer exists, as it is archived.
type EndedLease struct {
	// Seq numbers ended leases 1, 2, 3, ... in the order in which they became GONE, equal on every controller.
	Seq       uint64
	Partition string // of the node, when the lease ended; "" if no partition had leased nodes
	Lease     Lease  // without its Token and Console; Since is when it became GONE
}

// MaxConsole bounds the console output that is kept of an instance, in bytes.
const MaxConsole = 4 << 10

// Live reports whether the instance exists or may come into existence.
func (l *Lease) Live() bool { return l.State != LeaseGone }

// Reclaimed reports whether the cloud took the instance back, or gave notice of it.
func (l *Lease) Reclaimed() bool { return l.Interrupted || l.Reclaim > 0 && !l.Mismatch }

// Usable reports whether the node of the lease takes new jobs.
func (l *Lease) Usable() bool { return l.State == LeaseJoined || l.State == LeaseRunning }

// ClientToken returns the token by which the cloud recognizes a repeated request of a launch: at most 64 ASCII characters.
func (l *Lease) ClientToken(clusterID string) string {
	const most, hashed = 64, 20
	token := fmt.Sprintf("greylag-%s-%d-%d", clusterID, l.Launch, l.Try)
	if len(token) > most {
		sum := sha256.Sum256([]byte(token))
		return "greylag-" + hex.EncodeToString(sum[:hashed])
	}
	return token
}

// LeaseRefusal says why a job may not use the node, if that is a leased one; "" if it may. spot says whether the job's QOS
// allows spot nodes, and regions are those of the policy; none for all. A node of the site refuses no job.
func (n *Node) LeaseRefusal(id JobID, spec *JobSpec, spot bool, regions []string) string {
	r := &n.Rental
	switch {
	case r.Lease == 0:
		return ""
	case r.For != 0 && r.For != id:
		return "leased for another job"
	case r.Account != spec.Account:
		return "leased for another account"
	case n.Market == Spot && !spot:
		return "a spot node, not allowed by the QOS"
	case spec.Burst.Market != AnyMarket && spec.Burst.Market != n.Market:
		return "not in --burst-market"
	case len(spec.Burst.Regions) > 0 && !slices.Contains(spec.Burst.Regions, n.Region):
		return "not in --burst-regions"
	case len(regions) > 0 && !slices.Contains(regions, n.Region):
		return "in a region not allowed by burst.regions"
	}
	return ""
}

// Rental is what a node has from its lease, for the scheduler. The zero value is that of a node of the site.
type Rental struct {
	Lease   LeaseID
	Account string
	For     JobID   // the only job that may use it; 0: all jobs of the account that may burst
	Until   Instant // no job may run on it from then on
}

// LeaseOf returns the lease of a node by its name; false for a name that is not that of a leased node.
func LeaseOf(node string) (LeaseID, bool) {
	digits, leased := strings.CutPrefix(node, LeasedPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	id := LeaseID(n)
	return id, leased && err == nil && id.NodeName() == node
}
