package cluster

import (
	"fmt"
	"slices"
	"time"
)

// LeasedNodes is the word that stands for all leased nodes, and no others, in the node list of a partition. [AllNodes]
// does not include them.
const LeasedNodes = "CLOUD"

// LeasedPrefix begins the name of every leased node, and of no other.
const LeasedPrefix = "cloud-"

// BurstMode says whether a job may run on leased nodes.
type BurstMode uint8

// The modes.
const (
	BurstDefault BurstMode = iota // that of the QOS, else that of the partition, else never
	BurstNever
	BurstAllow // nodes are leased for it when that pays
	BurstOnly  // it runs on leased nodes only
)

var burstModeNames = [...]string{BurstDefault: "", BurstNever: "never", BurstAllow: "allow", BurstOnly: "only"}

// String is the word of --burst; "" for the default.
func (m BurstMode) String() string {
	if int(m) >= len(burstModeNames) {
		return "?"
	}
	return burstModeNames[m]
}

// ParseBurstMode reads a word of --burst; "" is the default.
func ParseBurstMode(word string) (BurstMode, error) {
	if i := slices.Index(burstModeNames[:], word); i >= 0 {
		return BurstMode(i), nil
	}
	return 0, fmt.Errorf("%q is not never, allow or only", word)
}

// Market is how a node is rented.
type Market uint8

// The markets.
const (
	AnyMarket Market = iota // of a request: spot, and on demand while there is no spot capacity
	Spot                    // cheaper; the cloud may reclaim the node
	OnDemand
)

var marketNames = [...]string{AnyMarket: "any", Spot: "spot", OnDemand: "on-demand"}

// String is the word of --burst-market.
func (m Market) String() string {
	if int(m) >= len(marketNames) {
		return "?"
	}
	return marketNames[m]
}

// ParseMarket reads a word of --burst-market; "" is any.
func ParseMarket(word string) (Market, error) {
	if word == "" {
		return AnyMarket, nil
	}
	if i := slices.Index(marketNames[:], word); i >= 0 {
		return Market(i), nil
	}
	return 0, fmt.Errorf("%q is not spot, on-demand or any", word)
}

// Burst is what a job says about leased nodes.
type Burst struct {
	Mode    BurstMode
	MaxCost int64 // most that the leases of one attempt may cost, in millionths of the currency; 0: no limit of its own
	Regions []string
	Market  Market
}

// On reports whether nodes may be leased for the job.
func (b *Burst) On() bool { return b.Mode == BurstAllow || b.Mode == BurstOnly }

// BurstPolicy says whether and when nodes are leased. Money is in millionths of Currency.
type BurstPolicy struct {
	On           bool
	Currency     string // of all prices, such as USD
	MonthlyLimit int64  // most that may be spent on leases of one month; 0: nothing
	Budgets      []RentalBudget
	Regions      []string // in which nodes may be leased; empty: all
	MaxNodes     int32    // maximum leased nodes at a time; 0: no limit
	// MinPending is how long a job has been eligible before nodes are leased for it, so that a change of the queue can
	// settle first.
	MinPending time.Duration
	// BootTimeout is how long a leased node may take to join. Its cost is part of the worst-case cost.
	BootTimeout time.Duration
	// IdleTime is how long an idle leased node is kept; 0: as long as one of its kind takes to join.
	IdleTime time.Duration
	// SpotPatience is for how long spot requests must have failed before a node is leased on demand.
	SpotPatience time.Duration
	// InterruptionRisk is the probability that the cloud reclaims a spot node within an hour, in millionths, of offers that
	// state none.
	InterruptionRisk int32
	// StagingTime is how long copies of the files of a job to a leased node, or from it, are assumed to take.
	StagingTime time.Duration
}

// RentalBudget limits what leases of the jobs of an account and its descendants may cost in one month.
type RentalBudget struct {
	Account string
	Monthly int64
}

// DefaultBurstPolicy leases no nodes.
func DefaultBurstPolicy() BurstPolicy {
	return BurstPolicy{
		Currency: "USD", MinPending: time.Minute, BootTimeout: 10 * time.Minute, SpotPatience: 5 * time.Minute,
		InterruptionRisk: 50_000, StagingTime: 10 * time.Minute,
	}
}

// MaxPriceAge is the greatest age of a price that decides.
const MaxPriceAge = 6 * time.Hour

// MaxOfferPrice is the highest price of an hour of one node that counts, in millionths: a higher one is a mistake.
const MaxOfferPrice = 1_000_000 * OneUnit

// Offer is the price of one kind of cloud node in one market of one place.
type Offer struct {
	Name      string // unique with its market, such as "p5.48xlarge/us-east-1a"
	Market    Market
	Region    string
	Type      string // of the machine, such as "p5.48xlarge"
	Price     int64  // of one hour of one node, in millionths of the currency
	PricedAt  Instant
	CPUs      int32
	Memory    Bytes
	GPUs      int32
	GPUType   string
	GPUMemory Bytes
	Boot      time.Duration // from the request until the node has joined: the 90th percentile
	Risk      int32         // of an interruption within an hour, in millionths; 0: unknown
	// Fault is why it is never used, such as a price of 0; "" for an offer that may be used. The other fields may be zero.
	Fault string
}

// Key identifies an offer.
func (o *Offer) Key() OfferKey { return OfferKey{o.Name, o.Market} }

// OfferKey identifies an offer.
type OfferKey struct {
	Name   string
	Market Market
}

// Node returns a node as the offer describes it, for comparison with requests.
func (o *Offer) Node() *Node {
	n := &Node{Name: LeasedPrefix + "0", CPUs: o.CPUs, Memory: o.Memory, Region: o.Region, Market: o.Market}
	for i := range o.GPUs {
		n.GPUs = append(n.GPUs, GPU{Index: i, Type: o.GPUType, Memory: o.GPUMemory, NUMA: -1, Domain: "nvlink"})
	}
	return n
}

// OfferPause says that an offer is not used for a time, because requests for it failed.
type OfferPause struct {
	Offer    OfferKey
	Since    Instant // of the first failure of its kind since the last success, or another kind
	Until    Instant
	Failures int32
	Why      string
	Capacity bool // the cloud had no capacity, or only at a higher price, since Since; not another failure
}

// BurstView is the part of a snapshot that decides about leases; lists are sorted by their keys.
type BurstView struct {
	Offers []*Offer
	Pauses []OfferPause
	Leases []*Lease // those that are not Gone, by ID
	// Left is what may still be committed in this month by account, and under "" for the cluster. An account without an
	// entry has no budget of its own. The budgets of its ancestors count too.
	Left map[string]int64
	// Refused are decisions that were not carried out, by job: the newest of each job.
	Refused []LaunchRefusal
}

// LaunchRefusal says why no nodes were leased for a job although a plan said so.
type LaunchRefusal struct {
	Job JobID
	At  Instant
	Why string
}

// Launch is the decision to lease nodes for one job: all of them or none, by one request to the cloud.
type Launch struct {
	Job      JobID
	Attempt  Attempt // the attempt that they are for: the job's last plus one
	Offer    OfferKey
	Nodes    int32
	MaxPrice int64 // of one hour of one node: the request to the cloud contains it
	// Lifetime is how long each node exists at most after the request.
	Lifetime time.Duration
	// Cost is the worst-case cost of all nodes: it is committed.
	Cost int64
	Why  string // one sentence, for users and the audit journal
}

// Staging is a file or a directory that is copied between a URL and a path of the job: before its script starts, or
// after it has ended.
type Staging struct {
	URL  string // s3://BUCKET/KEY, http[s]://HOST/PATH or rsync://HOST/MODULE/PATH; that of a directory ends with "/"
	Path string // relative to the job's working directory, clean; "." of a directory: all of it
}
