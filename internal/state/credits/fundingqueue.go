package credits

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Jobs waiting for credits are indexed by what blocks them, so that a change costs what it freed,
// however many jobs wait for something else. What becomes free queues its payers round-robin: each
// once, from where the last round stopped, so that every payer has a turn.

// blocker is the object whose credits a payer waits for.
type blocker struct {
	kind blockerKind
	node accounting.PayerID // "" for forOther
}

type blockerKind uint8

// The kinds are in snapshots: append only.
const (
	forTurn    blockerKind = iota + 1 // not blocked: to be checked; the node is the payer
	forCredits                        // in the node's own buckets
	forBudget                         // under the node's budget, or from its debts
	forOther                          // a price, a policy, nodes
)

func compareBlockers(a, b blocker) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.node, b.node))
}

// roundRobin is the position in the list of payers that wait for a blocker.
type roundRobin struct {
	turn uint64             // log index of the last turn; 0: no payer is to be checked
	at   accounting.PayerID // the payer checked last
	end  accounting.PayerID // the payer checked last when something was freed
	over bool               // it wrapped around to the first
}

// waiting is a job that waits for credits of a payer.
type waiting struct {
	payer accounting.PayerID
	job   cluster.JobID
}

// member is a payer that waits for a blocker.
type member struct {
	blocker
	payer accounting.PayerID
}

// queueKey is a round that is under way.
type queueKey struct {
	turn uint64
	blocker
}

// fundingQueue is the tables and the indexes of payers that wait for credits.
type fundingQueue struct {
	waits       table.Table[accounting.PayerID, []blocker] // what payers wait for, in order
	roundRobins table.Table[blocker, roundRobin]
	unfunded    cow.Map[waiting, none]  // index: pending jobs that are held for credits
	members     cow.Map[member, none]   // index of waits
	queue       cow.Map[queueKey, none] // index of roundRobins

	// These have no effect after the command.
	trying   accounting.PayerID // the payer whose turn it is
	retryAll bool               // every payer is to be queued
}

var waitSchema = table.Schema[accounting.PayerID, []blocker]{ // never written
	Kind: table.Waits, Compare: cmp.Compare[accounting.PayerID], Key: payerField, Fields: waitFields,
}

var roundRobinSchema = table.Schema[blocker, roundRobin]{ // never written
	Kind: table.RoundRobins, Compare: compareBlockers, Key: blockerFields, Fields: roundRobinFields,
}

func newFundingQueue(h *table.Hasher) fundingQueue {
	return fundingQueue{
		waits:       table.New(&waitSchema, h),
		roundRobins: table.New(&roundRobinSchema, h),
		unfunded: cow.New[waiting, none](func(a, b waiting) int {
			return cmp.Or(cmp.Compare(a.payer, b.payer), cmp.Compare(a.job, b.job))
		}),
		members: cow.New[member, none](func(a, b member) int {
			return cmp.Or(compareBlockers(a.blocker, b.blocker), cmp.Compare(a.payer, b.payer))
		}),
		queue: cow.New[queueKey, none](func(a, b queueKey) int {
			return cmp.Or(cmp.Compare(a.turn, b.turn), compareBlockers(a.blocker, b.blocker))
		}),
	}
}

// clone returns a queue that later writes do not change. O(1).
func (x *fundingQueue) clone(h *table.Hasher) fundingQueue {
	return fundingQueue{x.waits.Clone(h), x.roundRobins.Clone(h), x.unfunded.Clone(), x.members.Clone(), x.queue.Clone(), "", false}
}

// payerOf returns the payer that is charged for a job.
func payerOf(j *cluster.Job) accounting.PayerID {
	return accounting.PayerID(j.Spec.Account + "/" + j.Spec.Owner.User)
}

// waits reports whether a job waits for credits.
func waits(j *cluster.Job) bool {
	return j != nil && j.State == cluster.Pending && j.Hold == cluster.HeldForCredits
}

// indexUnfunded updates the list of jobs that wait for credits after a change.
func (x *fundingQueue) indexUnfunded(old, j *cluster.Job, index uint64) {
	before, after := waits(old), waits(j)
	if before && after && old.Spec == j.Spec {
		return
	}
	if before {
		x.unfunded.Delete(waiting{payerOf(old), j.ID})
		x.enqueuePayer(payerOf(old), index)
	}
	if after {
		x.unfunded.Set(waiting{payerOf(j), j.ID}, none{})
		x.enqueuePayer(payerOf(j), index)
	}
}

// RestoreJob lists a pending job of a snapshot if it waits for credits.
func (x *fundingQueue) RestoreJob(j *cluster.Job) {
	if waits(j) {
		x.unfunded.Set(waiting{payerOf(j), j.ID}, none{})
	}
}

// hasWaiting reports whether a payer has jobs that wait for credits.
func (x *fundingQueue) hasWaiting(payer accounting.PayerID) bool {
	for k := range x.unfunded.From(waiting{payer: payer}) {
		return k.payer == payer
	}
	return false
}

// enqueuePayer gives a payer another turn, or removes it if none of its jobs waits any more. The
// payer whose turn it is needs no other turn.
func (x *fundingQueue) enqueuePayer(payer accounting.PayerID, index uint64) {
	switch {
	case x.trying == payer:
	case !x.hasWaiting(payer):
		x.blockOn(payer, nil)
	default:
		x.blockOn(payer, []blocker{{forTurn, payer}})
		x.unblock(blocker{forTurn, payer}, index)
	}
}

// enqueueAll queues every payer that waits.
func (x *fundingQueue) enqueueAll(index uint64) {
	var all []accounting.PayerID
	for payer := range x.waits.All() {
		all = append(all, payer)
	}
	for _, payer := range all {
		x.enqueuePayer(payer, index)
	}
}

// blockOn makes a payer wait for blockers and for no others.
func (x *fundingQueue) blockOn(payer accounting.PayerID, blockers []blocker) {
	slices.SortFunc(blockers, compareBlockers)
	blockers = slices.Compact(blockers)
	old, _ := x.waits.Get(payer)
	if slices.Equal(old, blockers) {
		return
	}
	if len(blockers) > 0 {
		x.waits.Set(payer, blockers)
	} else {
		x.waits.Delete(payer)
	}
	for _, c := range blockers {
		x.members.Set(member{c, payer}, none{})
	}
	for _, c := range old {
		if _, still := slices.BinarySearchFunc(blockers, c, compareBlockers); still {
			continue
		}
		x.members.Delete(member{c, payer})
		if _, others := x.after(c, ""); !others {
			x.putRoundRobin(c, roundRobin{})
		}
	}
}

// after returns the next payer among those that wait for a blocker.
func (x *fundingQueue) after(c blocker, payer accounting.PayerID) (next accounting.PayerID, found bool) {
	for k := range x.members.From(member{c, payer}) {
		if k.blocker != c {
			break
		}
		if k.payer != payer {
			return k.payer, true
		}
	}
	return "", false
}

// unblock queues each payer that waits for a blocker once.
func (x *fundingQueue) unblock(c blocker, index uint64) {
	if _, found := x.after(c, ""); !found {
		return
	}
	r, _ := x.roundRobins.Get(c)
	if r.turn == 0 {
		r.turn = max(1, index)
	}
	r.end, r.over = r.at, false
	x.putRoundRobin(c, r)
}

// nextPayer returns the next payer of a round; without one the round ends.
func (x *fundingQueue) nextPayer(c blocker, index uint64) (payer accounting.PayerID, found bool) {
	r, _ := x.roundRobins.Get(c)
	if payer, found = x.after(c, r.at); !found && !r.over {
		r.over = true
		payer, found = x.after(c, "")
	}
	if !found || r.over && payer > r.end {
		x.putRoundRobin(c, roundRobin{at: r.at})
		return "", false
	}
	r.at, r.turn = payer, max(1, index)
	x.putRoundRobin(c, r)
	return payer, true
}

// putRoundRobin stores a position; the zero position is removed.
func (x *fundingQueue) putRoundRobin(c blocker, r roundRobin) {
	if old, found := x.roundRobins.Get(c); found {
		x.queue.Delete(queueKey{old.turn, c})
	}
	if r == (roundRobin{}) {
		x.roundRobins.Delete(c)
		return
	}
	x.roundRobins.Set(c, r)
	if r.turn > 0 {
		x.queue.Set(queueKey{r.turn, c}, none{})
	}
}

func blockerFields(c *codec.Coder, x *blocker) {
	codec.Uint(c, &x.kind)
	codec.String(c, (*string)(&x.node))
}

func payerField(c *codec.Coder, x *accounting.PayerID) { codec.String(c, (*string)(x)) }

func waitFields(c *codec.Coder, x *[]blocker) { codec.List(c, x, blockerFields) }

func roundRobinFields(c *codec.Coder, x *roundRobin) {
	codec.Uint(c, &x.turn)
	codec.String(c, (*string)(&x.at))
	codec.String(c, (*string)(&x.end))
	codec.Bool(c, &x.over)
}

func (x *fundingQueue) readWait(c *codec.Coder) {
	payer, blockers := x.waits.Decode(c)
	if len(blockers) == 0 || !slices.IsSortedFunc(blockers, compareBlockers) || !x.hasWaiting(payer) {
		c.Fail("what %q waits for is not well formed", payer)
		return
	}
	for _, of := range blockers {
		x.members.Set(member{of, payer}, none{})
	}
}

func (x *fundingQueue) readRoundRobin(c *codec.Coder) {
	of, at := x.roundRobins.Decode(c)
	if at == (roundRobin{}) {
		c.Fail("a round-robin position is empty")
		return
	}
	x.putRoundRobin(of, at)
}
