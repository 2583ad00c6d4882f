// Package leases stores the leased nodes of the cluster, the offers of the cloud, and what was spent.
//
// It decides whether nodes may be leased for a job within all budgets, what an event makes of a lease, what a lease
// costs, and which offers are not used for a time. It never writes a job or a node, and never talks to a cloud.
package leases

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxGone is the number of the newest leases that are kept once they are GONE.
const maxGone = 1000

// Leases is the tables of leases, offers and costs. It has one writer; any goroutine may read a clone.
type Leases struct {
	numbers
	all     table.Table[cluster.LeaseID, *cluster.Lease]
	offers  table.Table[cluster.OfferKey, *cluster.Offer]
	pauses  table.Table[cluster.OfferKey, *cluster.OfferPause]
	spent   table.Table[account, int64]
	refused table.Table[cluster.JobID, *cluster.LaunchRefusal]
	hasher  *table.Hasher

	// Indexes.
	live cow.Map[cluster.LeaseID, *cluster.Lease]
	due  cow.Map[dueLease, struct{}]
	gone cow.Map[dueLease, struct{}] // by when they went
	held cow.Map[heldLease, struct{}]
}

// numbers count leases.
type numbers struct {
	next  cluster.LeaseID // the next ID
	ended uint64          // leases that are GONE, also those that are no longer kept
	Outcomes
}

// Outcomes count the leases that are GONE, also those that are no longer kept. The others had a node, and ended as planned.
type Outcomes struct {
	Cancelled uint64 // before a request was sent
	Failed    uint64 // no node joined
	Reclaimed uint64 // by the cloud
}

func (o *Outcomes) add(l *cluster.Lease) {
	switch {
	case l.Try == 0:
		o.Cancelled++
	case l.Reclaimed():
		o.Reclaimed++
	case l.Joined == 0:
		o.Failed++
	}
}

func outcomesFields(c *codec.Coder, x *Outcomes) {
	for _, n := range [...]*uint64{&x.Cancelled, &x.Failed, &x.Reclaimed} {
		codec.Uint(c, n)
	}
}

func numbersFields(c *codec.Coder, x *numbers) {
	codec.Uint(c, &x.next)
	codec.Uint(c, &x.ended)
	codec.Record(c, &x.Outcomes, outcomesFields)
}

// account is an account in the month whose budgets count, and in one currency; "" is the cluster.
type account struct {
	month    cluster.Instant
	currency string
	name     string
}

// dueLease orders leases by an instant.
type dueLease struct {
	at cluster.Instant
	id cluster.LeaseID
}

// heldLease orders leases by the pending job that only may use them.
type heldLease struct {
	job cluster.JobID
	id  cluster.LeaseID
}

var leaseSchema = table.Schema[cluster.LeaseID, *cluster.Lease]{ // never written
	Kind: table.Leases, Compare: cmp.Compare[cluster.LeaseID], Fields: table.Pointer(command.LeaseFields),
	KeyOf: func(l **cluster.Lease) cluster.LeaseID { return (*l).ID },
}

var offerSchema = table.Schema[cluster.OfferKey, *cluster.Offer]{ // never written
	Kind: table.Offers, Compare: compareOffers, Fields: table.Pointer(command.OfferFields),
	KeyOf: func(o **cluster.Offer) cluster.OfferKey { return (*o).Key() },
}

var pauseSchema = table.Schema[cluster.OfferKey, *cluster.OfferPause]{ // never written
	Kind: table.OfferPauses, Compare: compareOffers, Fields: table.Pointer(command.OfferPauseFields),
	KeyOf: func(p **cluster.OfferPause) cluster.OfferKey { return (*p).Offer },
}

var spentSchema = table.Schema[account, int64]{ // never written
	Kind: table.LeaseCosts, Compare: compareAccounts, Key: accountFields, Fields: codec.Int[int64],
}

var refusalSchema = table.Schema[cluster.JobID, *cluster.LaunchRefusal]{ // never written
	Kind: table.LaunchRefusals, Compare: cmp.Compare[cluster.JobID], Fields: table.Pointer(command.LaunchRefusalFields),
	KeyOf: func(r **cluster.LaunchRefusal) cluster.JobID { return (*r).Job },
}

func compareOffers(a, b cluster.OfferKey) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Market, b.Market))
}

func compareAccounts(a, b account) int {
	return cmp.Or(cmp.Compare(a.month, b.month), strings.Compare(a.currency, b.currency), strings.Compare(a.name, b.name))
}

func accountFields(c *codec.Coder, x *account) {
	codec.Int(c, &x.month)
	codec.String(c, &x.currency)
	codec.String(c, &x.name)
}

// New returns empty tables.
func New(h *table.Hasher) Leases {
	byInstant := func(a, b dueLease) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }
	return Leases{
		numbers: numbers{next: 1}, hasher: h, refused: table.New(&refusalSchema, h),
		all: table.New(&leaseSchema, h), offers: table.New(&offerSchema, h), pauses: table.New(&pauseSchema, h), spent: table.New(&spentSchema, h),
		live: cow.New[cluster.LeaseID, *cluster.Lease](cmp.Compare[cluster.LeaseID]),
		due:  cow.New[dueLease, struct{}](byInstant), gone: cow.New[dueLease, struct{}](byInstant),
		held: cow.New[heldLease, struct{}](func(a, b heldLease) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.id, b.id)) }),
	}
}

// Clone returns tables that later writes to x do not change. O(1).
func (x *Leases) Clone(h *table.Hasher) Leases {
	return Leases{
		x.numbers, x.all.Clone(h), x.offers.Clone(h), x.pauses.Clone(h), x.spent.Clone(h), x.refused.Clone(h), h,
		x.live.Clone(), x.due.Clone(), x.gone.Clone(), x.held.Clone(),
	}
}

// Digest returns the digest of all tables. O(1).
func (x *Leases) Digest() uint64 {
	d := x.all.Digest() ^ x.offers.Digest() ^ x.pauses.Digest() ^ x.spent.Digest() ^ x.refused.Digest()
	if x.next > 1 {
		d ^= table.Hash(x.hasher, table.LeaseNumber, &x.numbers, numbersFields)
	}
	return d
}

// Encode writes the tables into a snapshot.
func (x *Leases) Encode(w *table.Writer) {
	x.all.Encode(w)
	x.offers.Encode(w)
	x.pauses.Encode(w)
	x.spent.Encode(w)
	if x.next > 1 {
		table.One(w, table.LeaseNumber, &x.numbers, numbersFields)
	}
	x.refused.Encode(w)
}

// Readers returns what reads the tables from a snapshot.
func (x *Leases) Readers() table.Readers {
	return table.Readers{
		table.Leases:         x.readLease,
		table.Offers:         func(c *codec.Coder) { x.offers.Decode(c) },
		table.OfferPauses:    func(c *codec.Coder) { x.pauses.Decode(c) },
		table.LeaseCosts:     func(c *codec.Coder) { x.spent.Decode(c) },
		table.LeaseNumber:    func(c *codec.Coder) { codec.Record(c, &x.numbers, numbersFields) },
		table.LaunchRefusals: func(c *codec.Coder) { x.refused.Decode(c) },
	}
}

func (x *Leases) readLease(c *codec.Coder) {
	_, l := x.all.Decode(c)
	if c.Failed() {
		return
	}
	if l.ID == 0 || l.State < cluster.LeasePlanned || l.State > cluster.LeaseGone {
		c.Fail("lease %d is not well formed", l.ID)
		return
	}
	x.list(l)
}

// list adds a lease to the indexes.
func (x *Leases) list(l *cluster.Lease) {
	if !l.Live() {
		x.gone.Set(dueLease{l.Since, l.ID}, struct{}{})
		return
	}
	x.live.Set(l.ID, l)
	if l.Deadline > 0 {
		x.due.Set(dueLease{l.Deadline, l.ID}, struct{}{})
	}
	if l.For != 0 {
		x.held.Set(heldLease{l.For, l.ID}, struct{}{})
	}
}

// unlist removes a lease from the indexes.
func (x *Leases) unlist(l *cluster.Lease) {
	x.gone.Delete(dueLease{l.Since, l.ID})
	x.live.Delete(l.ID)
	x.due.Delete(dueLease{l.Deadline, l.ID})
	x.held.Delete(heldLease{l.For, l.ID})
}

// Put stores a lease, a new value or a new lease. What it cost is spent once it is GONE. O(log n).
func (x *Leases) Put(e *Env, l *cluster.Lease) {
	old, known := x.all.Get(l.ID)
	if known {
		x.unlist(old)
	}
	x.all.Set(l.ID, l)
	x.list(l)
	if l.Live() || known && !old.Live() {
		return
	}
	x.ended++
	x.Outcomes.add(l)
	x.spend(e, l)
	for x.gone.Len() > maxGone {
		first, _, _ := x.gone.First()
		x.gone.Delete(first)
		x.all.Delete(first.id)
	}
}

// Get returns a lease that is live, or one of the newest that are GONE. O(log n).
func (x *Leases) Get(id cluster.LeaseID) (*cluster.Lease, bool) { return x.all.Get(id) }

// All yields all leases that are kept, by ID.
func (x *Leases) All() iter.Seq[*cluster.Lease] { return x.all.Values() }

// Live yields the leases that are not GONE, by ID.
func (x *Leases) Live() iter.Seq[*cluster.Lease] {
	return func(yield func(*cluster.Lease) bool) {
		for _, l := range x.live.All() {
			if !yield(l) {
				return
			}
		}
	}
}

// Len returns the number of leases that are not GONE. O(1).
func (x *Leases) Len() int { return x.live.Len() }

// AllOffers yields the offers by name and market, also those that are never used.
func (x *Leases) AllOffers() iter.Seq[*cluster.Offer] { return x.offers.Values() }

// Offers yields the offers that may be used, by name and market.
func (x *Leases) Offers() iter.Seq[*cluster.Offer] {
	return func(yield func(*cluster.Offer) bool) {
		for o := range x.offers.Values() {
			if o.Fault == "" && !yield(o) {
				return
			}
		}
	}
}

// Ended returns the number of leases that are GONE, also those that are no longer kept.
func (x *Leases) Ended() uint64 { return x.ended }

// Pauses yields the pauses of offers, by offer. Those that are over are kept for a time: the next failure lengthens them.
func (x *Leases) Pauses() iter.Seq[*cluster.OfferPause] { return x.pauses.Values() }

// HeldFor returns the live leases that only a pending job may use, by ID. O(log n + leases).
func (x *Leases) HeldFor(job cluster.JobID) (list []*cluster.Lease) {
	for k := range x.held.From(heldLease{job: job}) {
		if k.job != job {
			break
		}
		l, _ := x.all.Get(k.id)
		list = append(list, l)
	}
	return list
}

// Waiting yields the pending jobs that wait for live leases, by ID. O(leases).
func (x *Leases) Waiting() iter.Seq[cluster.JobID] {
	return func(yield func(cluster.JobID) bool) {
		last := cluster.JobID(0)
		for k := range x.held.All() {
			if k.job != last && !yield(k.job) {
				return
			}
			last = k.job
		}
	}
}

// OfLaunch returns the leases of a launch that are kept, by ID. O(nodes × log n).
func (x *Leases) OfLaunch(launch cluster.LeaseID) (list []*cluster.Lease) {
	for _, l := range x.all.From(launch) {
		if l.Launch != launch {
			break
		}
		list = append(list, l)
	}
	return list
}

// ByToken returns the lease of an instance that has the join token of its launch; nil if no lease of the launch has
// that instance. launch is one lease of the launch, nil for an unknown token. O(leases).
func (x *Leases) ByToken(hash cluster.Digest, instance string) (l, launch *cluster.Lease) {
	if hash.IsZero() {
		return nil, nil
	}
	for _, l := range x.all.All() {
		if l.Token != hash {
			continue
		}
		if instance != "" && l.Instance == instance {
			return l, l
		}
		if launch == nil || l.Live() {
			launch = l
		}
	}
	return nil, launch
}

// Due returns the leases whose deadline is over, the earliest first, at most that many. O(most × log n).
func (x *Leases) Due(now cluster.Instant, most int) (list []*cluster.Lease) {
	for k := range x.due.All() {
		if k.at > now || len(list) == most {
			break
		}
		l, _ := x.all.Get(k.id)
		list = append(list, l)
	}
	return list
}

// NextDue returns the earliest deadline; [cluster.Never] for none. O(log n).
func (x *Leases) NextDue() cluster.Instant {
	if k, _, found := x.due.First(); found {
		return k.at
	}
	return cluster.Never
}

// A restored cluster leaves out restoreGap IDs, and as many as seconds have passed since restoreEpoch: those of leases since the
// backup, whose client tokens the cloud knows, must not return, nor those of an earlier restore of the same backup.
const (
	restoreGap   = 1_000_000
	restoreEpoch = cluster.Instant(1_735_689_600 * time.Second) // 2025-01-01
)

// Restored prepares the tables of a cluster that was restored from a backup: the times of the states begin again, since
// the requests and joins of the lost time are not known yet. O(leases × log n).
func (x *Leases) Restored(e *Env) {
	x.next += restoreGap + cluster.LeaseID(max(0, e.Now.Sub(restoreEpoch)/time.Second))
	for _, l := range slices.Collect(x.Live()) {
		n := *l
		n.Since = e.Now
		if n.IdleSince > 0 {
			n.IdleSince = e.Now
		}
		n.Deadline = e.deadline(&n)
		x.Put(e, &n)
	}
}

// Env is what decisions about leases depend on.
type Env struct {
	Now      cluster.Instant
	Policy   *cluster.Policy
	Accounts *accounts.Accounts
}

// bootTimeout is how long a request, and then a boot, may take.
func (e *Env) bootTimeout() time.Duration {
	return cmp.Or(e.Policy.Burst.BootTimeout, cluster.DefaultBurstPolicy().BootTimeout)
}

// View returns the part of a snapshot that decides about leases; nil without offers and leases. O(offers + leases ×
// accounts above them).
func (x *Leases) View(e *Env) *cluster.BurstView {
	if x.offers.Len() == 0 && x.live.Len() == 0 {
		return nil
	}
	v := &cluster.BurstView{Offers: slices.Collect(x.Offers()), Leases: slices.Collect(x.Live()), Left: x.Left(e)}
	for p := range x.Pauses() {
		v.Pauses = append(v.Pauses, *p)
	}
	for r := range x.refused.Values() {
		v.Refused = append(v.Refused, *r)
	}
	return v
}
