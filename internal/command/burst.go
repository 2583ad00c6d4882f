package command

import (
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// SetOffers replaces the offers of the cloud. Those that the provider did not report this time keep their last price and
// its instant, unless they are older than a day.
type SetOffers struct {
	Offers   []cluster.Offer
	Currency string // of the prices; "" for that of the policy
}

// LeaseEvent is what the leader knows of a lease.
type LeaseEvent uint8

// The events.
const (
	// LaunchRequested: a request for the whole launch is sent next, under the number Try.
	LaunchRequested LeaseEvent = iota + 1
	// LaunchDelayed: the request got no answer, or one that says to repeat it. The same Try is repeated.
	LaunchDelayed
	// LaunchFailed: the cloud has confirmed that the request of that Try made no instance.
	LaunchFailed
	// LeaseStarted: the cloud has the instance.
	LeaseStarted
	// LeaseReclaimed: the cloud takes the instance back at Reclaim.
	LeaseReclaimed
	// LeaseEnded: the cloud no longer has the instance.
	LeaseEnded
	// LeaseConsole: Console is the end of the instance's console output.
	LeaseConsole
	// LeaseMismatched: the instance is not what was requested, as Why says. Price is its price, if that is above the highest.
	LeaseMismatched
)

// LeaseUpdate is one event of a lease, or of all leases of a launch where Lease is their launch. An update that does
// not fit the state of its lease changes nothing.
type LeaseUpdate struct {
	Lease       cluster.LeaseID
	Event       LeaseEvent
	Try         uint32
	Token       cluster.Digest // of LaunchRequested: hash of the join token
	Instance    string
	Address     string
	Price       int64           // of an hour, in millionths of the currency
	At          cluster.Instant // of the event; 0: now
	Capacity    bool            // of LaunchFailed: the cloud has none; else the request is wrong or not allowed
	Reclaim     cluster.Instant
	Interrupted bool  // of LeaseEnded: the cloud took the instance back
	Cost        int64 // of LeaseEnded, as the cloud says; -1: price times duration
	Why         string
	Console     string
}

// UpdateLeases reports events of leases.
type UpdateLeases struct {
	Updates []LeaseUpdate
}

// EndLeases ends leases at an operator's request: their nodes drain, or end at once with Now.
type EndLeases struct {
	Request RequestID
	Actor   Actor
	Leases  []cluster.LeaseID
	Now     bool
	Why     string
}

func (*SetOffers) kind() kind    { return kindSetOffers }
func (*UpdateLeases) kind() kind { return kindUpdateLeases }
func (*EndLeases) kind() kind    { return kindEndLeases }

func setOffersFields(c *codec.Coder, x *SetOffers) {
	codec.List(c, &x.Offers, offer)
	codec.String(c, &x.Currency)
}

func offer(c *codec.Coder, x *cluster.Offer) { codec.Record(c, x, OfferFields) }

// OfferFields codes an offer.
func OfferFields(c *codec.Coder, x *cluster.Offer) {
	codec.String(c, &x.Name)
	codec.Uint(c, &x.Market)
	codec.String(c, &x.Region)
	codec.String(c, &x.Type)
	codec.Int(c, &x.Price)
	codec.Int(c, &x.PricedAt)
	codec.Int(c, &x.CPUs)
	codec.Int(c, &x.Memory)
	codec.Int(c, &x.GPUs)
	codec.String(c, &x.GPUType)
	codec.Int(c, &x.GPUMemory)
	codec.Int(c, &x.Boot)
	codec.Int(c, &x.Risk)
	codec.String(c, &x.Fault)
}

// OfferKeyFields codes the key of an offer.
func OfferKeyFields(c *codec.Coder, x *cluster.OfferKey) {
	codec.String(c, &x.Name)
	codec.Uint(c, &x.Market)
}

// OfferPauseFields codes the pause of an offer.
func OfferPauseFields(c *codec.Coder, x *cluster.OfferPause) {
	codec.Record(c, &x.Offer, OfferKeyFields)
	codec.Int(c, &x.Since)
	codec.Int(c, &x.Until)
	codec.Int(c, &x.Failures)
	codec.String(c, &x.Why)
	codec.Bool(c, &x.Capacity)
}

// LeaseFields codes a lease.
func LeaseFields(c *codec.Coder, x *cluster.Lease) {
	codec.Uint(c, &x.ID)
	codec.Uint(c, &x.Launch)
	codec.Int(c, &x.Nodes)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.String(c, &x.Account)
	codec.Record(c, &x.Offer, OfferFields)
	codec.Uint(c, &x.State)
	for _, at := range [...]*cluster.Instant{&x.Since, &x.Created, &x.Deadline, &x.IdleSince, &x.Expires, &x.Month, &x.Launched, &x.Joined, &x.Ended, &x.Reclaim} {
		codec.Int(c, at)
	}
	codec.Uint(c, &x.Try)
	codec.Uint(c, &x.For)
	for _, amount := range [...]*int64{&x.MaxPrice, &x.Price, &x.Reserved, &x.Cost} {
		codec.Int(c, amount)
	}
	codec.Int(c, &x.Lifetime)
	for _, text := range [...]*string{&x.Instance, &x.Address, &x.Why, &x.Console} {
		codec.String(c, text)
	}
	codec.Bool(c, &x.Interrupted)
	codec.Fixed(c, x.Token[:])
	codec.Bool(c, &x.NodeGone)
	codec.String(c, &x.Currency)
	codec.Bool(c, &x.Mismatch)
	codec.Bool(c, &x.Adopted)
}

// LaunchRefusalFields codes why no nodes were leased for a job.
func LaunchRefusalFields(c *codec.Coder, x *cluster.LaunchRefusal) {
	codec.Uint(c, &x.Job)
	codec.Int(c, &x.At)
	codec.String(c, &x.Why)
}

// EncodeEndedLease writes a lease for the archive.
func EncodeEndedLease(x *cluster.EndedLease) []byte {
	c := codec.Writer(make([]byte, 0, 256))
	codec.Record(&c, x, endedLeaseFields)
	return c.Written()
}

// DecodeEndedLease reads what EncodeEndedLease wrote, under the promises of [Decode].
func DecodeEndedLease(data []byte) (cluster.EndedLease, error) {
	var x cluster.EndedLease
	c := codec.Reader(data)
	codec.Record(&c, &x, endedLeaseFields)
	if err := c.Err(); err != nil {
		return cluster.EndedLease{}, fmt.Errorf("ended lease: %w: %w", ErrMalformed, err)
	}
	return x, nil
}

func endedLeaseFields(c *codec.Coder, x *cluster.EndedLease) {
	codec.Uint(c, &x.Seq)
	codec.String(c, &x.Partition)
	codec.Record(c, &x.Lease, LeaseFields)
}

func updateLeasesFields(c *codec.Coder, x *UpdateLeases) { codec.List(c, &x.Updates, leaseUpdate) }

func leaseUpdate(c *codec.Coder, x *LeaseUpdate) { codec.Record(c, x, leaseUpdateFields) }

func leaseUpdateFields(c *codec.Coder, x *LeaseUpdate) {
	codec.Uint(c, &x.Lease)
	codec.Uint(c, &x.Event)
	codec.Uint(c, &x.Try)
	codec.Fixed(c, x.Token[:])
	codec.String(c, &x.Instance)
	codec.String(c, &x.Address)
	codec.Int(c, &x.Price)
	codec.Int(c, &x.At)
	codec.Bool(c, &x.Capacity)
	codec.Int(c, &x.Reclaim)
	codec.Bool(c, &x.Interrupted)
	codec.Int(c, &x.Cost)
	codec.String(c, &x.Why)
	codec.String(c, &x.Console)
}

func endLeasesFields(c *codec.Coder, x *EndLeases) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Leases, codec.Uint[cluster.LeaseID])
	codec.Bool(c, &x.Now)
	codec.String(c, &x.Why)
}

func launch(c *codec.Coder, x *cluster.Launch) { codec.Record(c, x, launchFields) }

func launchFields(c *codec.Coder, x *cluster.Launch) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Record(c, &x.Offer, OfferKeyFields)
	codec.Int(c, &x.Nodes)
	codec.Int(c, &x.MaxPrice)
	codec.Int(c, &x.Lifetime)
	codec.Int(c, &x.Cost)
	codec.String(c, &x.Why)
}

func burstFields(c *codec.Coder, x *cluster.Burst) {
	codec.Uint(c, &x.Mode)
	codec.Int(c, &x.MaxCost)
	codec.List(c, &x.Regions, codec.String)
	codec.Uint(c, &x.Market)
}

func burstPolicyFields(c *codec.Coder, x *cluster.BurstPolicy) {
	codec.Bool(c, &x.On)
	codec.String(c, &x.Currency)
	codec.Int(c, &x.MonthlyLimit)
	codec.List(c, &x.Budgets, rentalBudget)
	codec.List(c, &x.Regions, codec.String)
	codec.Int(c, &x.MaxNodes)
	codec.Int(c, &x.MinPending)
	codec.Int(c, &x.BootTimeout)
	codec.Int(c, &x.IdleTime)
	codec.Int(c, &x.SpotPatience)
	codec.Int(c, &x.InterruptionRisk)
	codec.Int(c, &x.StagingTime)
}

func rentalBudget(c *codec.Coder, x *cluster.RentalBudget) { codec.Record(c, x, rentalBudgetFields) }

func rentalBudgetFields(c *codec.Coder, x *cluster.RentalBudget) {
	codec.String(c, &x.Account)
	codec.Int(c, &x.Monthly)
}

func rentalFields(c *codec.Coder, x *cluster.Rental) {
	codec.Uint(c, &x.Lease)
	codec.String(c, &x.Account)
	codec.Uint(c, &x.For)
	codec.Int(c, &x.Until)
}

func stagingFields(c *codec.Coder, x *cluster.Staging) {
	codec.String(c, &x.URL)
	codec.String(c, &x.Path)
}
