package tunnel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Frames between the ends of a stream: kind, length or offset, payload.
const (
	frameData  = 1 // 4 bytes of length, payload
	frameAck   = 2 // 8 bytes: how much was received
	frameClose = 3 // the sender has closed
	frameEnded = 4 // frameClose has arrived
)

const (
	// maxFrame is the largest payload of a frame.
	maxFrame = 32 << 10
	// window bounds what is kept until the other end has acknowledged it, and what was received and
	// not read yet.
	window = 256 << 10
	// ackEvery is how much arrives between two acknowledgements: less than window.
	ackEvery = window / 4
	// flushTime bounds the wait of Close for acknowledgements.
	flushTime = 2 * time.Second
)

// errLost is the error of a stream whose other end did not come back.
var errLost = errors.New("the other end of the tunnel did not come back")

// Conn is one end of a stream. It outlives the connections to controllers under it. Safe for
// concurrent use.
type Conn struct {
	reconnect func() // asks for another connection; nil: the other end brings it

	sending sync.Mutex // held while a frame is written
	mu      sync.Mutex
	changed *sync.Cond
	under   net.Conn // nil while no connection exists
	epoch   int      // counts connections
	err     error    // why the stream has ended

	unacked   []byte // sent from offset acked on
	acked     uint64 // acknowledged by the other end
	received  uint64 // received in order
	announced uint64 // the newest acknowledgement
	incoming  []byte // received, not read
	finished  bool   // the other end has closed
	closed    bool   // this end has closed
	agreed    bool   // the other end knows that

	lost         *time.Timer
	readBy, sent time.Time // deadlines; zero: none
}

func newConn(reconnect func()) *Conn {
	c := &Conn{reconnect: reconnect}
	c.changed = sync.NewCond(&c.mu)
	c.lost = time.AfterFunc(resumeTime, func() { c.fail(errLost) })
	return c
}

// fail ends the stream.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	if c.under != nil {
		c.under.Close()
		c.under = nil
	}
	c.changed.Broadcast()
}

// prepare ends the use of the present connection, and returns how much this end has received, which
// then changes only after attach with the returned epoch.
func (c *Conn) prepare() (received uint64, epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under != nil {
		c.under.Close()
		c.under = nil
		c.lost.Reset(resumeTime)
	}
	c.epoch++
	return c.received, c.epoch
}

// errReplaced means that another connection came meanwhile.
var errReplaced = errors.New("another connection has replaced this one")

// attach continues the stream over a connection. The other end has received peer bytes of this end.
// reader has what was read from the connection already. prepare returned the epoch.
func (c *Conn) attach(under net.Conn, reader *bufio.Reader, peer uint64, epoch int) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	if peer < c.acked || peer > c.acked+uint64(len(c.unacked)) {
		c.mu.Unlock()
		under.Close()
		err := fmt.Errorf("the other end of the tunnel has %d bytes, sent were %d to %d", peer, c.acked, c.acked+uint64(len(c.unacked)))
		c.fail(err)
		return err
	}
	if c.err != nil {
		defer c.mu.Unlock()
		under.Close()
		return c.err
	}
	if c.epoch != epoch {
		defer c.mu.Unlock()
		under.Close()
		return errReplaced
	}
	c.acknowledged(peer)
	c.under = under
	again, closed := append([]byte(nil), c.unacked...), c.closed
	c.lost.Stop()
	c.mu.Unlock()
	go c.receive(under, reader, epoch)
	for len(again) > 0 {
		n := min(len(again), maxFrame)
		if !c.writeData(under, epoch, again[:n]) {
			return nil // another connection will continue
		}
		again = again[n:]
	}
	if closed {
		c.write(under, epoch, []byte{frameClose})
	}
	return nil
}

// acknowledged drops what the other end has received. The caller holds c.mu.
func (c *Conn) acknowledged(peer uint64) {
	if peer > c.acked && peer <= c.acked+uint64(len(c.unacked)) {
		c.unacked = append([]byte(nil), c.unacked[peer-c.acked:]...)
		c.acked = peer
		c.changed.Broadcast()
	}
}

// detach ends the use of a connection that failed.
func (c *Conn) detach(epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch || c.under == nil {
		return
	}
	c.under.Close()
	c.under = nil
	if c.finished && c.err == nil {
		c.err = net.ErrClosed // nothing follows; what was received can be read
		c.changed.Broadcast()
	}
	if c.err != nil {
		return
	}
	c.lost.Reset(resumeTime)
	if c.reconnect != nil {
		go c.reconnect()
	}
}

// write writes a frame. The caller holds c.sending.
func (c *Conn) write(under net.Conn, epoch int, frame []byte) bool {
	if _, err := under.Write(frame); err != nil {
		c.detach(epoch)
		return false
	}
	return true
}

func (c *Conn) writeData(under net.Conn, epoch int, data []byte) bool {
	frame := make([]byte, 5, 5+len(data))
	frame[0] = frameData
	binary.BigEndian.PutUint32(frame[1:], uint32(len(data)))
	return c.write(under, epoch, append(frame, data...))
}

// receive reads frames until the connection fails.
func (c *Conn) receive(under net.Conn, reader *bufio.Reader, epoch int) {
	for c.receiveFrame(under, reader, epoch) == nil {
	}
	c.detach(epoch)
}

func (c *Conn) receiveFrame(under net.Conn, reader *bufio.Reader, epoch int) error {
	kind, err := reader.ReadByte()
	if err != nil {
		return err
	}
	switch kind {
	case frameData:
		var head [4]byte
		if _, err := io.ReadFull(reader, head[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxFrame {
			return errors.New("a frame of a tunnel is too large")
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(reader, data); err != nil {
			return err
		}
		return c.deliver(under, epoch, data)
	case frameAck:
		var offset [8]byte
		if _, err := io.ReadFull(reader, offset[:]); err != nil {
			return err
		}
		c.mu.Lock()
		c.acknowledged(binary.BigEndian.Uint64(offset[:]))
		c.mu.Unlock()
		return nil
	case frameClose:
		c.mu.Lock()
		c.finished = true
		c.changed.Broadcast()
		c.mu.Unlock()
		c.sendAck(under, epoch)
		c.sending.Lock()
		defer c.sending.Unlock()
		c.write(under, epoch, []byte{frameEnded})
		return nil
	case frameEnded:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.agreed = true
		c.changed.Broadcast()
		return nil
	}
	return errors.New("invalid frame of a tunnel")
}

// deliver hands received data to Read, when there is room, and acknowledges it.
func (c *Conn) deliver(under net.Conn, epoch int, data []byte) error {
	c.mu.Lock()
	for len(c.incoming) > window && c.err == nil && c.epoch == epoch && !c.closed {
		c.changed.Wait()
	}
	if c.err != nil || c.epoch != epoch {
		c.mu.Unlock()
		return net.ErrClosed
	}
	if !c.closed { // else there is no reader
		c.incoming = append(c.incoming, data...)
	}
	c.received += uint64(len(data))
	due := c.received-c.announced >= ackEvery
	c.changed.Broadcast()
	c.mu.Unlock()
	if due {
		c.sendAck(under, epoch)
	}
	return nil
}

// sendAck tells the other end how much has arrived.
func (c *Conn) sendAck(under net.Conn, epoch int) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	c.announced = c.received
	frame := binary.BigEndian.AppendUint64([]byte{frameAck}, c.received)
	c.mu.Unlock()
	c.write(under, epoch, frame)
}

// Read returns received bytes, io.EOF once the other end has closed.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case len(p) == 0:
			return 0, nil
		case len(c.incoming) > 0:
			n := copy(p, c.incoming)
			if c.incoming = c.incoming[n:]; len(c.incoming) == 0 {
				c.incoming = nil
			}
			c.changed.Broadcast()
			return n, nil
		case c.closed:
			return 0, net.ErrClosed
		case c.finished:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.err
		case expired(c.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
}

// Write sends bytes. It blocks while the other end does not read.
func (c *Conn) Write(p []byte) (done int, err error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		under, epoch, err := c.keep(p[:n])
		if err != nil {
			return done, err
		}
		if under != nil {
			c.writeData(under, epoch, p[:n]) // what fails is sent again over the next connection
		}
		done, p = done+n, p[n:]
	}
	return done, nil
}

// keep adds data to what may have to be sent again, when there is room. The caller holds c.sending,
// which is released meanwhile. It returns the connection to send on; nil without one.
func (c *Conn) keep(data []byte) (net.Conn, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return nil, 0, net.ErrClosed
		case c.err != nil:
			return nil, 0, c.err
		case expired(c.sent):
			return nil, 0, os.ErrDeadlineExceeded
		case len(c.unacked)+len(data) <= window:
			c.unacked = append(c.unacked, data...)
			return c.under, c.epoch, nil
		}
		c.sending.Unlock() // for acknowledgements, and for another connection
		c.changed.Wait()
		c.mu.Unlock() // attach takes the locks in this order
		c.sending.Lock()
		c.mu.Lock()
	}
}

// Close sends what is left, for up to flushTime, and closes this end.
func (c *Conn) Close() error {
	c.sending.Lock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.sending.Unlock()
		return nil
	}
	c.closed = true
	c.changed.Broadcast()
	under, epoch := c.under, c.epoch
	c.mu.Unlock()
	if under != nil {
		c.write(under, epoch, []byte{frameClose})
	}
	c.sending.Unlock()
	limit := time.AfterFunc(flushTime, func() { c.fail(net.ErrClosed) })
	defer limit.Stop()
	c.mu.Lock()
	for (len(c.unacked) > 0 || !c.agreed) && c.err == nil {
		c.changed.Wait()
	}
	c.mu.Unlock()
	c.fail(net.ErrClosed)
	c.lost.Stop()
	return nil
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// SetReadDeadline bounds Read, as net.Conn says.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, t) }

// SetWriteDeadline bounds Write, as net.Conn says.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.sent, t) }

// SetDeadline sets both.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *Conn) setDeadline(which *time.Time, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*which = t
	c.changed.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), c.changed.Broadcast)
	}
	return nil
}

// addr is the address of both ends.
type addr struct{}

func (addr) Network() string { return "tunnel" }
func (addr) String() string  { return "tunnel" }

// LocalAddr is the same for all tunnels.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr is the same for all tunnels.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }
