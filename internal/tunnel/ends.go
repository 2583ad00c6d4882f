package tunnel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// handshakeTime bounds the handshake of a connection.
const handshakeTime = 20 * time.Second

// helloSize is the size of the first message of the connecting end: the ID of the stream and the number
// of bytes received. The listening end answers with the number of bytes that it has received.
const helloSize = len(ID{}) + 8

// Dial connects to a listener through the controller that knows it.
func Dial(ctx context.Context, controllers Controllers, listener ID) (*Conn, error) {
	d := &dialer{controllers: controllers, listener: listener, stream: NewID()}
	d.conn = newConn(func() { d.resume() })
	if err := d.connect(ctx); err != nil {
		d.conn.fail(err)
		return nil, err
	}
	return d.conn, nil
}

// dialer is the connecting end of a stream.
type dialer struct {
	controllers      Controllers
	listener, stream ID
	conn             *Conn
}

// connect opens a connection for the stream.
func (d *dialer) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	under, _, err := d.controllers.Open(ctx, "", Connect, d.listener)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { under.Close() })
	defer stop()
	received, epoch := d.conn.prepare()
	hello := binary.BigEndian.AppendUint64(append([]byte(nil), d.stream[:]...), received)
	if _, err := under.Write(hello); err != nil {
		under.Close()
		return err
	}
	reader := bufio.NewReaderSize(under, maxFrame)
	var answer [8]byte
	if _, err := io.ReadFull(reader, answer[:]); err != nil {
		under.Close()
		return fmt.Errorf("the listener of the tunnel did not answer: %w", err)
	}
	return d.conn.attach(under, reader, binary.BigEndian.Uint64(answer[:]), epoch)
}

// resume reconnects, and retries until resumeTime passes or the stream ends.
func (d *dialer) resume() {
	lost := time.Now()
	deadline := lost.Add(resumeTime)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		err := d.connect(ctx)
		cancel()
		if err == nil || d.conn.ended() {
			return
		}
		if time.Until(deadline) < wait || errors.Is(err, ErrNoListener) && time.Since(lost) > relistenTime {
			d.conn.fail(errors.Join(errLost, err))
			return
		}
		time.Sleep(wait)
	}
}

// ended reports whether the stream has ended.
func (c *Conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// Listener accepts the streams of programs that connect to its ID. Safe for concurrent use.
type Listener struct {
	controllers Controllers
	id          ID
	ctx         context.Context
	stop        context.CancelCauseFunc
	accepted    chan *Conn

	mu      sync.Mutex
	streams map[ID]*Conn
}

// NewListener listens under a new ID until Close. If no controller answers, it retries for 30 s.
func NewListener(ctx context.Context, controllers Controllers) (*Listener, error) {
	l := &Listener{controllers: controllers, id: NewID(), accepted: make(chan *Conn), streams: map[ID]*Conn{}}
	control, controller, err := l.register(ctx, refused)
	if err != nil {
		return nil, err
	}
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	go l.serve(control, controller)
	return l, nil
}

// ID returns the ID that other programs connect to.
func (l *Listener) ID() ID { return l.id }

// register listens at any controller, and retries until resumeTime passes or an error is final.
func (l *Listener) register(ctx context.Context, final func(error) bool) (net.Conn, string, error) {
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, handshakeTime)
		control, controller, err := l.controllers.Open(attempt, "", Listen, l.id)
		cancel()
		if err == nil || ctx.Err() != nil || final(err) || time.Since(began) > resumeTime {
			return control, controller, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// serve accepts streams through a controller. If the connection fails, it registers at any controller.
func (l *Listener) serve(control net.Conn, controller string) {
	for {
		l.serveAt(control, controller)
		var err error
		control, controller, err = l.register(l.ctx, func(error) bool { return false })
		if err != nil {
			l.stop(fmt.Errorf("cannot reconnect to a controller: %w", err))
			return
		}
	}
}

// serveAt accepts streams through one controller until its connection fails.
func (l *Listener) serveAt(control net.Conn, controller string) {
	defer control.Close()
	stop := context.AfterFunc(l.ctx, func() { control.Close() })
	defer stop()
	for {
		var id ID
		if _, err := io.ReadFull(control, id[:]); err != nil {
			return
		}
		go l.accept(controller, id)
	}
}

// accept opens this end of an announced connection.
func (l *Listener) accept(controller string, id ID) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTime)
	defer cancel()
	under, _, err := l.controllers.Open(ctx, controller, Accept, id)
	if err != nil {
		return // the other end retries
	}
	stop := context.AfterFunc(ctx, func() { under.Close() })
	defer stop()
	reader := bufio.NewReaderSize(under, maxFrame)
	var hello [helloSize]byte
	if _, err := io.ReadFull(reader, hello[:]); err != nil {
		under.Close()
		return
	}
	stream := ID(hello[:len(ID{})])
	l.mu.Lock()
	c, known := l.streams[stream]
	offset := binary.BigEndian.Uint64(hello[len(stream):])
	if !known && offset == 0 {
		c = newConn(nil)
		c.onEnd = func() { l.drop(stream) }
		l.streams[stream] = c
	}
	l.mu.Unlock()
	if c == nil { // the stream belongs to an earlier process
		under.Close()
		return
	}
	received, epoch := c.prepare()
	if _, err := under.Write(binary.BigEndian.AppendUint64(nil, received)); err != nil {
		under.Close()
		return
	}
	if c.attach(under, reader, offset, epoch) != nil || known {
		return
	}
	select {
	case l.accepted <- c:
	case <-l.ctx.Done():
		c.Close()
	}
}

// drop forgets a stream that has ended.
func (l *Listener) drop(stream ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, stream)
}

// Accept returns the next stream.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// Close ends the listener. Accepted streams continue until their connection is lost.
func (l *Listener) Close() error {
	l.stop(net.ErrClosed)
	return nil
}

// Addr is the same for all listeners.
func (l *Listener) Addr() net.Addr { return addr{} }
