// Package state holds everything that the controllers agree on: jobs, nodes, policy, tokens,
// answers to requests, and the newest finished jobs.
//
// It decides what each command changes and answers, from the command, the log index, the log's
// clock and the state alone, so that every replica decides the same. It never reads a clock, never
// does I/O, never logs, never panics on a command, and has no locks: its one owner calls it from
// one goroutine at a time. Readers elsewhere take a [View].
package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/blobs"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// State is the whole replicated state. Only its owner may touch it.
type State struct {
	tables
	limits  limits
	hasher  *table.Hasher
	effects Effects
	view    *View // of the present state; nil until it is needed
	peeked  View  // reused by Peek

	policyHash, fabricHash uint64
	specs                  specCache
	localities             map[string]*admission.Locality // by partition; cleared with the index
	words                  wordCache
	scratch                cluster.JobSpec // of the submission being checked
	faults                 []error         // violated invariants; Check reports them
	isRetry                bool            // the present command repeats one that was answered
	unwatched              bool            // without archive and followers
}

// limits bounds what the state keeps. They are equal on all replicas.
type limits struct {
	tail         int // finished jobs
	requests     int
	requestBytes int
	levels       int // of the fleet
}

func defaultLimits() limits {
	return limits{tail: 65_536, requests: 2_000_000, requestBytes: 512 << 20, levels: 100_000}
}

// New returns the state of a new cluster: no jobs, no nodes, [cluster.DefaultPolicy].
func New() *State { return newState(defaultLimits(), new(table.Hasher)) }

// NewUnwatched returns a state for simulations: it keeps no audit journal and no digest, reports no
// changed or finished jobs, and drops finished jobs early.
func NewUnwatched() *State {
	few := defaultLimits()
	few.tail = 1024
	s := newState(few, nil)
	s.unwatched = true
	return s
}

func newState(l limits, h *table.Hasher) *State {
	s := &State{tables: newTables(h), limits: l, hasher: h, localities: map[string]*admission.Locality{}}
	s.policyHash, s.fabricHash = s.hashPolicy(), s.hashFabric()
	return s
}

// Apply carries out one command of the log entry index, whose leader stamped it
// at. Several commands of one entry share its index. Time never goes back: an
// earlier at counts as the latest seen. A command that is not allowed changes
// nothing and answers a *command.Refusal. Apply never panics on a command.
func (s *State) Apply(index uint64, at cluster.Instant, c command.Command) command.Result {
	s.view = nil
	last := s.now
	s.index, s.now = max(index, s.index), max(at, s.now, 1) // 0 means "not set"
	s.credits.WatchFreed()
	s.forget(forgetAtOnce)
	s.isRetry = false
	before := s.policy
	r := s.dispatch(c)
	s.hosts.ExpireCertificates(last, s.now)
	if _, tick := c.(*command.Tick); tick {
		s.fundHeld(last, maxFailedTick)
	} else {
		s.fundHeld(last, maxFailedTurns)
	}
	s.audit(c, r, before)
	return r
}

// dispatch carries out one command.
func (s *State) dispatch(c command.Command) command.Result {
	switch c := c.(type) {
	case *command.Init:
		return s.initialise(c)
	case *command.SubmitJobs:
		return s.submit(c)
	case *command.CancelJobs:
		return s.cancel(c)
	case *command.UpdateJobs:
		return s.update(c)
	case *command.CreateStep:
		return s.createStep(c)
	case *command.SignalStep:
		return s.signalStep(c)
	case *command.AttachStep:
		return s.attachStep(c)
	case *command.CommitCheckpoint:
		return s.commitCheckpoint(c)
	case *command.SetCheckpoint:
		return s.setCheckpoint(c)
	case *command.SetCron, *command.UpdateCron, *command.RecordCron:
		return s.changeCrontab(c)
	case *command.SetSecret, *command.DeleteSecrets, *command.ResealSecrets:
		return s.changeSecrets(c)
	case *command.RegisterNode, *command.ReportTasks, *command.SetLiveness, *command.UpdateNodes, *command.FenceNode:
		return s.ofNodes(c)
	case *command.CommitPlan:
		return s.commit(c)
	case *command.Tick:
		return s.tick(c)
	case *command.ApplyPolicy:
		return s.applyPolicy(c)
	case *command.CreateToken:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.hosts.CreateToken(s.now, c, s.nodes.Has) })
	case *command.UseToken:
		return s.done(s.useToken(c))
	case *command.EditAccounts:
		return s.editAccounts(c)
	case *command.ChangeCredits:
		return s.changeCredits(c)
	case *command.RecordMember:
		refusal, known := s.hosts.RecordController(c)
		s.isRetry = known
		return s.done(refusal)
	case *command.RetireMember:
		refusal, again := s.hosts.RetireController(s.now, c)
		s.isRetry = again
		return s.done(refusal)
	case *command.MeterJobs:
		return s.meterJobs(c)
	case *command.SetTopology:
		return s.setTopology(c)
	case *command.PutBlob:
		return s.done(s.blobs.Put(s.now, c))
	case *command.Restored:
		return s.restored(c)
	case *command.SetOffers, *command.UpdateLeases, *command.EndLeases:
		return s.ofLeases(c)
	case *command.RecordCertificate:
		return s.done(s.hosts.RecordCertificate(s.now, c))
	case *command.RotateCA:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.hosts.RotateCA(s.now, c) })
	case *command.RevokeCertificates:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.hosts.RevokeCertificates(s.now, c) })
	}
	return command.Refuse(command.Internal, "unknown command", "upgrade this controller")
}

// ofNodes carries out a command about nodes.
func (s *State) ofNodes(c command.Command) command.Result {
	switch c := c.(type) {
	case *command.RegisterNode:
		return s.register(c)
	case *command.ReportTasks:
		return s.report(c)
	case *command.SetLiveness:
		return s.setLiveness(c)
	case *command.UpdateNodes:
		return s.updateNodes(c)
	case *command.FenceNode:
		return s.fenceNode(c)
	}
	return command.Refuse(command.Internal, "unknown command about nodes", "")
}

// changeCrontab carries out a command about recurring jobs.
func (s *State) changeCrontab(c command.Command) command.Result {
	switch c := c.(type) {
	case *command.SetCron:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.crontab.Set(s.now, s.index, c) })
	case *command.UpdateCron:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.crontab.Update(s.now, c) })
	case *command.RecordCron:
		s.crontab.Record(s.now, c)
	}
	return s.done(nil)
}

// changeSecrets carries out a command about secrets.
func (s *State) changeSecrets(c command.Command) command.Result {
	switch c := c.(type) {
	case *command.SetSecret:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.secrets.Set(s.now, s.index, s.hosts.Rotation(), c) })
	case *command.DeleteSecrets:
		return s.once(c.Request, func() (*command.Refusal, bool) { return s.secrets.Delete(c) })
	case *command.ResealSecrets:
		s.secrets.Reseal(s.hosts.Rotation(), c)
	}
	return s.done(nil)
}

// View returns the present state. It never changes afterwards, and any number of goroutines may
// read it. O(1), or O(nodes) after the nodes of a partition changed.
func (s *State) View() *View {
	if s.view == nil {
		s.rebuildPartitionIndex()
		s.accounts.Tree()
		s.view = &View{tables: s.clone(), digest: s.Digest()}
	}
	return s.view
}

// Peek is View for a caller that drops it before the next command: commands then copy nothing that
// a View could see. It has no digest.
func (s *State) Peek() *View {
	if s.view != nil {
		return s.view
	}
	s.rebuildPartitionIndex()
	s.accounts.Tree()
	s.peeked.tables = s.tables
	return &s.peeked
}

// Effects returns what must be done outside the state because of the commands applied since the
// last call, and clears it.
func (s *State) Effects() Effects {
	s.effects.Entries, s.effects.Blobs = s.credits.Ledger().Drain(), s.blobs.Drain()
	e := s.effects
	s.effects = Effects{}
	return e
}

// forgetAtOnce is the number of expired records that any command may drop, so that nothing grows
// between ticks and no command takes long.
const forgetAtOnce = 64

// forget drops expired records: requests, unused blobs and old bills.
func (s *State) forget(most int) {
	s.credits.CloseBills(s.now, most)
	s.requests.forget(s.now, most)
	s.blobs.Forget(s.now, most)
}

// Effects is what must happen outside the state because of the commands applied.
type Effects struct {
	Blobs    []blobs.Blob         // to be stored before the entry counts as applied
	Finished []Finished           // to be archived, ascending by Seq without gaps
	Amended  []Finished           // ended jobs whose archived record changes; applied after Finished
	Changed  []Change             // in the order they happened
	Entries  []accounting.Entry   // of the journal of credits, ascending by Seq without gaps, to be archived
	Audit    []command.AuditEntry // of the audit journal, likewise
	Leases   []cluster.EndedLease // that have ended, likewise
}

// Finished is a job that has ended. Seq numbers finished jobs 1, 2, 3, ... in the
// order in which they ended, equal on every replica.
type Finished struct {
	Seq    uint64
	Job    *cluster.Job
	Record []byte // the job as command.EncodeJob writes it
}

// ChangeKind is the subject of a Change.
type ChangeKind uint8

// The kinds.
const (
	JobChanged ChangeKind = iota + 1
	NodeChanged
	PolicyChanged
	LeasesChanged // leases, offers, or their pauses
)

// Change is one change of a job or node.
type Change struct {
	Kind ChangeKind
	Job  cluster.JobID // of a JobChanged
	Old  *cluster.Job  // before; nil when the job is new
	New  *cluster.Job  // after, final states included
	// Node is that of a NodeChanged; it may have been removed. For a JobChanged, Node is the only node
	// whose task changed, or "" if all nodes of the job may be affected.
	Node string
}
