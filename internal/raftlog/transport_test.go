package raftlog

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// delayed is a transport that delays some messages.
type delayed struct {
	raft.Transport
	preVote    raft.WithPreVote
	timeoutNow time.Duration      // TimeoutNow is this late, and later entries wait at the gate
	muted      atomic.Bool        // that has happened
	to         raft.ServerAddress // messages to these wait at the gate, except heartbeats
	gate       <-chan struct{}
}

func (d *delayed) hold(to raft.ServerAddress) {
	if to == d.to {
		<-d.gate
	}
}

func (d *delayed) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	return d.preVote.RequestPreVote(id, to, q, a)
}

func (d *delayed) TimeoutNow(id raft.ServerID, to raft.ServerAddress, q *raft.TimeoutNowRequest, a *raft.TimeoutNowResponse) error {
	time.Sleep(d.timeoutNow)
	d.muted.Store(true)
	return d.Transport.TimeoutNow(id, to, q, a)
}

func (d *delayed) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	d.hold(to)
	return d.Transport.RequestVote(id, to, q, a)
}

func (d *delayed) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	if d.muted.Load() {
		<-d.gate
	}
	if heartbeat := q.PrevLogEntry == 0 && q.LeaderCommitIndex == 0 && len(q.Entries) == 0; !heartbeat {
		d.hold(to)
	}
	return d.Transport.AppendEntries(id, to, q, a)
}

func (d *delayed) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// memLayer connects the library's network transport to the network in memory.
type memLayer struct{ *memListener }

func (l memLayer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return l.memListener.Dial(string(to), timeout)
}

// plainFSM collects what the library alone applies.
type plainFSM struct{ applied map[uint64]string }

func (p plainFSM) Apply(l *raft.Log) any               { p.applied[l.Index] = string(l.Data); return nil }
func (p plainFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, io.EOF }
func (p plainFSM) Restore(io.ReadCloser) error         { return nil }

type plainNode struct {
	*raft.Raft
	fsm   plainFSM
	wires *delayed
	trans *raft.NetworkTransport
	net   *memListener
}

// plainCluster is the library with three members, its network transport, and nothing of this
// package except, if serial, the transport's handling of heartbeats.
func plainCluster(t *testing.T, serial bool) []plainNode {
	t.Helper()
	wires := newMemNet()
	var servers []raft.Server
	for _, name := range []string{"a", "b", "c"} {
		servers = append(servers, raft.Server{ID: raft.ServerID(name), Address: raft.ServerAddress(name)})
	}
	var nodes []plainNode
	for _, s := range servers {
		cfg := raft.DefaultConfig()
		cfg.LocalID, cfg.Logger = s.ID, hclog.NewNullLogger()
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 250*time.Millisecond
		store := raft.NewInmemStore()
		n := plainNode{fsm: plainFSM{map[uint64]string{}}, net: wires.listen(string(s.Address))}
		n.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: memLayer{n.net}, MaxPool: 3, Timeout: 5 * time.Second, Logger: cfg.Logger})
		var network raft.Transport = n.trans
		if serial {
			network = &transport{network: n.trans, local: s.Address}
			network = bareNames{network.(*transport)}
		}
		n.wires = &delayed{Transport: network, preVote: n.trans}
		if err := raft.BootstrapCluster(cfg, store, store, raft.NewInmemSnapshotStore(), n.wires, raft.Configuration{Servers: servers}); err != nil {
			t.Fatal(err)
		}
		var err error
		if n.Raft, err = raft.NewRaft(cfg, n.fsm, store, store, raft.NewInmemSnapshotStore(), n.wires); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// bareNames sends without the member's ID, which only this package's mux reads.
type bareNames struct{ *transport }

func (b bareNames) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	return b.network.AppendEntries(id, to, q, a)
}
func (b bareNames) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	return b.network.RequestVote(id, to, q, a)
}
func (b bareNames) TimeoutNow(id raft.ServerID, to raft.ServerAddress, q *raft.TimeoutNowRequest, a *raft.TimeoutNowResponse) error {
	return b.network.TimeoutNow(id, to, q, a)
}

// raft695 reproduces hashicorp/raft#695. The leader transfers to heir; the message is so late that
// the transfer was given up when heir starts an election and wins with the third member's vote.
// Their later messages are late too, except heir's heartbeats. The old leader's main loop sleeps;
// now a client writes. It returns what each member applied.
func raft695(t *testing.T, serial bool) (applied []map[uint64]string, outcome error) {
	nodes := plainCluster(t, serial)
	var old, heir plainNode
	for old.Raft == nil {
		time.Sleep(10 * time.Millisecond)
		for i, n := range nodes {
			if n.State() == raft.Leader {
				old, heir = n, nodes[(i+1)%3]
			}
		}
	}
	if err := old.Apply([]byte("first"), 0).Error(); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	heir.wires.to, heir.wires.gate = old.wires.LocalAddr(), gate
	old.wires.gate, old.wires.timeoutNow = gate, 2*time.Second
	old.LeadershipTransferToServer(raft.ServerID(heir.wires.LocalAddr()), heir.wires.LocalAddr())
	term := old.CurrentTerm()
	for old.CurrentTerm() == term { // a heartbeat of the heir has arrived
		time.Sleep(time.Millisecond)
	}
	outcome = old.Apply([]byte("stray"), 0).Error()
	close(gate)
	if err := heir.Apply([]byte("second"), 0).Error(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	for _, n := range nodes {
		n.Shutdown().Error()
		n.trans.Close()
		n.trans.CloseStreams()
		applied = append(applied, n.fsm.applied)
	}
	for _, pipes := range nodes[0].net.n.pipes {
		for _, c := range pipes {
			c.Close()
		}
	}
	return applied, outcome
}

// TestHeartbeatsOnTheMainLoop checks that the library alone diverges, and does not with heartbeats
// on the main loop. If the first half fails after an upgrade, the library has been fixed: then
// consider dropping the workaround.
func TestHeartbeatsOnTheMainLoop(t *testing.T) {
	for _, serial := range []bool{false, true} {
		t.Run(fmt.Sprintf("serial=%v", serial), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				applied, outcome := raft695(t, serial)
				diverged := fmt.Sprint(applied[0]) != fmt.Sprint(applied[1]) || fmt.Sprint(applied[1]) != fmt.Sprint(applied[2])
				t.Logf("stray write: %v; applied %v", outcome, applied)
				if diverged == serial {
					t.Errorf("serial heartbeats: %v, replicas diverged: %v", serial, diverged)
				}
			})
		})
	}
}

// TestMemberUsesSerialHeartbeats checks that a member's own transport is of that kind.
func TestMemberUsesSerialHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMux(newMemNet().listen("x"), identity{}, quiet())
		trans := newTransport(m, target{}, time.Second, logAdapter{quiet()})
		defer trans.Close()
		called := make(chan struct{}, 1)
		trans.SetHeartbeatHandler(func(raft.RPC) { called <- struct{}{} })
		here, there := net.Pipe()
		go func() { m.raft <- there }()
		beat := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("l"), Addr: []byte("l")}, Term: 1}
		client := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: onePipe{here}, MaxPool: 1, Timeout: time.Second, Logger: hclog.NewNullLogger()})
		go client.AppendEntries("x", "x", beat, &raft.AppendEntriesResponse{})
		select {
		case rpc := <-trans.Consumer():
			rpc.Respond(&raft.AppendEntriesResponse{}, nil)
		case <-called:
			t.Error("a heartbeat went past the main loop")
		case <-time.After(time.Minute):
			t.Error("the heartbeat never arrived")
		}
		client.Close()
		here.Close()
		there.Close()
	})
}

// onePipe is a stream layer that dials one connection.
type onePipe struct{ conn net.Conn }

func (p onePipe) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) { return p.conn, nil }
func (p onePipe) Accept() (net.Conn, error)                                { return nil, net.ErrClosed }
func (p onePipe) Close() error                                             { return nil }
func (p onePipe) Addr() net.Addr                                           { return &net.UnixAddr{Name: "pipe"} }

// answers is the library's pipeline, with answers of the test's.
type answers struct {
	raft.AppendPipeline
	ready chan raft.AppendFuture
}

func (a answers) Consumer() <-chan raft.AppendFuture { return a.ready }
func (a answers) Close() error                       { return nil }

// accepted is an answer to one entry.
type accepted struct {
	raft.AppendFuture
	success bool
}

func (a accepted) Request() *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 1}}}
}

func (a accepted) Response() *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Success: a.success}
}

// TestAnswersAreTakenWhenNobodyListens checks that answers are taken from the library when raft no
// longer listens: after a refusal, and when this member's disk will never have the entry.
func TestAnswersAreTakenWhenNobodyListens(t *testing.T) {
	broken := errors.New("broken")
	for _, onDisk := range []error{nil, broken} {
		synctest.Test(t, func(t *testing.T) {
			inner := answers{ready: make(chan raft.AppendFuture)}
			p := newPipeline(inner, func(uint64) error { return onDisk })
			defer p.Close()
			inner.ready <- accepted{success: onDisk != nil}
			if onDisk == nil {
				<-p.Consumer()
			}
			for range 5 {
				synctest.Wait()
				select {
				case inner.ready <- accepted{}:
				default:
					t.Fatalf("the next answer is not taken; on this disk: %v", onDisk)
				}
			}
		})
	}
}
