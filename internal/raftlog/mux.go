package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	handshakeTimeout = 5 * time.Second
	maxHandshakes    = 64 // incoming connections that have not sent their hello
	maxConns         = 512
)

// target is one member as raft addresses it: "id@host:port#incarnation" for a
// connection, "host:port#incarnation" in the agreed configuration.
type target struct {
	id, addr    string
	incarnation uint64
}

// stored is the address in the agreed configuration.
func (t target) stored() raft.ServerAddress {
	return raft.ServerAddress(t.addr + "#" + strconv.FormatUint(t.incarnation, 16))
}

// parseTarget reads the form of stored, or of stored after "id@".
func parseTarget(s string) (target, error) {
	var t target
	if id, rest, ok := strings.Cut(s, "@"); ok {
		t.id, s = id, rest
	}
	addr, hex, ok := strings.Cut(s, "#")
	if !ok {
		return t, fmt.Errorf("raftlog: member address %q has no incarnation", s)
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return t, fmt.Errorf("raftlog: member address %q: %w", s, err)
	}
	t.addr, t.incarnation = addr, n
	return t, nil
}

// mux shares one Stream between raft and probes, and admits only members whose hello names this
// very member.
type mux struct {
	stream  Stream
	self    identity
	log     *slog.Logger
	raft    chan net.Conn
	probe   func(conn net.Conn, from string) // serves one connection until it closes
	refused func(id string) bool             // members whose connections are refused; nil: none
	ended   func()                           // called when a peer answers that this member was removed; may be nil

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // every open one, in both directions
	closed chan struct{}
	wg     sync.WaitGroup
}

func newMux(stream Stream, self identity, log *slog.Logger) *mux {
	return &mux{
		stream: stream, self: self, log: log,
		raft: make(chan net.Conn), conns: map[net.Conn]struct{}{}, closed: make(chan struct{}),
	}
}

// start accepts connections until close. probe must be set before.
func (m *mux) start() { m.wg.Go(m.accept) }

func (m *mux) accept() {
	slots := make(chan struct{}, maxHandshakes)
	pause := 5 * time.Millisecond
	for {
		conn, err := m.stream.Accept()
		if err != nil {
			select {
			case <-m.closed:
				return
			case <-time.After(pause):
				pause = min(2*pause, time.Second)
			}
			continue
		}
		pause = 5 * time.Millisecond
		tracked, err := m.track(conn)
		if err != nil {
			conn.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
			m.wg.Go(func() { m.receive(tracked, func() { <-slots }) })
		case <-m.closed:
			return
		}
	}
}

// receive answers one hello and passes the connection on.
func (m *mux) receive(conn net.Conn, free func()) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	h, err := readHello(conn)
	if err == nil {
		v := h.check(m.self)
		if v == welcome && m.bars(conn, h.from) {
			v = removed
		}
		_, err = conn.Write(answer{verdict: v, id: m.self.ID, incarnation: m.self.Incarnation}.encode())
		if v != welcome {
			m.log.Warn("peer refused", "peer", h.from, "addr", conn.RemoteAddr(), "cluster", h.cluster, "meant", h.to, "err", answer{verdict: v}.err())
			err = errors.Join(err, errHandshake)
		}
	}
	free()
	if err != nil {
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	if h.use == useProbe {
		m.probe(conn, h.from)
		conn.Close()
		return
	}
	select {
	case m.raft <- conn:
	case <-m.closed:
		conn.Close()
	}
}

// bars reports whether connections of that member are refused, and records the connection's owner.
func (m *mux) bars(conn net.Conn, from string) bool {
	m.mu.Lock()
	if c, ok := conn.(*trackedConn); ok {
		c.from = from
	}
	m.mu.Unlock()
	return m.refused != nil && m.refused(from)
}

// dropRefused closes the connections opened by members that are refused now.
func (m *mux) dropRefused() {
	m.mu.Lock()
	byMember := make(map[string][]net.Conn)
	for conn := range m.conns {
		if c, ok := conn.(*trackedConn); ok && c.from != "" {
			byMember[c.from] = append(byMember[c.from], conn)
		}
	}
	m.mu.Unlock()
	for id, conns := range byMember {
		if m.refused == nil || !m.refused(id) {
			continue
		}
		for _, conn := range conns {
			conn.Close()
		}
	}
}

// dial connects to t for use u and returns who answered.
func (m *mux) dial(u use, t target, timeout time.Duration) (net.Conn, answer, error) {
	conn, err := m.stream.Dial(t.addr, timeout)
	if err != nil {
		return nil, answer{}, err
	}
	tracked, err := m.track(conn)
	if err != nil {
		conn.Close()
		return nil, answer{}, err
	}
	tracked.SetDeadline(time.Now().Add(min(timeout, handshakeTimeout)))
	h := hello{use: u, cluster: m.self.Cluster, from: m.self.ID, to: t.id, incarnation: t.incarnation}
	if _, err = tracked.Write(h.encode()); err == nil {
		var a answer
		if a, err = readAnswer(tracked); err == nil {
			if err = a.err(); errors.Is(err, ErrRemoved) && m.ended != nil {
				m.ended()
			}
			if err == nil {
				tracked.SetDeadline(time.Time{})
				return tracked, a, nil
			}
		}
	}
	tracked.Close()
	return nil, answer{}, fmt.Errorf("member %s at %s: %w", t.id, t.addr, err)
}

// trackedConn unregisters from the mux when closed.
type trackedConn struct {
	net.Conn
	m    *mux
	from string // the member that opened it; "" if this one did, or before its hello
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

func (m *mux) track(conn net.Conn) (net.Conn, error) {
	c := &trackedConn{Conn: conn, m: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conns == nil {
		return nil, net.ErrClosed
	}
	if len(m.conns) >= maxConns {
		return nil, errors.New("raftlog: too many connections")
	}
	m.conns[c] = struct{}{}
	return c, nil
}

// close closes the stream and every connection, and waits for their goroutines.
func (m *mux) close() error {
	m.mu.Lock()
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	if conns == nil {
		return nil
	}
	close(m.closed)
	err := m.stream.Close()
	for c := range conns {
		c.Close()
	}
	m.wg.Wait()
	return err
}

// raftLayer is the part of the mux that raft's network transport sees.
type raftLayer struct{ m *mux }

// Accept returns the next connection of a peer's raft.
func (l raftLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.m.raft:
		return c, nil
	case <-l.m.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the mux.
func (l raftLayer) Close() error { return l.m.close() }

// Addr returns the stream's address.
func (l raftLayer) Addr() net.Addr { return l.m.stream.Addr() }

// Dial connects to a member addressed as "id@host:port#incarnation".
func (l raftLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	t, err := parseTarget(string(addr))
	if err != nil {
		return nil, err
	}
	conn, _, err := l.m.dial(useRaft, t, timeout)
	return conn, err
}
