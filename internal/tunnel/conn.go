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
	frameData   = 1 // 4 bytes of length, payload
	frameAck    = 2 // 8 bytes: how much was read
	frameEnd    = 3 // no data follows
	frameClose  = 4 // no data follows, and none is read
	frameAgreed = 5 // frameClose has arrived, and everything before it
	framePing   = 6
)

const (
	// maxFrame is the largest payload of a frame.
	maxFrame = 32 << 10
	// window bounds what was sent and not read by the other end.
	window = 256 << 10
	// ackEvery is how much is read between two acknowledgements: less than window.
	ackEvery = window / 4
	// flushTime bounds the wait of Close for the other end.
	flushTime = 2 * time.Second
	// pingEvery is the time between two signs of life, and silence how long a connection without one is
	// used.
	pingEvery, silence = 5 * time.Second, 15 * time.Second
)

// The errors of a stream that ends early.
var (
	errLost     = errors.New("the other end of the tunnel did not come back")
	errReplaced = errors.New("another connection has replaced this one")
	errFrame    = errors.New("invalid frame of a tunnel")
)

// Conn is one end of a stream. It outlives the connections to controllers under it. Safe for
// concurrent use.
type Conn struct {
	reconnect func() // asks for another connection; nil: the other end brings it
	onEnd     func() // called once the stream has ended; may be nil

	sending sync.Mutex // held while a frame is written; taken before mu
	mu      sync.Mutex
	changed *sync.Cond
	under   net.Conn // nil while no connection exists
	epoch   int      // counts connections
	err     error    // why the stream has ended

	unacked  []byte // sent from offset kept on
	kept     uint64
	consumed uint64 // read by the other end
	shut     bool   // nothing is sent any more
	closed   bool   // nothing is read any more
	agreed   bool   // the other end knows that

	received  uint64 // received in order
	announced uint64 // the newest acknowledgement
	incoming  []byte // received, not read
	finished  bool   // the other end sends nothing any more
	gone      bool   // and reads nothing

	lost              *time.Timer
	readBy, writtenBy time.Time // deadlines; zero: none
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
	first := c.err == nil
	if first {
		c.err = err
	}
	if c.under != nil {
		c.under.Close()
		c.under = nil
	}
	c.lost.Stop()
	c.changed.Broadcast()
	c.mu.Unlock()
	if first && c.onEnd != nil {
		c.onEnd()
	}
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

// attach continues the stream over a connection. The other end has received peer bytes of this end.
// reader has what was read from the connection already. prepare returned the epoch.
func (c *Conn) attach(under net.Conn, reader *bufio.Reader, peer uint64, epoch int) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	again, last, err := c.use(under, peer, epoch)
	if err != nil {
		under.Close()
		return err
	}
	go c.receive(under, reader, epoch)
	go c.ping(under, epoch)
	for len(again) > 0 {
		n := min(len(again), maxFrame)
		if !c.writeData(under, epoch, again[:n]) {
			return nil // another connection will continue
		}
		again = again[n:]
	}
	c.write(under, epoch, last)
	return nil
}

// use makes a connection the present one. It returns what has to be sent again, and the frames after
// it.
func (c *Conn) use(under net.Conn, peer uint64, epoch int) (again, last []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, nil, c.err
	case c.epoch != epoch:
		return nil, nil, errReplaced
	case peer < c.kept || peer > c.kept+uint64(len(c.unacked)):
		go c.fail(fmt.Errorf("the other end of the tunnel has %d bytes, sent were %d to %d", peer, c.kept, c.kept+uint64(len(c.unacked))))
		return nil, nil, errLost
	}
	c.forget(peer)
	c.under = under
	c.lost.Stop()
	c.announced = c.received - uint64(len(c.incoming)) // the frame with the last one may be lost
	last = binary.BigEndian.AppendUint64([]byte{frameAck}, c.announced)
	switch {
	case c.closed:
		last = append(last, frameClose)
	case c.shut:
		last = append(last, frameEnd)
	}
	return append([]byte(nil), c.unacked...), last, nil
}

// forget drops what the other end has received. The caller holds c.mu.
func (c *Conn) forget(peer uint64) {
	if peer > c.kept && peer <= c.kept+uint64(len(c.unacked)) {
		c.unacked = append([]byte(nil), c.unacked[peer-c.kept:]...)
		c.kept = peer
	}
}

// detach ends the use of a connection that failed.
func (c *Conn) detach(epoch int) {
	c.mu.Lock()
	if c.epoch != epoch || c.under == nil {
		c.mu.Unlock()
		return
	}
	c.under.Close()
	c.under = nil
	if c.gone {
		c.mu.Unlock()
		c.fail(net.ErrClosed) // what was received can be read
		return
	}
	c.lost.Reset(resumeTime)
	c.mu.Unlock()
	if c.reconnect != nil {
		go c.reconnect()
	}
}

// write writes a frame. The caller holds c.sending.
func (c *Conn) write(under net.Conn, epoch int, frame []byte) bool {
	err := under.SetWriteDeadline(time.Now().Add(silence))
	if err == nil {
		_, err = under.Write(frame)
	}
	if err != nil {
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

// send sends a frame over the present connection, if one exists.
func (c *Conn) send(frame []byte) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	under, epoch := c.under, c.epoch
	c.mu.Unlock()
	if under != nil {
		c.write(under, epoch, frame)
	}
}

// ping sends signs of life while a connection is in use.
func (c *Conn) ping(under net.Conn, epoch int) {
	for ticker := time.NewTicker(pingEvery); ; <-ticker.C {
		c.sending.Lock()
		c.mu.Lock()
		current := c.under == under && c.epoch == epoch
		c.mu.Unlock()
		if !current || !c.write(under, epoch, []byte{framePing}) {
			c.sending.Unlock()
			ticker.Stop()
			return
		}
		c.sending.Unlock()
	}
}

// receive reads frames until the connection fails or is silent.
func (c *Conn) receive(under net.Conn, reader *bufio.Reader, epoch int) {
	for {
		err := under.SetReadDeadline(time.Now().Add(silence))
		if err == nil {
			err = c.receiveFrame(reader, epoch)
		}
		if err != nil {
			c.detach(epoch)
			return
		}
	}
}

func (c *Conn) receiveFrame(reader *bufio.Reader, epoch int) error {
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
			return errFrame
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(reader, data); err != nil {
			return err
		}
		return c.deliver(epoch, data)
	case frameAck:
		var offset [8]byte
		if _, err := io.ReadFull(reader, offset[:]); err != nil {
			return err
		}
		c.acknowledged(binary.BigEndian.Uint64(offset[:]))
		return nil
	case frameEnd, frameClose, frameAgreed, framePing:
		c.noted(kind)
		return nil
	}
	return errFrame
}

// deliver hands received data to Read. The other end sends no more than window bytes that were not
// read.
func (c *Conn) deliver(epoch int, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil || c.epoch != epoch:
		return net.ErrClosed
	case len(c.incoming)+len(data) > window+maxFrame:
		return errFrame
	}
	c.received += uint64(len(data))
	if !c.closed { // else no reader exists
		c.incoming = append(c.incoming, data...)
	}
	c.changed.Broadcast()
	return nil
}

// acknowledged notes how much the other end has read.
func (c *Conn) acknowledged(offset uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(offset)
	if offset <= c.kept {
		c.consumed = max(c.consumed, offset)
	}
	c.changed.Broadcast()
}

// noted handles a frame without content.
func (c *Conn) noted(kind byte) {
	c.mu.Lock()
	switch kind {
	case frameEnd:
		c.finished = true
	case frameClose:
		c.finished, c.gone = true, true
	case frameAgreed:
		c.agreed = true
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	if kind == frameClose {
		c.send([]byte{frameAgreed})
	}
}

// Read returns received bytes, io.EOF once the other end has ended.
func (c *Conn) Read(p []byte) (int, error) {
	n, read, err := c.take(p)
	if read > 0 {
		c.send(binary.BigEndian.AppendUint64([]byte{frameAck}, read))
	}
	return n, err
}

// take is Read; read is not 0 if an acknowledgement of that much is due.
func (c *Conn) take(p []byte) (n int, read uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case len(p) == 0:
			return 0, 0, nil
		case len(c.incoming) > 0:
			n = copy(p, c.incoming)
			if c.incoming = c.incoming[n:]; len(c.incoming) == 0 {
				c.incoming = nil
			}
			if done := c.received - uint64(len(c.incoming)); done-c.announced >= ackEvery {
				c.announced, read = done, done
			}
			return n, read, nil
		case c.closed:
			return 0, 0, net.ErrClosed
		case c.finished:
			return 0, 0, io.EOF
		case c.err != nil:
			return 0, 0, c.err
		case expired(c.readBy):
			return 0, 0, os.ErrDeadlineExceeded
		}
		c.changed.Wait()
	}
}

// Write sends bytes. It blocks while the other end does not read.
func (c *Conn) Write(p []byte) (done int, err error) {
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := c.writePart(p[:n]); err != nil {
			return done, err
		}
		done, p = done+n, p[n:]
	}
	return done, nil
}

func (c *Conn) writePart(data []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	under, epoch, err := c.keep(data)
	if err == nil && under != nil {
		c.writeData(under, epoch, data) // what fails is sent again over the next connection
	}
	return err
}

// keep adds data to what may have to be sent again, when there is room. The caller holds c.sending,
// which is released meanwhile. It returns the connection to send on; nil without one.
func (c *Conn) keep(data []byte) (net.Conn, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.shut:
			return nil, 0, net.ErrClosed
		case c.err != nil:
			return nil, 0, c.err
		case expired(c.writtenBy):
			return nil, 0, os.ErrDeadlineExceeded
		case c.kept+uint64(len(c.unacked)+len(data))-c.consumed <= window:
			c.unacked = append(c.unacked, data...)
			return c.under, c.epoch, nil
		}
		c.sending.Unlock() // for acknowledgements, and for another connection
		c.changed.Wait()
		c.mu.Unlock() // the locks are taken in this order
		c.sending.Lock()
		c.mu.Lock()
	}
}

// CloseWrite ends the data of this end. The other end can still send.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	again := c.shut
	c.shut = true
	c.changed.Broadcast()
	c.mu.Unlock()
	if !again {
		c.send([]byte{frameEnd})
	}
	return nil
}

// Close sends what is left, for up to flushTime, and closes this end.
func (c *Conn) Close() error {
	c.mu.Lock()
	again := c.closed
	c.shut, c.closed = true, true
	c.changed.Broadcast()
	c.mu.Unlock()
	if again {
		return nil
	}
	limit := time.AfterFunc(flushTime, func() { c.fail(net.ErrClosed) }) // this also ends a write that blocks
	defer limit.Stop()
	c.send([]byte{frameClose})
	c.mu.Lock()
	for !c.agreed && c.err == nil {
		c.changed.Wait()
	}
	c.mu.Unlock()
	c.fail(net.ErrClosed)
	return nil
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// SetReadDeadline bounds Read, as net.Conn says.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, t) }

// SetWriteDeadline bounds Write, as net.Conn says.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writtenBy, t) }

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

// Network is the network of the addresses of a tunnel.
const Network = "tunnel"

func (addr) Network() string { return Network }
func (addr) String() string  { return Network }

// LocalAddr is the same for all tunnels.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr is the same for all tunnels.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }
