package raftlog

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// ALPN names the members' protocol in TLS, so that one port serves it and the API.
const ALPN = "greylag-raft/1"

// Stream carries connections from and to peers. It says nothing about their identity beyond what
// its own security establishes.
type Stream interface {
	net.Listener
	// Dial connects to the Addr of a member within timeout.
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// TCPStream is a Stream without encryption, for tests and for networks that are themselves secure.
type TCPStream struct{ net.Listener }

// Dial connects to addr within timeout.
func (TCPStream) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

// TLSStream is a Stream over TLS whose incoming connections another listener accepts: it passes
// each on once ALPN has chosen this protocol.
type TLSStream struct {
	addr     net.Addr
	config   *tls.Config
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}

	mu   sync.Mutex
	open map[*streamConn]struct{} // in both directions
}

// NewTLSStream returns a stream that dials with config; it sets the protocol, and the server name
// to the dialled host if config has none. config decides which peers are accepted. addr is the
// listener's.
func NewTLSStream(addr net.Addr, config *tls.Config) *TLSStream {
	config = config.Clone()
	config.NextProtos = []string{ALPN}
	return &TLSStream{
		addr: addr, config: config, incoming: make(chan net.Conn), closed: make(chan struct{}),
		open: make(map[*streamConn]struct{}),
	}
}

// Recheck closes every open connection for which check returns an error, such as one to a member
// whose certificate was revoked. It returns the errors.
func (s *TLSStream) Recheck(check func(tls.ConnectionState) error) []error {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	var errs []error
	for _, c := range open {
		if err := check(c.state); err != nil {
			errs = append(errs, fmt.Errorf("member at %s: %w", c.RemoteAddr(), err))
			c.Close()
		}
	}
	return errs
}

// keep tracks a connection until it is closed.
func (s *TLSStream) keep(conn net.Conn, state tls.ConnectionState) *streamConn {
	c := &streamConn{Conn: conn, state: state, stream: s, closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	return c
}

// Handle takes over a connection and returns when it is closed, as the handlers in
// http.Server.TLSNextProto have to. A connection that did not negotiate ALPN is closed.
func (s *TLSStream) Handle(conn net.Conn) {
	defer conn.Close()
	var state tls.ConnectionState
	if t, ok := conn.(*tls.Conn); ok {
		if state = t.ConnectionState(); state.NegotiatedProtocol != ALPN {
			return
		}
	}
	c := s.keep(conn, state)
	defer c.Close()
	select {
	case s.incoming <- c:
	case <-s.closed:
		return
	}
	select {
	case <-c.closed:
	case <-s.closed:
	}
}

// streamConn is an open connection. It reports to Handle when raft is done with it.
type streamConn struct {
	net.Conn
	state  tls.ConnectionState
	stream *TLSStream
	once   sync.Once
	closed chan struct{}
}

// ConnectionState returns that of the handshake.
func (c *streamConn) ConnectionState() tls.ConnectionState { return c.state }

// Close closes the connection.
func (c *streamConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.stream.mu.Lock()
		defer c.stream.mu.Unlock()
		delete(c.stream.open, c)
	})
	return c.Conn.Close()
}

// Accept returns the next connection given to Handle.
func (s *TLSStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and every Handle.
func (s *TLSStream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr returns the address of the listener that feeds Handle.
func (s *TLSStream) Addr() net.Addr { return s.addr }

// Dial connects and completes the TLS handshake within timeout.
func (s *TLSStream) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	config := s.config
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("dial member: %w", err)
		}
		config = config.Clone()
		config.ServerName = host
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", addr, config)
	if err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != ALPN {
		return nil, errors.Join(fmt.Errorf("dial member: %s does not speak %s", addr, ALPN), conn.Close())
	}
	return s.keep(conn, conn.ConnectionState()), nil
}
