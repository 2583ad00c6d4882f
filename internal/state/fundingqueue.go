package state

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/cow"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Jobs waiting for credits are indexed by what blocks them, so that the cost of a change depends on
// what it freed, and not on the number of waiting jobs. A freed blocker queues its payers
// round-robin: each once, from where the last round stopped, so that every payer has a turn.

// blocker is what a payer waits for.
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

// waiting is a job that waits for credits of a payer; member is a payer that waits for a blocker;
// queueKey is a round that is in progress.
type (
	waiting struct {
		payer accounting.PayerID
		job   cluster.JobID
	}
	member struct {
		blocker
		payer accounting.PayerID
	}
	queueKey struct {
		turn uint64
		blocker
	}
)

// fundingQueue holds the tables and indexes of payers that wait for credits.
type fundingQueue struct {
	waits       table.Table[accounting.PayerID, []blocker] // what payers wait for, in order
	roundRobins table.Table[blocker, roundRobin]
	unfunded    cow.Map[waiting, none]  // index: pending jobs that are held for credits
	members     cow.Map[member, none]   // index of waits
	queue       cow.Map[queueKey, none] // index of roundRobins
}

var waitSchema = table.Schema[accounting.PayerID, []blocker]{ // never written
	Kind: table.Waits, Compare: cmp.Compare[accounting.PayerID], Key: payerField, Fields: waitFields,
}

var roundRobinSchema = table.Schema[blocker, roundRobin]{ // never written
	Kind: table.RoundRobins, Compare: compareBlockers, Key: blockerFields, Fields: roundRobinFields,
}

func newTurns(h *table.Hasher) fundingQueue {
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
	return fundingQueue{x.waits.Clone(h), x.roundRobins.Clone(h), x.unfunded.Clone(), x.members.Clone(), x.queue.Clone()}
}

// payerOf returns the payer that is charged for a job.
func payerOf(j *cluster.Job) accounting.PayerID {
	return accounting.PayerID(j.Spec.Account + "/" + j.Spec.Owner.User)
}

// keepUnfunded updates the list of jobs that wait for credits after a change, and releases the lien
// of a job that ends without having started.
func (s *State) keepUnfunded(old, j *cluster.Job) {
	before := old != nil && old.State == cluster.Pending && old.Hold == cluster.HeldForCredits
	after := j.State == cluster.Pending && j.Hold == cluster.HeldForCredits
	if before && !(after && old.Spec == j.Spec) {
		s.unfunded.Delete(waiting{payerOf(old), j.ID})
		s.enqueuePayer(payerOf(old))
	}
	if after && !(before && old.Spec == j.Spec) {
		s.unfunded.Set(waiting{payerOf(j), j.ID}, none{})
		s.enqueuePayer(payerOf(j))
	}
	if old != nil && old.State == cluster.Pending && j.State.Final() {
		s.withdrawLien(old)
	}
}

// waitsStill reports whether a payer has jobs that wait for credits.
func (s *State) waitsStill(payer accounting.PayerID) bool {
	for k := range s.unfunded.From(waiting{payer: payer}) {
		return k.payer == payer
	}
	return false
}

// enqueuePayer gives a payer another turn, or removes it if none of its jobs waits any more. The
// payer whose turn it is needs no other turn.
func (s *State) enqueuePayer(payer accounting.PayerID) {
	switch {
	case s.trying == payer:
	case !s.waitsStill(payer):
		s.blockOn(payer, nil)
	default:
		s.blockOn(payer, []blocker{{forTurn, payer}})
		s.unblock(blocker{forTurn, payer})
	}
}

// blockOn makes a payer wait for blockers and for no others.
func (s *State) blockOn(payer accounting.PayerID, causes []blocker) {
	slices.SortFunc(causes, compareBlockers)
	causes = slices.Compact(causes)
	old, _ := s.waits.Get(payer)
	if slices.Equal(old, causes) {
		return
	}
	if len(causes) > 0 {
		s.waits.Set(payer, causes)
	} else {
		s.waits.Delete(payer)
	}
	for _, c := range causes {
		s.members.Set(member{c, payer}, none{})
	}
	for _, c := range old {
		if _, still := slices.BinarySearchFunc(causes, c, compareBlockers); still {
			continue
		}
		s.members.Delete(member{c, payer})
		if _, others := s.after(c, ""); !others {
			s.putRoundRobin(c, roundRobin{})
		}
	}
}

// after returns the next payer among those that wait for a blocker.
func (s *State) after(c blocker, payer accounting.PayerID) (next accounting.PayerID, found bool) {
	for k := range s.members.From(member{c, payer}) {
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
func (s *State) unblock(c blocker) {
	if _, found := s.after(c, ""); !found {
		return
	}
	x, _ := s.roundRobins.Get(c)
	if x.turn == 0 {
		x.turn = max(1, s.index)
	}
	x.end, x.over = x.at, false
	s.putRoundRobin(c, x)
}

// wakeAll queues every payer that waits.
func (s *State) wakeAll() {
	var all []accounting.PayerID
	for payer := range s.waits.All() {
		all = append(all, payer)
	}
	for _, payer := range all {
		s.enqueuePayer(payer)
	}
}

// nextPayer returns the next payer of a round; without one the round ends.
func (s *State) nextPayer(c blocker) (payer accounting.PayerID, found bool) {
	x, _ := s.roundRobins.Get(c)
	if payer, found = s.after(c, x.at); !found && !x.over {
		x.over = true
		payer, found = s.after(c, "")
	}
	if !found || x.over && payer > x.end {
		s.putRoundRobin(c, roundRobin{at: x.at})
		return "", false
	}
	x.at, x.turn = payer, max(1, s.index)
	s.putRoundRobin(c, x)
	return payer, true
}

// putRoundRobin stores a position; the zero position is removed.
func (s *State) putRoundRobin(c blocker, x roundRobin) {
	if old, found := s.roundRobins.Get(c); found {
		s.queue.Delete(queueKey{old.turn, c})
	}
	if x == (roundRobin{}) {
		s.roundRobins.Delete(c)
		return
	}
	s.roundRobins.Set(c, x)
	if x.turn > 0 {
		s.queue.Set(queueKey{x.turn, c}, none{})
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

func (x *restoring) readWait(c *codec.Coder) {
	payer, causes := x.waits.Decode(c)
	if len(causes) == 0 || !slices.IsSortedFunc(causes, compareBlockers) || !x.waitsStill(payer) {
		c.Fail("what %q waits for is not well formed", payer)
		return
	}
	for _, of := range causes {
		x.members.Set(member{of, payer}, none{})
	}
}

func (x *restoring) readRoundRobin(c *codec.Coder) {
	of, at := x.roundRobins.Decode(c)
	if at == (roundRobin{}) {
		c.Fail("a round-robin position is empty")
		return
	}
	x.putRoundRobin(of, at)
}

// queuedForCredits reports whether a snapshot records what each payer with waiting jobs waits for.
func (x *restoring) queuedForCredits() bool {
	for k := range x.unfunded.All() {
		if !x.waits.Has(k.payer) {
			return false
		}
	}
	return true
}

// checkTurns compares the queue with the jobs that wait for credits, and checks that none of them
// could be funded already.
func (x *checking) checkTurns() {
	for k := range x.unfunded.All() {
		if j, waits := x.pending.Get(k.job); !waits || j.Hold != cluster.HeldForCredits || payerOf(j) != k.payer || !x.waits.Has(k.payer) {
			x.fault("job %d of %s is listed as waiting for credits", k.job, k.payer)
		}
	}
	under := 0
	for _, at := range x.roundRobins.All() {
		if at.turn > 0 {
			under++
		}
	}
	if under != x.queue.Len() {
		x.fault("%d roundRobins are under way, %d in the queue", under, x.queue.Len())
	}
	ledger := x.credits
	if ledger.NextDue() <= x.now {
		return // a price or a bucket begins: the due tick queues the payers
	}
	defer func() { x.credits = ledger }()
	for payer, causes := range x.waits.All() {
		due := !x.waitsStill(payer)
		for _, c := range causes {
			at, _ := x.roundRobins.Get(c)
			due = due || at.turn > 0
			if !x.members.Has(member{c, payer}) {
				x.fault("%s waits for what it is not listed with", payer)
			}
		}
		if due {
			continue
		}
		tries := 0
		for k := range x.unfunded.From(waiting{payer: payer}) {
			if tries++; k.payer != payer || tries > eachTurn {
				break
			}
			old, _ := x.pending.Get(k.job)
			j := *old
			x.credits = ledger.Clone()
			if x.fund(&j) == nil {
				x.fault("job %d of %s could be funded, but still waits", k.job, payer)
			}
		}
	}
}
