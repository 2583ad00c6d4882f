package raftlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Errors of membership changes.
var (
	// ErrHasState reports that Bootstrap was called on a member that already has a log.
	ErrHasState = errors.New("raftlog: this member already belongs to a cluster")
	// ErrNotCaughtUp reports that the new member follows but is not up to date yet and has no vote.
	// Call AddMember again to continue.
	ErrNotCaughtUp = errors.New("raftlog: the new member is not up to date yet")
	// ErrNoMember reports that the member does not exist.
	ErrNoMember = errors.New("raftlog: no such member")
	// ErrLastVoter reports that the only member with a vote cannot be removed.
	ErrLastVoter = errors.New("raftlog: the last voting member cannot be removed")
	// ErrOnlyVoter reports that leadership cannot leave the only member with a vote.
	ErrOnlyVoter = errors.New("raftlog: no other voting member can lead")
	// ErrRemoved is Err after this member was removed from the cluster.
	ErrRemoved = errors.New("raftlog: this member was removed from the cluster")
	// ErrRetired is returned for a member id that was removed and is refused permanently.
	ErrRetired = errors.New("raftlog: the member was removed, and a removed ID is refused permanently")
)

// AddressError refuses a new member whose address another member has.
type AddressError struct {
	Addr, Holder string // Holder is the ID of the member that has it
}

// Error names the address and its holder.
func (e *AddressError) Error() string {
	return fmt.Sprintf("raftlog: the address %s belongs to member %s", e.Addr, e.Holder)
}

// caughtUpLag is how many entries a learner may lag when it gets its vote.
const caughtUpLag = 256

// Bootstrap makes this member the first of a new cluster. It is refused with ErrHasState if the
// member has ever had any state, so a cluster cannot be initialized twice; every other member joins
// by AddMember.
func (l *Log) Bootstrap() error {
	err := l.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(l.self.ID), Address: l.target().stored(),
	}}}).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return ErrHasState
	}
	if err != nil {
		return fmt.Errorf("raftlog: bootstrap: %w", err)
	}
	return nil
}

// AddMember adds the member that answers at addr: as a learner first, with a vote once it is up to
// date, so that it never counts before it can serve. A repeated call continues; with another addr,
// the member has moved. Only the leader can do it. What answers at addr must be a member of this
// cluster that has not lost its data directory since it was added (ErrWrongMember, ErrWrongCluster)
// and was never removed (ErrRetired), and no other member may have addr (*AddressError).
func (l *Log) AddMember(ctx context.Context, id, addr string) error {
	if err := errors.Join(checkID(id), checkAddr(addr)); err != nil {
		return fmt.Errorf("raftlog: add member: %w", err)
	}
	t, err := l.identify(id, addr)
	if err != nil {
		return fmt.Errorf("add member %s: %w", id, err)
	}
	if err := l.addLearner(ctx, t); err != nil {
		return fmt.Errorf("add member %s: %w", id, err)
	}
	if server, known := l.server(id); known && server.Suffrage == raft.Voter {
		return nil
	}
	if err := l.awaitLearner(ctx, t); err != nil {
		return err
	}
	if err := l.giveVote(ctx, t); err != nil {
		return fmt.Errorf("promote member %s to voter: %w", id, err)
	}
	l.spread(ctx)
	return nil
}

// addLearner adds a member without a vote, or commits the new address of one that has moved.
func (l *Log) addLearner(ctx context.Context, t target) error {
	return l.change(ctx, func(servers []raft.Server) (raft.IndexFuture, error) {
		server, known := find(servers, t.id)
		if known {
			if old, err := parseTarget(string(server.Address)); err != nil || old.incarnation != t.incarnation {
				return nil, ErrWrongMember
			}
		}
		if l.retired(t.id) {
			return nil, ErrRetired
		}
		for _, other := range servers {
			if at, err := parseTarget(string(other.Address)); err == nil && at.addr == t.addr && string(other.ID) != t.id {
				return nil, &AddressError{Addr: t.addr, Holder: string(other.ID)}
			}
		}
		if known && server.Address == t.stored() {
			return nil, nil
		}
		// For a member that has a vote this changes only its address.
		return l.raft.AddNonvoter(raft.ServerID(t.id), t.stored(), 0, enqueueTimeout), nil
	})
}

// giveVote promotes a learner to voter, unless it was removed in the meantime.
func (l *Log) giveVote(ctx context.Context, t target) error {
	return l.change(ctx, func(servers []raft.Server) (raft.IndexFuture, error) {
		server, known := find(servers, t.id)
		switch {
		case l.retired(t.id):
			return nil, ErrRetired
		case !known || server.Address != t.stored():
			return nil, ErrNoMember
		case server.Suffrage == raft.Voter:
			return nil, nil
		}
		return l.raft.AddVoter(server.ID, server.Address, 0, enqueueTimeout), nil
	})
}

// promote promotes learners that have caught up: the AddMember call that added a
// learner may have ended before, with its caller or with an earlier leader.
func (l *Log) promote(answers []peerAnswer) {
	for _, h := range answers {
		t, err := parseTarget(string(named(h.server.ID, h.server.Address)))
		if err != nil || h.err != nil || h.server.Suffrage == raft.Voter || !l.caughtUp(h.peerStatus) {
			continue
		}
		ctx, cancel := context.WithTimeout(l.life, l.cfg.CheckInterval)
		err = l.giveVote(ctx, t)
		cancel()
		if err != nil {
			l.log.Warn("a learner caught up but was not promoted, retrying", "learner", t.id, "err", err)
			continue
		}
		l.log.Info("a learner caught up and was promoted to voter", "learner", t.id)
	}
}

// caughtUp reports whether a learner has nearly every entry.
func (l *Log) caughtUp(s peerStatus) bool {
	return s.Applied+caughtUpLag >= l.raft.CommitIndex() && s.Applied > 0
}

// spread waits, for a few seconds at most, until every member that answers knows the configuration
// that this one knows. A member that does not know of a new voter refuses it its vote; if the
// leader were lost now, and the new voter had the longer log, neither could win until the leader is
// back.
func (l *Log) spread(ctx context.Context) {
	const rounds, pause = 60, 50 * time.Millisecond
	index := l.machine.configuration().index
	for range rounds {
		replies, asked := l.askAll(l.raft.GetConfiguration().Configuration().Servers, question{}, time.Second)
		behind := false
		for range asked {
			h := <-replies
			behind = behind || (h.err == nil && h.ConfigIndex < index)
		}
		if !behind {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-l.stop:
			return
		case <-time.After(pause):
		}
	}
}

// identify asks which member answers at addr; it must have that ID.
func (l *Log) identify(id, addr string) (target, error) {
	conn, who, err := l.mux.dial(useProbe, target{addr: addr}, l.rpcTimeout())
	if err != nil {
		return target{}, err
	}
	conn.Close()
	if who.id != id {
		return target{}, fmt.Errorf("%w: it reports the ID %q", ErrWrongMember, who.id)
	}
	return target{id: id, addr: addr, incarnation: who.incarnation}, nil
}

// Identify returns the id of the member that answers at addr, which need not belong to the
// cluster yet, and the certificate with which it authenticated; nil without TLS.
func (l *Log) Identify(addr string) (id string, leaf *x509.Certificate, err error) {
	if err := checkAddr(addr); err != nil {
		return "", nil, fmt.Errorf("raftlog: %w", err)
	}
	conn, who, err := l.mux.dial(useProbe, target{addr: addr}, l.rpcTimeout())
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	return who.id, certificateOf(conn), nil
}

// certificateOf returns the peer's certificate on a connection that dial made; nil without TLS.
func certificateOf(conn net.Conn) *x509.Certificate {
	if c, ok := conn.(*trackedConn); ok {
		conn = c.Conn
	}
	secure, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}
	if chain := secure.ConnectionState().PeerCertificates; len(chain) > 0 {
		return chain[0]
	}
	return nil
}

// awaitLearner waits until the learner has nearly every entry.
func (l *Log) awaitLearner(ctx context.Context, t target) error {
	for {
		s, err := l.prober.ask(t, question{}, l.rpcTimeout())
		if err == nil && l.caughtUp(s) {
			return nil
		}
		if _, known := l.server(t.id); !known && l.retired(t.id) {
			return fmt.Errorf("add member %s: %w", t.id, ErrRetired)
		}
		if !l.IsLeader() {
			return l.orClosed(ErrNotLeader)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNotCaughtUp, errors.Join(err, ctx.Err()))
		case <-l.stop:
			return ErrClosed
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// RemoveMember removes a member from the cluster; the member stops when it learns of it
// (removed.go). Only the leader can do it, also for itself: it may have stopped by the time that
// RemoveMember returns nil. Removing one that is up while another is down can cost the majority: the
// caller decides.
func (l *Log) RemoveMember(ctx context.Context, id string) error {
	err := l.change(ctx, func(servers []raft.Server) (raft.IndexFuture, error) {
		server, known := find(servers, id)
		switch {
		case !known:
			return nil, ErrNoMember
		case server.Suffrage == raft.Voter && len(voters(servers)) == 1:
			return nil, ErrLastVoter
		}
		return l.raft.RemoveServer(server.ID, 0, enqueueTimeout), nil
	})
	if id == l.self.ID && errors.Is(l.Err(), ErrRemoved) {
		return nil // the member may stop before it hears that its own request was committed
	}
	if err != nil {
		return fmt.Errorf("remove member %s: %w", id, err)
	}
	return nil
}

// Transfer transfers leadership to a member, or to the most up-to-date one if id is "". Only the
// leader can do it.
func (l *Log) Transfer(ctx context.Context, id string) error {
	if !l.IsLeader() {
		return l.orClosed(ErrNotLeader)
	}
	return l.await(ctx, func() error {
		if id == "" {
			if l.onlyVoter() {
				return ErrOnlyVoter
			}
			return l.handOver(l.raft.LeadershipTransfer)
		}
		server, known := l.server(id)
		if !known {
			return fmt.Errorf("transfer to %s: %w", id, ErrNoMember)
		}
		return l.handOverTo(server)
	})
}

// onlyVoter reports whether no other member has a vote.
func (l *Log) onlyVoter() bool {
	return !slices.ContainsFunc(l.raft.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && string(s.ID) != l.self.ID
	})
}

// handOver transfers leadership and waits for the result. The library never answers a transfer that
// still waits for its turn when raft is shut down, so shutdown waits for transfers.
func (l *Log) handOver(start func() raft.Future) error {
	if !l.handing.begin() {
		return ErrClosed
	}
	defer l.handing.under.Done()
	return start().Error()
}

func (l *Log) handOverTo(server raft.Server) error {
	return l.handOver(func() raft.Future { return l.raft.LeadershipTransferToServer(server.ID, server.Address) })
}

// stopRaft shuts raft down, once no transfer is under way.
func (l *Log) stopRaft() raft.Future {
	l.handing.end()
	return l.raft.Shutdown()
}

// handovers counts transfers under way, and stops new ones at shutdown.
type handovers struct {
	mu    sync.Mutex
	ended bool
	under sync.WaitGroup
}

// begin counts one more, which calls under.Done when it is over; false after end.
func (h *handovers) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.under.Add(1)
	}
	return !h.ended
}

func (h *handovers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.under.Wait()
}

// server finds a member in the newest configuration.
func (l *Log) server(id string) (raft.Server, bool) {
	return find(l.raft.GetConfiguration().Configuration().Servers, id)
}

func find(servers []raft.Server, id string) (raft.Server, bool) {
	for _, s := range servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// change commits a membership change, which start checks and proposes for the newest configuration;
// no other change happens in between. A nil future changes nothing. Errors mean the same as
// Propose's.
func (l *Log) change(ctx context.Context, start func([]raft.Server) (raft.IndexFuture, error)) error {
	if !l.IsLeader() {
		return l.orClosed(ErrNotLeader)
	}
	return l.await(ctx, func() error {
		l.members.Lock()
		defer l.members.Unlock()
		future, err := start(l.raft.GetConfiguration().Configuration().Servers)
		if err != nil || future == nil {
			return err
		}
		switch err := future.Error(); {
		case err == nil:
			return nil
		case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
			return l.orClosed(ErrNotLeader)
		case errors.Is(err, raft.ErrEnqueueTimeout):
			return ErrBusy
		default:
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
	})
}

// await runs f, which cannot be interrupted, and returns its error or, if ctx is
// done first, ErrOutcomeUnknown.
func (l *Log) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-l.dead:
		return ErrClosed
	}
}
