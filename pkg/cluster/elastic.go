package cluster

import (
	"slices"
	"time"
)

// Elastic says that a job takes part of its range of nodes while it runs: it starts with at least Request.Nodes, gets
// extra nodes up to Request.MaxNodes while they are idle, which are reclaimed when other jobs need them. The zero
// value is that of a job whose nodes do not change. An extra node is one beyond the minimum.
type Elastic struct {
	Step      int32 // extra nodes are granted in multiples of it; 0: the job is not elastic
	Signal    int32 // sent to its tasks after a change of its nodes; 0: none
	BatchOnly bool  // only the scripts get it
}

// On reports whether the job is elastic.
func (e Elastic) On() bool { return e.Step > 0 }

// ElasticPolicy says when jobs get extra nodes, and when they lose them.
type ElasticPolicy struct {
	MinTime  time.Duration // an extra node is in no plan for at least this time when it is granted
	Grace    time.Duration // between the decision to reclaim an extra node and SIGTERM
	Interval time.Duration // a job grows at the earliest this long after its last change of nodes
}

// DefaultElasticPolicy returns the rules of a new cluster.
func DefaultElasticPolicy() ElasticPolicy {
	return ElasticPolicy{MinTime: 20 * time.Minute, Grace: time.Minute, Interval: 15 * time.Minute}
}

// maxElasticGrace bounds the grace time of extra nodes.
const maxElasticGrace = 10 * time.Minute

func (p *ElasticPolicy) check(fault faultReporter) {
	for _, x := range []struct {
		key  string
		time time.Duration
	}{{"elastic.min_time", p.MinTime}, {"elastic.interval", p.Interval}} {
		if x.time < 0 || x.time > maxLimit {
			fault(x.key, "%s is out of range: 0s to %dd", x.time, maxLimit/(24*time.Hour))
		}
	}
	if p.Grace < 0 || p.Grace > maxElasticGrace {
		fault("elastic.grace", "%s is out of range: 0s to %s", p.Grace, maxElasticGrace)
	}
}

// checkElastic checks the range of an elastic job.
func (s *JobSpec) checkElastic(fault func(string, ...any)) {
	e, r := s.Elastic, &s.Request
	switch {
	case e.Step < 0 || e.Step > maxNodes:
		fault("a step of %d nodes is out of range", e.Step)
	case e.Signal < 0 || e.Signal > MaxSignal:
		fault("resize signal %d does not exist", e.Signal)
	case !e.On() && (e.Signal != 0 || e.BatchOnly):
		fault("a resize signal is only for elastic jobs")
	case !e.On():
	case r.MaxNodes <= r.Nodes:
		fault("an elastic job needs a range of nodes, such as 4-16")
	case r.MaxNodes-r.Nodes > MaxResizes:
		fault("%d extra nodes are out of range, an elastic job has at most %d", r.MaxNodes-r.Nodes, MaxResizes)
	case (r.MaxNodes-r.Nodes)%e.Step != 0:
		fault("a step of %d does not divide the %d extra nodes of %d-%d", e.Step, r.MaxNodes-r.Nodes, r.Nodes, r.MaxNodes)
	case r.Switches > 0 || r.Connect == ConnectLeaf || r.Connect == ConnectNVLink:
		fault("an elastic job cannot restrict the locality of its nodes: extra nodes may be under any switch")
	}
}

// Members are the nodes of an elastic job's current attempt, in the order of its allocation. They never change: a
// change makes other ones.
type Members struct {
	Epoch   uint32     // it grows with each change of the nodes: a plan for an earlier one is void
	Version uint32     // of the members file: it grows with each change of the nodes that it names
	Resized Instant    // of the last change of the nodes; 0: they are those of the start
	Resizes uint32     // how often nodes have joined or one has left: each is a segment of the bill
	Left    MembersUse // of the nodes that have left
	List    []Member
	Start   string         // the nodes of the start, as a hostlist; "": too long to keep
	Changes []MemberChange // oldest first, the newest 64; replaced, never changed
}

// MemberChange is one change of the nodes of an elastic job.
type MemberChange struct {
	At    Instant
	Nodes string // as a hostlist
	Joins bool   // they were granted; else they were ordered to leave, or are lost
	Why   string // why they leave
}

// maxMemberChanges is the number of changes of the nodes of an elastic job that are kept.
const maxMemberChanges = 64

// Note adds a change to members, a value that is not shared yet. A hostlist above the limit is not kept.
func (m *Members) Note(x MemberChange) {
	if len(x.Nodes) > maxAttemptNodes {
		return
	}
	from := max(0, len(m.Changes)+1-maxMemberChanges)
	m.Changes = append(slices.Clone(m.Changes[from:]), x)
}

// MembersUse is what the tasks on nodes of an elastic job used that it no longer has.
type MembersUse struct {
	CPUTime, User time.Duration
	GPU           GPUUse
	Held          HeldTime
}

// Add adds what the task of a node used that leaves, and how long the job has had the node. m is the member.
func (u *MembersUse) Add(t *Task, n *NodeAllocation, m *Member, now Instant) {
	u.CPUTime += t.CPUTime
	u.User += t.User
	u.GPU = u.GPU.Plus(t.GPU)
	u.Held.add(n, now.Sub(m.Joined))
}

// Member is a node of an elastic job. The job's attempt and Granted identify its membership: a node that lost it and
// gets it again is another member.
type Member struct {
	Number       int32   // NODEID of its tasks; the members of an attempt at one time have different ones
	Granted      uint64  // log index of the entry that granted it
	Joined       Instant // when it was granted
	Since        uint32  // version of the members file that names it first; 0: its task has not started yet
	SignalsAfter uint64  // it gets only signals with a later log index
	Leaves       Instant // when its tasks get SIGTERM, since it leaves the job; 0: it stays
	Stops        bool    // its tasks are being ended
	Why          string  // why it leaves
}

// Stays reports whether the node is to remain in the job.
func (m *Member) Stays() bool { return m.Leaves == 0 }

// NewMembers returns the members of an attempt that starts at an instant with a number of nodes, and with their hostlist.
func NewMembers(nodes int, names string, granted uint64, now Instant) *Members {
	m := &Members{Version: 1, List: make([]Member, nodes)}
	if len(names) <= maxAttemptNodes {
		m.Start = names
	}
	for i := range m.List {
		m.List[i] = Member{Number: int32(i), Granted: granted, Joined: now, Since: 1}
	}
	return m
}

// With returns members with another one at a rank.
func (m *Members) With(rank int, x Member) *Members {
	c := *m
	c.List = slices.Clone(m.List)
	c.List[rank] = x
	return &c
}

// Without returns members without the one at a rank.
func (m *Members) Without(rank int) *Members {
	c := *m
	c.List, c.Resizes = slices.Delete(slices.Clone(m.List), rank, rank+1), m.Resizes+1
	return &c
}

// WithMore returns members with some more, which are granted at an instant and have the lowest free numbers.
func (m *Members) WithMore(nodes int, granted uint64, now Instant) *Members {
	c := *m
	c.List, c.Resized, c.Epoch, c.Resizes = slices.Clip(slices.Clone(m.List)), now, m.Epoch+1, m.Resizes+1
	for number := int32(0); nodes > 0; number++ {
		if !slices.ContainsFunc(c.List, func(x Member) bool { return x.Number == number }) {
			c.List = append(c.List, Member{Number: number, Granted: granted, Joined: now, SignalsAfter: granted})
			nodes--
		}
	}
	return &c
}

// MaxResizes is how often nodes join or one leaves in an attempt at most: each is a segment of its bill.
const MaxResizes = 999

// Changing reports whether a change of the nodes is under way. O(members).
func (m *Members) Changing() bool {
	return slices.ContainsFunc(m.List, func(x Member) bool { return x.Since == 0 || !x.Stays() })
}

// MostMore returns how many nodes a running elastic job may get at most, so that each extra node can leave on its own
// before [MaxResizes]. O(1).
func (j *Job) MostMore() int32 {
	extra := len(j.Members.List) - int(j.Spec.Request.Nodes)
	return int32(max(0, MaxResizes-int(j.Members.Resizes)-1-extra))
}

// Staying returns how many members are to remain. O(members).
func (m *Members) Staying() (n int) {
	for i := range m.List {
		if m.List[i].Stays() {
			n++
		}
	}
	return n
}

// Due returns when the tasks of the next leaving member get SIGTERM; [Never] if no member leaves. O(members).
func (m *Members) Due() Instant {
	at := Never
	if m == nil {
		return at
	}
	for i := range m.List {
		if x := &m.List[i]; !x.Stays() && !x.Stops {
			at = min(at, x.Leaves)
		}
	}
	return at
}

// Leaving reports whether the node of a rank is leaving the job. O(1).
func (j *Job) Leaving(rank int) bool { return j.Members != nil && !j.Members.List[rank].Stays() }

// GrantOf returns the log index of the entry that granted the node of a rank. O(1).
func (j *Job) GrantOf(rank int) uint64 {
	if j.Members == nil {
		return j.Granted
	}
	return j.Members.List[rank].Granted
}

// LastGrant returns the log index of the entry that granted a node of the job last. O(1).
func (j *Job) LastGrant() uint64 {
	if j.Members == nil {
		return j.Granted
	}
	return j.Members.List[len(j.Members.List)-1].Granted
}

// NumberOf returns the NODEID of the tasks on the node of a rank. O(1).
func (j *Job) NumberOf(rank int) int32 {
	if j.Members == nil {
		return int32(rank)
	}
	return j.Members.List[rank].Number
}

// RankOf returns the rank of the node whose tasks have a NODEID; -1 if it does not exist. O(1), O(members) for an elastic job.
func (j *Job) RankOf(number int32) int {
	switch {
	case j.Alloc == nil || number < 0:
		return -1
	case j.Members != nil:
		return slices.IndexFunc(j.Members.List, func(m Member) bool { return m.Number == number })
	case int(number) < len(j.Alloc.Nodes):
		return int(number)
	}
	return -1
}

// NodeCount returns how many nodes the job is to keep: all, without those that leave. O(members).
func (j *Job) NodeCount() int {
	switch {
	case j.Members != nil:
		return j.Members.Staying()
	case j.Alloc != nil:
		return len(j.Alloc.Nodes)
	}
	return 0
}

// ExtraRanks returns the ranks of the extra nodes that stay, ascending: all but the first Request.Nodes of the staying
// ones. O(members).
func (j *Job) ExtraRanks() (ranks []int) {
	if j.Members == nil {
		return nil
	}
	least := j.Spec.Request.Nodes
	for rank := range j.Members.List {
		switch {
		case !j.Members.List[rank].Stays():
		case least > 0:
			least--
		default:
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// MayLose reports whether a job goes on without the node of a rank: it has an extra node that replaces it. The first
// node runs the script, or is the one that other tasks look for. Before the script starts, no other node verifies the
// share of a lost one. O(members).
func (j *Job) MayLose(rank int) bool {
	if share, of := j.ResumeShare(rank); share < of && j.State == Configuring && !j.Spec.EveryNode {
		return false
	}
	return rank > 0 && j.Members != nil && (j.Leaving(rank) || j.Members.Staying() > int(j.Spec.Request.Nodes))
}

// AllNamedReached reports whether all tasks have reached a phase; of an elastic job, those on nodes that have joined and
// stay. O(1), O(members) for an elastic job.
func (j *Job) AllNamedReached(phase TaskPhase) bool {
	if j.Members == nil {
		return j.Tasks.AllReached(phase)
	}
	for rank, t := range j.Tasks.All() {
		if m := &j.Members.List[rank]; m.Stays() && m.Since > 0 && t.Phase < phase {
			return false
		}
	}
	return true
}

// MemberNames returns the nodes that the members file names, by rank. O(members).
func (j *Job) MemberNames() []string {
	names := make([]string, 0, len(j.Members.List))
	for rank := range j.Members.List {
		if m := &j.Members.List[rank]; m.Stays() && m.Since > 0 {
			names = append(names, j.Alloc.Nodes[rank].Node)
		}
	}
	return names
}

// WithoutNode returns the steps of a job that loses the node of a rank: the nodes behind it have the next lower rank.
// The part of an active step on the node is lost, and a step without another node has ended. O(steps × nodes).
func WithoutNode(steps []*Step, rank int32, now Instant) []*Step {
	list := make([]*Step, len(steps))
	for i, old := range steps {
		s := *old
		s.Nodes = make([]StepNode, 0, len(old.Nodes))
		active := false
		for _, n := range old.Nodes {
			if n.Rank == rank {
				if s.Active() && !n.Ended {
					s.Exit = s.Exit.Worse(Exit{Signal: killed})
				}
				continue
			}
			if n.Rank > rank {
				n.Rank--
			}
			active = active || !n.Ended
			s.Nodes = append(s.Nodes, n)
		}
		if s.Active() && !active {
			s.Ended, s.Contact, s.Signals = now, nil, nil
		}
		list[i] = &s
	}
	return list
}

// killed is the number of SIGKILL.
const killed = 9

// NodeGrant gives extra nodes to a running job.
type NodeGrant struct {
	Job     JobID
	Attempt Attempt
	Epoch   uint32 // of the members
	Nodes   []NodeAllocation
}

// Reclaim removes extra nodes from a running job.
type Reclaim struct {
	Job     JobID
	Attempt Attempt
	Epoch   uint32 // of the members
	Nodes   []string
	For     JobID // the first job that needs them; 0: a reservation does, or an operator drains one of them
}

// SignalsFrom returns the log index up to which signals to the job are not for the node of a rank: they were sent
// before it belonged to the job, or because it joined. A task that has just started may have no handler yet.
// O(1).
func (j *Job) SignalsFrom(rank int) uint64 {
	if j.Members == nil {
		return 0
	}
	return j.Members.List[rank].SignalsAfter
}
