package raftlog

import (
	"time"

	"github.com/hashicorp/raft"
)

// Member is one server of the cluster.
type Member struct {
	ID, Addr string
	Voter    bool // false: a learner, which follows but has no vote
}

// Contact is when the leader last heard from another member, and the newest entry that it
// acknowledged.
type Contact struct {
	At        time.Time
	LastIndex uint64
}

// Status is one member's view of itself and the cluster.
type Status struct {
	ID, Addr, ClusterID  string
	State                string // leader, follower, candidate, stopped
	Term                 uint64
	LastIndex            uint64 // newest entry on disk
	CommitIndex          uint64 // newest entry known to be committed
	AppliedIndex         uint64 // newest command in the state
	LeaderID, LeaderAddr string // "" if unknown
	LastContact          time.Duration
	Members              []Member
	Contacts             map[string]Contact // on the leader: other members by ID, without those it never heard from
	Fresh                bool               // no state yet: needs Bootstrap, or AddMember by a leader
	WasMember            bool               // it was in a committed configuration since it was opened
	DiskLow              bool               // refuse submissions; see Config.ReserveBytes
	DiskFree             int64              // bytes that can be used before it is low
	LeaderChanges        uint64             // noticed since the start, the first leader included
	SnapshotAt           time.Time          // when the newest snapshot was taken or received; zero: none
}

// DiskLow is Status().DiskLow, for callers that ask with each request.
func (l *Log) DiskLow() bool { return l.reserve.low.Load() }

// NoVoterHasSpace reports whether a leader whose disk is low has looked for a voter with space and found
// none. It is false before it has looked, and while it transfers leadership.
func (l *Log) NoVoterHasSpace() bool { return l.crowded.Load() }

// IsMember reports whether this member is in the newest configuration that it knows.
func (l *Log) IsMember() bool {
	_, known := l.server(l.self.ID)
	return known
}

// Status returns the status without blocking. LastContact is the time since the last message of the
// leader: 0 on the leader, negative if there was none.
func (l *Log) Status() Status {
	s := Status{
		ID: l.self.ID, Addr: l.cfg.Addr, ClusterID: l.self.Cluster,
		Term:         l.raft.CurrentTerm(),
		LastIndex:    l.raft.LastIndex(),
		CommitIndex:  l.raft.CommitIndex(),
		AppliedIndex: l.machine.appliedIndex(),
		DiskLow:      l.reserve.low.Load(),
		DiskFree:     l.reserve.free.Load(),
		WasMember:    l.wasMember.Load(),

		LeaderChanges: l.changes.total(),
	}
	if ms := l.machine.snap.taken.Load(); ms > 0 {
		s.SnapshotAt = time.UnixMilli(ms)
	}
	s.LeaderID, s.LeaderAddr = l.Leader()
	s.State, s.LastContact, s.Contacts = "follower", -1, make(map[string]Contact)
	if last := l.raft.LastContact(); !last.IsZero() {
		s.LastContact = time.Since(last)
	}
	switch l.raft.State() {
	case raft.Leader:
		s.State, s.LastContact = "leader", 0
	case raft.Candidate:
		s.State = "candidate"
	case raft.Shutdown:
		s.State = "stopped"
	}
	for _, server := range l.raft.GetConfiguration().Configuration().Servers {
		t, err := parseTarget(string(server.Address))
		if err != nil {
			t.addr = string(server.Address)
		}
		s.Members = append(s.Members, Member{string(server.ID), t.addr, server.Suffrage == raft.Voter})
		if contact, ok := l.trans.contacts.Load(server.ID); ok && s.State == "leader" {
			s.Contacts[string(server.ID)] = contact.(Contact)
		}
	}
	s.Fresh = len(s.Members) == 0 && s.LastIndex == 0
	return s
}
