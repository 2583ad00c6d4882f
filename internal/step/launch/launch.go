// Package launch is grun's side of a step: it sends the program to the nodes, copies the tasks'
// standard streams, and finds the exit status.
//
// It decides when a step ends early: a failed task, the time after the first end, a lost node, the
// user's signals. It never decides where tasks run.
package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
	"github.com/greylag/greylag/internal/tunnel"
)

// Config is the input of Run.
type Config struct {
	ID       string // of the step, such as 123.0
	Nodes    []step.Node
	Program  step.Program
	Listener net.Listener // Run closes it
	Secret   *stream.Secret

	Stdin          io.Reader // nil: none
	Stdout, Stderr io.Writer
	// Note prints a line about the step; an error if bad.
	Note func(bad bool, text string)

	Label, KillOnBadExit, NoKill, QuitOnInterrupt bool
	// Wait ends the step so long after the first task ended; 0: never.
	Wait time.Duration
	// Limit ends the step so long after the start; 0: never.
	Limit time.Duration
	// Signals are forwarded to the tasks; SIGINT reports their state first, SIGWINCH sends Size.
	Signals <-chan os.Signal
	Size    func() (rows, cols uint16)
	// Attach takes the terminal of a running step instead of starting one.
	Attach bool
	// DetachKeys are the keys that detach the program in a terminal; empty: none. KeepOnHangup
	// detaches it also on SIGHUP.
	DetachKeys   []byte
	KeepOnHangup bool
	// Leave prepares for a step without this program; an error prevents detaching. It may be nil.
	Leave func() error
	// Forwards are connections to forward to ports of the first node. nil: none.
	Forwards <-chan Forward
	// Connect bounds the wait for the nodes; 0: 60 s.
	Connect time.Duration
	// Ended is called 20 times within Connect while nodes are missing, and says why they will not come;
	// "" if they may. nil: unknown.
	Ended func(context.Context) string
}

// Forward is a connection to forward to a port of a node.
type Forward struct {
	Conn net.Conn
	Port uint16
}

// The exit status of a step that lost a node or did not start on one, and of one that the user
// interrupted.
const (
	StatusLost        = 1
	StatusInterrupted = 128 + int(syscall.SIGINT)
)

// StatusDetached is what Run returns if the step continues without it.
const StatusDetached = -1

// Times of the end of a step.
const (
	connectTime  = 60 * time.Second
	endGrace     = 5 * time.Second  // between SIGTERM and SIGKILL
	detachTime   = 10 * time.Second // for a node to confirm
	reportGrace  = 10 * time.Second // between SIGKILL and leaving without the nodes' reports
	secondPress  = time.Second      // of Ctrl-C
	collectExits = 100 * time.Millisecond
)

// node is one node of the step.
type node struct {
	step.Node
	first    int
	conn     *stream.Conn // nil before it connected
	commands chan func() error
	window   *window
	started  chan struct{} // closed when it has the program
	gone     chan struct{} // closed when no more comes from it
	done     bool
}

// running is a step under way. One goroutine, Run's, has all of it.
type running struct {
	Config
	ctx    context.Context
	nodes  []*node
	events chan func() // what Run does next
	sinks  [2]*sink

	states    []taskState // by rank
	unended   int         // nodes that are not done
	tally     step.Tally
	exits     []exitGroup // not printed yet
	fence     fence
	forwarded []net.Conn // by number; nil after the node's end arrived
	early     []Forward  // accepted before the first node connected
	closing   sync.WaitGroup
	ending    bool // the tasks were ordered to end
	detached  bool // the step continues
	leaving   bool // end without waiting for them
	status    int  // of an ending; overrides the tally unless 0
	pressed   time.Time
	waiting   bool // for Config.Wait
}

// taskState is what a report to the user says about a task.
type taskState int

const (
	taskPending taskState = iota
	taskRunning
	taskEnded
)

// Run runs the step and returns its exit status. Cancelling ctx leaves at once: the nodes end the
// tasks when they lose the connection.
func Run(ctx context.Context, c Config) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &running{Config: c, ctx: ctx, events: make(chan func()), unended: len(c.Nodes)}
	tasks := step.CountTasks(c.Nodes)
	r.states = make([]taskState, tasks)
	r.sinks = [2]*sink{newSink(c.Stdout, c.Label, tasks), newSink(c.Stderr, c.Label, tasks)}
	for i, n := range c.Nodes {
		r.nodes = append(r.nodes, &node{
			Node: n, first: step.FirstRank(c.Nodes, i), window: newWindow(),
			commands: make(chan func() error, maxCommands), started: make(chan struct{}), gone: make(chan struct{}),
		})
	}
	go accept(ctx, c.Listener, c.Secret, func(conn *stream.Conn, node int) {
		if !r.post(func() { r.connected(conn, node) }) {
			conn.Close()
		}
	})
	go r.readInput()
	r.timers()
	r.loop()
	for _, n := range r.nodes {
		r.leave(n)
	}
	r.closing.Wait()
	r.flushExits()
	for _, s := range r.sinks {
		_ = s.close() // a lost reader was reported
	}
	switch {
	case r.detached:
		return StatusDetached
	case r.status != 0:
		return r.status
	}
	return r.tally.Status()
}

// timers starts what does not depend on the tasks.
func (r *running) timers() {
	if r.Connect == 0 {
		r.Connect = connectTime
	}
	r.after(r.Connect, r.checkConnected)
	if r.Ended != nil {
		go r.askEnded(r.Connect / 20)
	}
	if r.Limit > 0 {
		r.after(r.Limit, func() { r.end("the time limit of the step is over", syscall.SIGTERM, StatusLost) })
	}
}

// after has f done after a time.
func (r *running) after(d time.Duration, f func()) { time.AfterFunc(d, func() { r.post(f) }) }

// post has f done by Run. It reports whether Run still does anything.
func (r *running) post(f func()) bool {
	select {
	case r.events <- f:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *running) loop() {
	for r.unended > 0 && !r.leaving {
		select {
		case f := <-r.events:
			f()
		case sig := <-r.Signals:
			r.signalled(sig)
		case f := <-r.Forwards:
			r.forward(f)
		case <-r.ctx.Done():
			return
		}
	}
}

// connected sends a node its part of the program.
func (r *running) connected(conn *stream.Conn, index int) {
	if index >= stream.ForwardBase {
		r.join(conn, index-stream.ForwardBase)
		return
	}
	if index < 0 || index >= len(r.nodes) || r.nodes[index].conn != nil || r.nodes[index].done {
		conn.Close() // not a node of the step, or it came twice
		return
	}
	n := r.nodes[index]
	n.conn = conn
	for rank := n.first; rank < n.first+n.Tasks; rank++ {
		r.states[rank] = taskRunning
	}
	p := r.Program
	if len(p.Args) == 1 {
		p.Args = make([][]string, n.Tasks)
		for i := range p.Args {
			p.Args[i] = r.Program.Args[0]
		}
	} else {
		p.Args = p.Args[n.first:][:n.Tasks]
	}
	if tcp, ok := conn.LocalAddr().(*net.TCPAddr); ok && (!tcp.IP.IsLoopback() || p.LaunchAddress == "") {
		p.LaunchAddress = tcp.IP.String()
	}
	n.commands <- func() error {
		defer close(n.started)
		if r.Attach {
			return conn.SendValue(stream.Attach, stream.AttachRequest{Rows: p.Rows, Cols: p.Cols, Keep: p.Keep})
		}
		return conn.SendValue(stream.Start, &p)
	}
	go r.command(n)
	go r.receive(n)
	if index == 0 {
		for _, f := range r.early {
			r.forward(f)
		}
		r.early = nil
	}
}

// forward asks the first node for its end of a connection.
func (r *running) forward(f Forward) {
	first := r.nodes[0]
	if first.conn == nil && !first.done && len(r.early) < maxCommands {
		r.early = append(r.early, f)
		return
	}
	id := len(r.forwarded)
	r.forwarded = append(r.forwarded, f.Conn)
	if first.conn == nil || first.done || len(first.commands) == maxCommands {
		f.Conn.Close()
		return
	}
	first.commands <- func() error {
		return first.conn.SendValue(stream.Dial, stream.DialRequest{ID: uint32(id), Port: f.Port})
	}
	r.after(r.Connect, func() { r.join(nil, id) })
}

// join connects a forwarded connection to the node's end; conn is nil if that did not arrive.
func (r *running) join(conn *stream.Conn, id int) {
	if id >= len(r.forwarded) || r.forwarded[id] == nil {
		if conn != nil {
			conn.Close()
		}
		return
	}
	near := r.forwarded[id]
	r.forwarded[id] = nil
	if conn == nil {
		near.Close()
		return
	}
	go tunnel.Join(r.ctx, near, conn.Raw())
}

// maxCommands bounds the commands that wait for a node. A node reads all the time: one that does not is
// lost.
const maxCommands = 64

// command sends commands to a node.
func (r *running) command(n *node) {
	for {
		select {
		case send := <-n.commands:
			if send() != nil {
				return // receiving fails too
			}
		case <-r.ctx.Done():
			return
		}
	}
}

// order queues a command for all nodes that may have tasks.
func (r *running) order(send func(*stream.Conn) error) {
	for _, n := range r.nodes {
		if n.conn == nil || n.done {
			continue
		}
		select {
		case n.commands <- func() error { return send(n.conn) }:
		default:
			n.conn.Close()
		}
	}
}

// receive handles the frames of a node.
func (r *running) receive(n *node) {
	for {
		f, err := n.conn.Receive()
		done := false
		if err == nil {
			done, err = r.handle(n, f)
		}
		if done {
			n.conn.Finish()
		}
		if done || err != nil {
			r.post(func() { r.finished(n, err) })
			return
		}
	}
}

// handle handles one frame. Output is written here, so that a slow reader stops the node.
func (r *running) handle(n *node, f stream.Frame) (done bool, err error) {
	switch f.Kind {
	case stream.Stdout, stream.Stderr:
		rank := int(f.Number)
		if rank < n.first || rank >= n.first+n.Tasks {
			return false, fmt.Errorf("%w: output of task %d", stream.ErrFrame, rank)
		}
		if err := r.sinks[f.Kind-stream.Stdout].write(rank, f.Payload); err != nil {
			r.post(func() { r.end("cannot write the output: "+err.Error(), syscall.SIGTERM, StatusLost) })
		}
	case stream.Taken:
		n.window.release(int(f.Number))
	case stream.Exited:
		var e step.Exit
		if err := f.Decode(&e); err != nil {
			return false, err
		}
		if e.Rank < n.first || e.Rank >= n.first+n.Tasks {
			return false, fmt.Errorf("%w: end of task %d", stream.ErrFrame, e.Rank)
		}
		r.post(func() { r.exited(n, e) })
	case stream.Fence:
		var pairs stream.Pairs
		if err := f.Decode(&pairs); err != nil {
			return false, err
		}
		r.post(func() { r.fenced(pairs) })
	case stream.Abort:
		var a stream.AbortRequest
		if err := f.Decode(&a); err != nil {
			return false, err
		}
		r.post(func() { r.aborted(n, a) })
	case stream.Done:
		return true, nil
	case stream.Detached:
		r.post(func() { r.left(f.Number == 1) })
		return true, nil
	default:
		return false, fmt.Errorf("%w: kind %d from a node", stream.ErrFrame, f.Kind)
	}
	return false, nil
}

// fence merges the pairs of the nodes at a barrier.
type fence struct {
	entered int
	pairs   stream.Pairs
}

func (r *running) fenced(pairs stream.Pairs) {
	if r.fence.pairs == nil {
		r.fence.pairs = stream.Pairs{}
	}
	for name, value := range pairs {
		r.fence.pairs[name] = value
	}
	if r.fence.entered++; r.fence.entered < len(r.nodes) {
		return
	}
	all := r.fence.pairs
	r.fence = fence{}
	r.order(func(c *stream.Conn) error { return c.SendValue(stream.Fenced, all) })
}
