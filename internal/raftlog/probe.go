package raftlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// question is sent in a probe, which asks a peer for its status without going through raft. Reads
// use the term (read.go), the clock guard the clock, the disk guard the space, the checkpoint the
// digest, AddMember the lag of a learner, and a member without a leader whether it is still a
// member.
//
// One connection carries any number of questions and answers, in turn: the fields below,
// little-endian, after their length in 2 bytes. Later versions add fields at the end; a missing
// field is 0, and unknown ones are skipped.
type question struct {
	// DigestAt asks for the digest of the state right after the entry of this
	// index; 0 asks for none. The peer waits a little for the entry to arrive.
	DigestAt uint64
}

type peerStatus struct {
	Term        uint64
	Leader      bool
	Applied     uint64 // all entries up to this one are in the state
	Now         int64  // unix ns on the peer's wall clock
	DigestKnown bool
	Digest      uint64
	ConfigIndex uint64 // of the newest committed configuration it knows
	Member      bool   // the asker is in that configuration
	DiskLow     bool   // see Config.ReserveBytes
	Stamp       int64  // unix ns on the clock with which the peer would stamp entries
	// DigestVersion is the peer's digest version (FSM).
	DigestVersion uint16
}

const (
	digestPatience = 2 * time.Second
	probeIdle      = 4 // idle connections kept for each peer
)

// AllCompatible reports whether every other member, voter or not, answers now and has this digest
// version. Commands that members of another version would apply differently may be proposed after
// that. It takes as long as the slowest answer, at most two seconds. It reports false if the
// context ends first.
func (l *Log) AllCompatible(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, digestPatience) // an old connection is tried before a new one
	defer cancel()
	replies, asked := l.askAll(l.raft.GetConfiguration().Configuration().Servers, question{}, digestPatience)
	compatible := true
	for range asked {
		select {
		case h := <-replies:
			compatible = compatible && h.err == nil && h.DigestVersion == l.machine.fsm.DigestVersion()
		case <-ctx.Done():
			return false
		}
	}
	return compatible
}

// serveProbe answers questions on one connection until it closes.
func (l *Log) serveProbe(conn net.Conn, from string) {
	r := bufio.NewReaderSize(conn, 64)
	for {
		var q question
		if err := readFrame(r, &q); err != nil {
			return
		}
		s := l.peerStatus(q, from)
		if err := writeFrame(conn, &s); err != nil {
			return
		}
	}
}

func (l *Log) peerStatus(q question, from string) peerStatus {
	s := peerStatus{
		Term:    l.raft.CurrentTerm(),
		Leader:  l.raft.State() == raft.Leader,
		Applied: l.raft.AppliedIndex(),
		DiskLow: l.reserve.low.Load(),

		DigestVersion: l.machine.fsm.DigestVersion(),
	}
	if q.DigestAt != 0 {
		ctx, cancel := context.WithTimeout(l.life, digestPatience)
		l.machine.wait(ctx, q.DigestAt) // if it does not come, the digest is unknown
		cancel()
		s.Digest, s.DigestKnown = l.machine.digestAt(q.DigestAt)
	}
	config := l.machine.configuration()
	s.ConfigIndex = config.index
	for _, server := range config.servers {
		s.Member = s.Member || string(server.ID) == from
	}
	s.Now, s.Stamp = l.cfg.Wall().UnixNano(), l.cfg.Clock().UnixNano()
	return s
}

// maxFrame is longer than any frame that a version ever had.
const maxFrame = 1024

// writeFrame writes the fields of a question or a status.
func writeFrame(w io.Writer, v any) error {
	frame, err := binary.Append(make([]byte, 2, 128), binary.LittleEndian, v)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint16(frame, uint16(len(frame)-2))
	_, err = w.Write(frame)
	return err
}

// readFrame reads a frame of this or another version.
func readFrame(r io.Reader, v any) error {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint16(length[:]))
	if n > maxFrame {
		return fmt.Errorf("%w: a probe of %d bytes", errHandshake, n)
	}
	frame := make([]byte, max(n, binary.Size(v)))
	if _, err := io.ReadFull(r, frame[:n]); err != nil {
		return err
	}
	_, err := binary.Decode(frame, binary.LittleEndian, v)
	return err
}

// prober keeps connections to peers for probes.
type prober struct {
	mux  *mux
	mu   sync.Mutex
	idle map[target][]net.Conn
}

func newProber(m *mux) *prober { return &prober{mux: m, idle: map[target][]net.Conn{}} }

// ask puts one question to a peer. A dead connection is replaced once.
func (p *prober) ask(t target, q question, timeout time.Duration) (peerStatus, error) {
	if conn := p.take(t); conn != nil {
		if s, err := p.exchange(conn, t, q, timeout); err == nil {
			return s, nil
		}
	}
	conn, _, err := p.mux.dial(useProbe, t, timeout)
	if err != nil {
		return peerStatus{}, err
	}
	return p.exchange(conn, t, q, timeout)
}

func (p *prober) exchange(conn net.Conn, t target, q question, timeout time.Duration) (peerStatus, error) {
	var s peerStatus
	conn.SetDeadline(time.Now().Add(timeout))
	err := writeFrame(conn, &q)
	if err == nil {
		err = readFrame(conn, &s)
	}
	if err != nil {
		conn.Close()
		return s, fmt.Errorf("probe %s: %w", t.id, err)
	}
	p.give(t, conn)
	return s, nil
}

func (p *prober) take(t target) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[t]
	if len(idle) == 0 {
		return nil
	}
	conn := idle[len(idle)-1]
	p.idle[t] = idle[:len(idle)-1]
	return conn
}

func (p *prober) give(t target, conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[t]) >= probeIdle {
		conn.Close()
		return
	}
	p.idle[t] = append(p.idle[t], conn)
}

// peerAnswer is one peer's answer.
type peerAnswer struct {
	server raft.Server
	peerStatus
	sent, came time.Time // when the question left and the answer arrived, here
	err        error
}

// askAll asks every other member at once and sends the answers as they arrive; the channel's buffer
// holds all of them and gets exactly one from each.
func (l *Log) askAll(servers []raft.Server, q question, timeout time.Duration) (<-chan peerAnswer, int) {
	answers := make(chan peerAnswer, len(servers))
	asked := 0
	for _, server := range servers {
		if server.ID == raft.ServerID(l.self.ID) {
			continue
		}
		asked++
		go func() { // ends by its timeout, or when the mux closes its connection
			h := peerAnswer{server: server, sent: time.Now()}
			t, err := parseTarget(string(named(server.ID, server.Address)))
			if err == nil {
				h.peerStatus, err = l.prober.ask(t, q, timeout)
			}
			h.came, h.err = time.Now(), err
			answers <- h
		}()
	}
	return answers, asked
}
