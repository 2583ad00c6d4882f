// Package daemon is gstepd: it runs the tasks of one step on one node, as the job's user inside the
// job's container.
//
// It decides which environment, GPUs and CPUs each task gets, and how the end of a task is reported.
// It never decides when a step ends early: grun does, over the connection that gstepd opens to it.
// Losing that connection ends the tasks, unless the user wants to keep a step with a terminal. Another
// program can attach to such a step: gstepd connects to it when it gets another order.
package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
	"github.com/greylag/greylag/internal/tunnel"
)

// Config is the input of Run.
type Config struct {
	Order step.Order
	// Adopt makes this process the parent of all orphaned descendants, and kills those left when
	// the tasks have ended. Only for a process that has no other children.
	Adopt bool
	// Exits is set if this process exits right after Run: the connection then lasts until its exit,
	// so that gnoded knows the end of the step before grun ends.
	Exits bool
	// MemoryEvents is the file that counts processes killed for memory; "" for none.
	MemoryEvents string
	// Signals are sent to the tasks.
	Signals <-chan os.Signal
	// Dial opens a connection; nil for TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Orders are further orders of the step: each names the program that takes its terminal.
	Orders <-chan step.Order
}

// The exit statuses of gstepd when it ran no task.
const (
	ExitOrder   = 116 // the order cannot be read
	ExitContact = 117 // grun cannot be reached
)

// How long tasks may continue after SIGTERM: when the connection is lost, and when gstepd gets
// SIGTERM itself.
const (
	lostGrace = 2 * time.Second
	stopGrace = 30 * time.Second
)

// daemon is one run of gstepd.
type daemon struct {
	Config
	node    step.Node
	first   int                  // rank of the first task
	size    int                  // tasks of the step
	peer    atomic.Pointer[peer] // nil: detached
	program step.Program
	reaper  *reaper
	input   *broadcast
	mpi     *mpi
	oom     uint64      // processes killed for memory so far
	sent    atomic.Bool // everything was sent, except perhaps Done

	mu      sync.Mutex
	tasks   []*task
	pty     *os.File // of rank 0
	left    int      // tasks that run
	ended   chan struct{}
	tally   step.Tally
	outputs sync.WaitGroup

	replay replay
}

// Run runs the tasks of the order's node and returns the highest exit status. Cancelling ctx sends
// the tasks SIGTERM, and SIGKILL 30 s later.
func Run(ctx context.Context, cfg Config) (int, error) {
	d := &daemon{Config: cfg, node: cfg.Order.Own(), ended: make(chan struct{})}
	d.first, d.size = step.FirstRank(cfg.Order.Nodes, cfg.Order.Node), step.CountTasks(cfg.Order.Nodes)
	conn, err := d.contact(ctx, &d.Order)
	if conn != nil {
		d.peer.Store(newPeer(conn))
		defer d.leave()
	}
	if err != nil {
		return ExitContact, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) }) // before there is a program
	f, err := conn.Receive()
	if err == nil && f.Kind != stream.Start {
		err = fmt.Errorf("%w: kind %d at the start", stream.ErrFrame, f.Kind)
	}
	if err == nil {
		err = f.Decode(&d.program)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && len(d.program.Args) != d.node.Tasks {
		err = fmt.Errorf("%w: programs for %d of %d tasks", stream.ErrFrame, len(d.program.Args), d.node.Tasks)
	}
	if err != nil {
		return ExitContact, err
	}
	d.peer.Load().keep = d.program.Keep && d.detachable()
	d.run(ctx)
	return d.tally.Status(), nil
}

// detachable reports whether the step can continue without grun, which connects the tasks of several nodes.
func (d *daemon) detachable() bool { return d.program.PTY && len(d.Order.Nodes) == 1 }

// leave closes the connection.
func (d *daemon) leave() {
	p := d.peer.Load()
	if p != nil && (!d.Exits || p.LocalAddr().Network() == tunnel.Network) { // the end of a tunnel must be said
		p.Close()
	}
}

// run starts the tasks and serves the connection until they have ended and their output was sent.
func (d *daemon) run(ctx context.Context) {
	d.reaper = newReaper(d.Adopt)
	d.oom = d.countOOM()
	d.start()
	go d.receive(d.peer.Load())
	if d.detachable() {
		go d.followOrders(ctx)
	}
	stop := context.AfterFunc(ctx, func() { d.end(step.Ending{Signal: int(syscall.SIGTERM), Grace: stopGrace}) })
	defer stop()
	d.forwardSignals()
	if d.Adopt {
		killDescendants()
	}
	d.input.close()
	d.outputs.Wait()
	// grun answers by ending its side. Without reading until then, closing would discard output under
	// way.
	d.replay.mu.Lock()
	d.sent.Store(true)
	p := d.peer.Load() // the last one
	d.replay.mu.Unlock()
	if p != nil && p.Send(stream.Done, 0) == nil {
		<-p.left
	}
	d.mpi.close()
	d.reaper.close()
}

// forwardSignals sends signals to the tasks until all have ended.
func (d *daemon) forwardSignals() {
	for {
		select {
		case sig := <-d.Signals:
			if number, ok := sig.(syscall.Signal); ok {
				d.signal(number)
			}
		case <-d.ended:
			return
		}
	}
}

// dialTime bounds the search for grun.
const dialTime = 30 * time.Second

// contact connects to the first address of an order that answers.
func (d *daemon) contact(ctx context.Context, o *step.Order) (*stream.Conn, error) {
	key, err := hex.DecodeString(o.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: key: %w", step.ErrBadOrder, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		conn, err := d.dialAny(ctx, o)
		switch {
		case err == nil:
			return conn, conn.Prove(key, o.Node)
		case errors.Is(err, errEnded):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reach grun: %w", err)
		case <-time.After(wait):
		}
	}
}

// errEnded means that grun does not listen at any of its addresses.
var errEnded = errors.New("cannot reach grun: it has ended")

// errNoTunnel means that the daemon of this node does not run.
var errNoTunnel = errors.New("gnoded does not answer")

// dialAny tries all addresses at once, since some may not be reachable from this node.
func (d *daemon) dialAny(ctx context.Context, o *step.Order) (*stream.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, stream.HandshakeTime)
	defer cancel()
	type result struct {
		conn *stream.Conn
		err  error
	}
	results := make(chan result)
	for _, address := range o.Contact {
		go func() {
			raw, err := d.dial(ctx, address)
			var conn *stream.Conn
			if err == nil {
				conn, err = stream.Client(ctx, raw, o.Fingerprint)
			}
			select {
			case results <- result{conn, err}:
			case <-ctx.Done(): // another address was faster
				if err == nil {
					conn.Close()
				}
			}
		}()
	}
	var errs []error
	for range o.Contact {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			errs = append(errs, r.err)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	joined := errors.Join(errs...)
	if !slices.ContainsFunc(errs, func(err error) bool {
		return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, stream.ErrDenied)
	}) {
		return nil, fmt.Errorf("%w: %w", errEnded, joined)
	}
	return nil, joined
}

// keepAlive finds a peer whose host is gone within 45 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 6}

func (d *daemon) dial(ctx context.Context, address string) (net.Conn, error) {
	if d.Dial != nil {
		return d.Dial(ctx, address)
	}
	if name, ok := strings.CutPrefix(address, step.TunnelPrefix); ok {
		id, err := tunnel.ParseID(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", step.ErrBadOrder, err)
		}
		socket, _ := newEnvironment(d.Order.Env).get(nodeSocket)
		conn, err := tunnel.Dial(ctx, tunnel.Node{Socket: socket}, id)
		if errors.Is(err, syscall.ECONNREFUSED) { // the node's daemon restarts
			return nil, errNoTunnel
		}
		return conn, err
	}
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	return dialer.DialContext(ctx, "tcp", address)
}

// receive obeys grun until the connection ends; it ends the tasks with it unless they are to be kept. It
// never waits for a task.
func (d *daemon) receive(p *peer) {
	defer close(p.left)
	for {
		f, err := p.Receive()
		if err == nil && d.peer.Load() == p { // else it is leaving
			err = d.obey(p, f)
		}
		if err != nil {
			break
		}
	}
	switch {
	case d.sent.Load() && d.peer.Load() == p:
		d.input.close()
		d.mpi.close()
		return
	case p.keep:
		d.peer.CompareAndSwap(p, nil)
	}
	p.Close() // no output is sent any more
	if d.peer.Load() == p {
		d.input.close()
		d.mpi.close()
		d.end(step.Ending{Signal: int(syscall.SIGTERM), Grace: lostGrace})
	}
}

func (d *daemon) obey(p *peer, f stream.Frame) error {
	switch f.Kind {
	case stream.Detach:
		if !d.detachable() {
			return fmt.Errorf("%w: this step cannot be detached", stream.ErrFrame)
		}
		d.detach(p, 0)
	case stream.Stdin:
		return d.input.add(f.Payload)
	case stream.StdinEnd:
		d.input.end()
	case stream.Signal:
		d.signal(syscall.Signal(f.Number))
	case stream.Resize:
		d.resize(uint16(f.Number>>16), uint16(f.Number))
	case stream.End:
		var ending step.Ending
		if err := f.Decode(&ending); err != nil {
			return err
		}
		d.end(ending)
	case stream.Dial:
		var request stream.DialRequest
		if err := f.Decode(&request); err != nil {
			return err
		}
		go d.joinPort(request)
	case stream.Fenced:
		var pairs stream.Pairs
		if err := f.Decode(&pairs); err != nil {
			return err
		}
		d.mpi.fenced(pairs)
	default:
		return fmt.Errorf("%w: kind %d for a node", stream.ErrFrame, f.Kind)
	}
	return nil
}

// joinPort connects a forwarded connection of grun to a port of this node. If no program listens on the
// port, grun sees a connection that closes at once.
func (d *daemon) joinPort(request stream.DialRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	key, err := hex.DecodeString(d.Order.Key)
	if err != nil {
		return
	}
	conn, err := d.dialAny(ctx, &d.Order)
	if err != nil {
		return // grun closes its end after a timeout
	}
	if conn.Prove(key, stream.ForwardBase+int(request.ID)) != nil {
		conn.Close()
		return
	}
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(request.Port))))
	if err != nil {
		conn.Close()
		return
	}
	tunnel.Join(context.Background(), to, conn.Raw())
}

// signal sends a signal to the process groups of all tasks.
func (d *daemon) signal(sig syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.pid > 0 && !t.reaped {
			// Its processes may have just ended.
			_ = syscall.Kill(-t.pid, sig)
		}
	}
}

// end sends the signal, and SIGKILL after the grace time.
func (d *daemon) end(e step.Ending) {
	if e.Signal != int(syscall.SIGKILL) {
		d.signal(syscall.Signal(e.Signal))
		d.signal(syscall.SIGCONT) // a stopped task would not notice
	}
	time.AfterFunc(e.Grace, func() { d.signal(syscall.SIGKILL) })
}
