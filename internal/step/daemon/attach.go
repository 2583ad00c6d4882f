package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
)

// peer is the program that has the step: grun, or one that attached to its terminal.
type peer struct {
	*stream.Conn
	keep bool          // losing it detaches the step
	left chan struct{} // closed when nothing more is received
}

func newPeer(conn *stream.Conn) *peer { return &peer{Conn: conn, left: make(chan struct{})} }

var errDetached = errors.New("the step is detached")

// replay is what a program that attaches is sent first.
type replay struct {
	mu     sync.Mutex // held while output and ends are sent: nothing may come between them and the replay
	rank   int
	output []byte // the newest of the terminal
	exits  []step.Exit
}

// add appends output and keeps at least the newest stream.MaxData bytes.
func (r *replay) add(data []byte) {
	if len(r.output) > 2*stream.MaxData {
		r.output = append([]byte(nil), r.output[len(r.output)-stream.MaxData:]...)
	}
	r.output = append(r.output, data...)
}

// queries matches what a terminal would answer: its answers would become input of the task.
const queries = `\x05|\x1bZ|\x1b\[[0-?]*(?:[cn]|\$p)|\x1b\[>[0-9]*q|\x1b\][0-9;]*\?(?:\x07|\x1b\\)|\x1bP[^\x1b]*\x1b\\`

// newest returns the newest output, from the start of a line if it has been cut.
func (r *replay) newest() []byte {
	data := r.output
	if over := len(data) - stream.MaxData; over > 0 {
		data = data[over:]
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return regexp.MustCompile(queries).ReplaceAll(data, nil)
}

// forwardTerminal sends the output of the terminal to the program that has it, until the last process
// has closed it.
func (d *daemon) forwardTerminal(from *os.File) {
	defer from.Close()
	frame := make([]byte, stream.HeaderSize+stream.MaxData)
	for {
		n, err := from.Read(frame[stream.HeaderSize:])
		if n > 0 {
			d.replay.mu.Lock()
			d.replay.add(frame[stream.HeaderSize:][:n])
			if p := d.peer.Load(); p != nil {
				// Without the program the task must still not block.
				_ = p.SendInPlace(stream.Stdout, uint32(d.replay.rank), frame[:stream.HeaderSize+n])
			}
			d.replay.mu.Unlock()
		}
		if err != nil { // EIO: a terminal without users
			return
		}
	}
}

// sendExit reports the end of a task.
func (d *daemon) sendExit(e step.Exit) {
	d.replay.mu.Lock()
	defer d.replay.mu.Unlock()
	d.replay.exits = append(d.replay.exits, e)
	if p := d.peer.Load(); p != nil {
		_ = p.SendValue(stream.Exited, e) // without a connection there is no reader of the report
	}
}

// taken reports input that all tasks took.
func (d *daemon) taken(n int) {
	if p := d.peer.Load(); p != nil {
		_ = p.Send(stream.Taken, uint32(n)) // without a connection no more input comes
	}
}

// leaveTime bounds how long a program that leaves may delay its successor.
const leaveTime = 2 * time.Second

// detach separates a program from the step, which continues. replaced is 1 if another one takes it.
func (d *daemon) detach(p *peer, replaced uint32) {
	if !d.peer.CompareAndSwap(p, nil) {
		return
	}
	err := p.SetWriteDeadline(time.Now().Add(leaveTime))
	if err == nil {
		err = p.Send(stream.Detached, replaced)
	}
	if err == nil {
		err = p.FinishSending()
	}
	if err != nil {
		p.Close()
	}
}

// followOrders hands the terminal to the programs that further orders name. It ends the step at its
// limit if grun has left it.
func (d *daemon) followOrders(ctx context.Context) {
	first, key := d.peer.Load(), d.Order.Key
	var limit <-chan time.Time
	if d.program.Limit > 0 {
		limit = time.After(d.program.Limit)
	}
	for {
		select {
		case order := <-d.Orders:
			if order.Key != key {
				key = order.Key
				d.attach(ctx, &order)
			}
		case <-limit:
			if d.peer.Load() != first {
				d.end(step.Ending{Signal: int(syscall.SIGTERM), Grace: stopGrace})
			}
		case <-d.ended:
			return
		}
	}
}

// attach connects to another program and gives it the terminal.
func (d *daemon) attach(ctx context.Context, o *step.Order) {
	conn, err := d.contact(ctx, o)
	var request stream.AttachRequest
	if err == nil {
		request, err = receiveAttach(conn)
	}
	if err != nil { // it has ended
		if conn != nil {
			conn.Close()
		}
		return
	}
	if old := d.peer.Load(); old != nil {
		d.detach(old, 1)
	}
	p := newPeer(conn)
	p.keep = request.Keep || d.program.Keep
	d.input.reset()
	d.replay.mu.Lock()
	if d.sent.Load() { // the step is ending
		d.replay.mu.Unlock()
		conn.Close()
		return
	}
	// Without a connection receiving fails too.
	_ = p.SendData(stream.Stdout, uint32(d.replay.rank), d.replay.newest())
	for _, e := range d.replay.exits {
		_ = p.SendValue(stream.Exited, e)
	}
	d.peer.Store(p)
	d.replay.mu.Unlock()
	d.redraw(request.Rows, request.Cols)
	go d.receive(p)
}

func receiveAttach(conn *stream.Conn) (request stream.AttachRequest, err error) {
	if err = conn.SetReadDeadline(time.Now().Add(stream.HandshakeTime)); err != nil {
		return request, err
	}
	f, err := conn.Receive()
	if err == nil && f.Kind != stream.Attach {
		err = stream.ErrFrame
	}
	if err == nil {
		err = f.Decode(&request)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	return request, err
}

// redraw sets the size of the terminal and has its programs draw the screen again.
func (d *daemon) redraw(rows, cols uint16) {
	d.controlTerminal(func(fd int) {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil || rows == 0 || size.Row != rows || size.Col != cols {
			return // setting the size sends the signal
		}
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group > 0 {
			_ = syscall.Kill(-group, syscall.SIGWINCH) // it may have ended
		}
	})
	if rows > 0 {
		d.resize(rows, cols)
	}
}
