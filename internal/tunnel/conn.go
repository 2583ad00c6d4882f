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

// Kinds of frames between the ends of a stream. The kind is the first byte.
const (
	frameData  = 1 // 4 bytes: length; payload
	frameAck   = 2 // 8 bytes: number of bytes received
	frameClose = 3 // the sender has closed
	frameEnded = 4 // acknowledges frameClose
)

const (
	// maxFrame is the largest payload of a frame.
	maxFrame = 32 << 10
	// window bounds the unacknowledged bytes, and the received bytes that are not read yet.
	window = 256 << 10
	// ackEvery is the number of received bytes between two acknowledgements; less than window.
	ackEvery = window / 4
	// flushTime bounds the wait of Close for acknowledgements.
	flushTime = 2 * time.Second
)

// errLost is the error of a stream whose other end did not reconnect.
var errLost = errors.New("the other end of the tunnel did not reconnect")

// Conn is one end of a stream. It survives the loss of its connection to a controller. Safe for
// concurrent use.
type Conn struct {
	reconnect func() // opens another connection; nil: the other end does

	sending sync.Mutex // held while a frame is written
	mu      sync.Mutex
	changed *sync.Cond
	under   net.Conn // connection to a controller; nil while none exists
	epoch   int      // counts connections
	err     error    // why the stream ended

	unacked   []byte // sent bytes from offset acked
	acked     uint64 // number of bytes that the other end acknowledged
	received  uint64 // number of bytes received
	announced uint64 // value of the last acknowledgement sent
	incoming  []byte // received, not read
	finished  bool   // the other end has closed
	closed    bool   // this end has closed
	agreed    bool   // the other end has acknowledged closed

	lost            *time.Timer
	readBy, writeBy time.Time // deadlines; zero: none
}

func newConn(reconnect func()) *Conn {
	c := &Conn{reconnect: reconnect}
	c.changed = sync.NewCond(&c.mu)
	c.lost = time.AfterFunc(resumeTime, func() { c.fail(errLost) })
	return c
}

// fail ends the stream with an error.
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

// prepare closes the current connection and returns the number of bytes received. This number does not
// change until attach is called with the returned epoch.
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

// errReplaced means that a newer connection exists.
var errReplaced = errors.New("another connection has replaced this one")

// attach continues the stream over a connection. The other end has received peer bytes of this end.
// reader buffers the connection's input. prepare returned the epoch.
func (c *Conn) attach(under net.Conn, reader *bufio.Reader, peer uint64, epoch int) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	if peer < c.acked || peer > c.acked+uint64(len(c.unacked)) {
		c.mu.Unlock()
		under.Close()
		err := fmt.Errorf("the other end of the tunnel received %d bytes: want %d to %d", peer, c.acked, c.acked+uint64(len(c.unacked)))
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
	c.dropAcked(peer)
	c.under = under
	resend, closed := append([]byte(nil), c.unacked...), c.closed
	c.lost.Stop()
	c.mu.Unlock()
	go c.receive(under, reader, epoch)
	for len(resend) > 0 {
		n := min(len(resend), maxFrame)
		if !c.writeData(under, epoch, resend[:n]) {
			return nil // the next connection resends it
		}
		resend = resend[n:]
	}
	if closed {
		c.write(under, epoch, []byte{frameClose})
	}
	return nil
}

// dropAcked drops the bytes that the other end has received. The caller holds c.mu.
func (c *Conn) dropAcked(peer uint64) {
	if peer > c.acked && peer <= c.acked+uint64(len(c.unacked)) {
		c.unacked = append([]byte(nil), c.unacked[peer-c.acked:]...)
		c.acked = peer
		c.changed.Broadcast()
	}
}

// detach drops a connection that failed.
func (c *Conn) detach(epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch || c.under == nil {
		return
	}
	c.under.Close()
	c.under = nil
	if c.finished && c.err == nil {
		c.err = net.ErrClosed // no data follows; received bytes can still be read
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
			return errors.New("the tunnel frame is too large")
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
		c.dropAcked(binary.BigEndian.Uint64(offset[:]))
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
	return errors.New("invalid tunnel frame")
}

// deliver waits for space in the buffer, stores received data for Read, and acknowledges it.
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

// sendAck sends the number of bytes received.
func (c *Conn) sendAck(under net.Conn, epoch int) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	c.announced = c.received
	frame := binary.BigEndian.AppendUint64([]byte{frameAck}, c.received)
	c.mu.Unlock()
	c.write(under, epoch, frame)
}

// Read returns received bytes, and io.EOF after the other end has closed.
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

// Write sends bytes. It blocks while window bytes are unacknowledged.
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
			c.writeData(under, epoch, p[:n]) // after a failure the next connection resends it
		}
		done, p = done+n, p[n:]
	}
	return done, nil
}

// keep waits for space in the window and stores data for retransmission. The caller holds c.sending;
// keep releases it while it waits. It returns the connection to send on, or nil if none exists.
func (c *Conn) keep(data []byte) (net.Conn, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return nil, 0, net.ErrClosed
		case c.err != nil:
			return nil, 0, c.err
		case expired(c.writeBy):
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

// Close waits up to flushTime until the other end has received all data, and closes this end.
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

// SetReadDeadline bounds Read, as in net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, t) }

// SetWriteDeadline bounds Write, as in net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeBy, t) }

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
