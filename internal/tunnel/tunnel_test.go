package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/greylag/greylag/internal/tunnel"
)

// site is three controllers, and the connections to them.
type site struct {
	t       *testing.T
	brokers [3]*tunnel.Broker

	mu    sync.Mutex
	conns map[int][]net.Conn // by controller
	dead  map[int]bool
}

func newSite(t *testing.T) *site {
	s := &site{t: t, conns: map[int][]net.Conn{}, dead: map[int]bool{}}
	for i := range s.brokers {
		s.brokers[i] = tunnel.NewBroker()
	}
	return s
}

// pair returns both ends of a TCP connection.
func (s *site) pair(at int) (client, server net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[at] = append(s.conns[at], client, server)
	return client, server
}

// Open makes site the controllers of both ends.
func (s *site) Open(ctx context.Context, controller, kind string, id tunnel.ID) (net.Conn, string, error) {
	err := error(errors.New("no controller answers"))
	for i, b := range s.brokers {
		name := fmt.Sprint(i)
		s.mu.Lock()
		dead := s.dead[i]
		s.mu.Unlock()
		if dead || controller != "" && controller != name {
			continue
		}
		var client, server net.Conn
		switch kind {
		case tunnel.Listen:
			listening, failed := b.Listen(id, "ann")
			if err = failed; err == nil {
				client, server = s.pair(i)
				go listening.Serve(s.t.Context(), server)
			}
		case tunnel.Accept:
			if err = b.Waits(id, "ann"); err == nil {
				client, server = s.pair(i)
				b.Accept(id, server)
			}
		case tunnel.Connect:
			end, done, failed := b.Connect(ctx, id, "ann")
			if err = failed; err == nil {
				client, server = s.pair(i)
				go func() {
					defer done()
					tunnel.Join(s.t.Context(), end, server)
				}()
			}
		}
		if err == nil {
			return client, name, nil
		}
	}
	return nil, "", err
}

// stop ends a controller.
func (s *site) stop(at int) {
	s.mu.Lock()
	s.dead[at] = true
	s.mu.Unlock()
	s.cut(at)
}

// cut ends all connections of a controller.
func (s *site) cut(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns[at] {
		c.Close()
	}
	s.conns[at] = nil
}

// TestNoByteIsLost moves data in both directions while controllers lose all their connections and
// one of them stops.
func TestNoByteIsLost(t *testing.T) {
	s := newSite(t)
	listener, err := tunnel.NewListener(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := tunnel.Dial(t.Context(), s, listener.ID())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	out, back := bytesOf(random), bytesOf(random)
	var group sync.WaitGroup
	for _, end := range []struct {
		conn net.Conn
		data []byte
	}{{here, out}, {there, back}} {
		group.Go(func() {
			for rest := end.data; len(rest) > 0; {
				n := min(len(rest), 1+int(end.data[0])*100)
				if _, err := end.conn.Write(rest[:n]); err != nil {
					t.Error("write:", err)
					return
				}
				rest = rest[n:]
			}
		})
	}
	group.Go(func() { receive(t, here, back, func(int) {}) })
	group.Go(func() {
		receive(t, there, out, func(part int) {
			if part == parts/2 {
				s.stop(0)
			}
			s.cut(part % 2 * random.IntN(2))
		})
	})
	group.Wait()
	if err := here.Close(); err != nil {
		t.Error(err)
	}
	if n, err := there.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Error("after the other end closed:", n, err)
	}
}

// size is how much passes in each direction.
const size, parts = 4 << 20, 16

func bytesOf(random *rand.Rand) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// receive reads what is wanted, and calls between after each part.
func receive(t *testing.T, c net.Conn, want []byte, between func(part int)) {
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		m, err := c.Read(got[n:min(n+10_000, len(got))])
		if err != nil {
			t.Error("read:", err)
			return
		}
		if part := (n + m) / (size / parts); part != n/(size/parts) {
			between(part)
		}
		n += m
	}
	if !bytes.Equal(got, want) {
		t.Error("the data differs")
	}
}

// TestListenWithoutAController listens while no controller answers the first attempts.
func TestListenWithoutAController(t *testing.T) {
	s := &failing{site: newSite(t), failures: 3}
	listener, err := tunnel.NewListener(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tunnel.NewListener(stopped, &failing{site: s.site, failures: 1}); err == nil {
		t.Error("listens although the caller has ended")
	}
}

// failing is a site whose first connections fail.
type failing struct {
	*site
	failures int
}

func (f *failing) Open(ctx context.Context, controller, kind string, id tunnel.ID) (net.Conn, string, error) {
	if f.failures > 0 {
		f.failures--
		return nil, "", io.EOF
	}
	return f.site.Open(ctx, controller, kind, id)
}

func TestNoListener(t *testing.T) {
	s := newSite(t)
	if _, err := tunnel.Dial(t.Context(), s, tunnel.NewID()); !errors.Is(err, tunnel.ErrNoListener) {
		t.Error(err)
	}
	listener, err := tunnel.NewListener(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.brokers[0].Listen(listener.ID(), "bob"); !errors.Is(err, tunnel.ErrTooMany) {
		t.Error("another user took over the ID:", err)
	}
	if err := s.brokers[0].Waits(listener.ID(), "ann"); !errors.Is(err, tunnel.ErrNoListener) {
		t.Error("accepted a connection that does not exist:", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	b := tunnel.NewBroker()
	var last error
	for range 1000 {
		if _, err := b.Listen(tunnel.NewID(), "ann"); err != nil {
			last = err
			break
		}
	}
	if !errors.Is(last, tunnel.ErrTooMany) {
		t.Error("one user may listen without limit:", last)
	}
	if _, err := b.Listen(tunnel.NewID(), "bob"); err != nil {
		t.Error(err)
	}
}
