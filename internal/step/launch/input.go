package launch

import (
	"sync"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
)

// window counts the input that a node may still get.
type window struct {
	mu     sync.Mutex
	more   *sync.Cond
	free   int
	closed bool
}

func newWindow() *window {
	w := &window{free: stream.Window}
	w.more = sync.NewCond(&w.mu)
	return w
}

// take waits until n bytes may be sent; false if the node is gone.
func (w *window) take(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.free < n && !w.closed {
		w.more.Wait()
	}
	w.free -= n
	return !w.closed
}

// release adds what a node reports, at most the window.
func (w *window) release(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = min(w.free+n, stream.Window)
	w.more.Broadcast()
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}

// readInput copies the standard input to the nodes whose tasks read it. The slowest one sets the
// pace.
func (r *running) readInput() {
	targets := r.inputTargets()
	buffer := make([]byte, stream.MaxData/2) // held keys are sent with it
	var keys detachKeys
	if r.detachable() {
		keys.sequence = r.DetachKeys
	}
	for r.Stdin != nil && len(targets) > 0 {
		n, err := r.Stdin.Read(buffer)
		data, found := keys.scan(buffer[:n])
		if len(data) > 0 {
			targets = r.sendInput(targets, func(to *node) error {
				if !to.window.take(len(data)) {
					return nil
				}
				return to.conn.SendData(stream.Stdin, 0, data)
			})
		}
		closed := err != nil && r.KeepOnHangup && r.Size != nil // the terminal, not a file
		if found || closed && r.detachable() {
			r.sendInput(targets, func(*node) error { // once it has started
				r.post(r.detach)
				return nil
			})
			return
		}
		if err != nil {
			break
		}
	}
	r.sendInput(targets, func(to *node) error { return to.conn.Send(stream.StdinEnd, 0) })
}

// inputTargets returns the nodes with tasks that read grun's input.
func (r *running) inputTargets() []*node {
	s := r.Program.Stdin
	if r.Program.PTY {
		s = step.Stream{Mode: step.StreamRank, Rank: 0}
	}
	var targets []*node
	for _, n := range r.nodes {
		if s.Mode == step.StreamAll || s.Mode == step.StreamRank && s.Rank >= n.first && s.Rank < n.first+n.Tasks {
			targets = append(targets, n)
		}
	}
	return targets
}

// sendInput calls send for each target once it has the program, and returns those that are left.
func (r *running) sendInput(targets []*node, send func(*node) error) []*node {
	var left []*node
	for _, n := range targets {
		select {
		case <-n.started:
			if send(n) == nil { // else receiving fails too
				left = append(left, n)
			}
		case <-n.gone:
		case <-r.ctx.Done():
		}
	}
	return left
}
