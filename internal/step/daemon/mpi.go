package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/pmi"
	"github.com/greylag/greylag/internal/step/stream"
)

// pmiFD is the descriptor of the PMI socket in a task.
const pmiFD = 3

// mpi serves PMI to the tasks of this node. Its zero value serves none.
type mpi struct {
	daemon  *daemon
	server  *pmi.Server
	ctx     context.Context
	cancel  context.CancelFunc
	replies chan stream.Pairs // grun's answers to Fence, at most one under way
}

func newMPI(d *daemon) *mpi {
	m := &mpi{daemon: d, replies: make(chan stream.Pairs, 1), cancel: func() {}}
	if d.program.MPI != step.MPIPMI2 {
		return m
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	config := pmi.Config{Job: d.Order.ID(), Size: d.size, Node: d.Order.Node, Abort: m.abort}
	var tasks []int
	for _, n := range d.Order.Nodes {
		tasks = append(tasks, n.Tasks)
	}
	config.Mapping = pmi.Mapping(tasks)
	for i := range d.node.Tasks {
		config.Ranks = append(config.Ranks, d.first+i)
	}
	if len(d.Order.Nodes) > 1 {
		config.Exchange = m
	}
	m.server = pmi.New(config)
	return m
}

// join gives a task a socket, as its descriptor pmiFD, and returns the variables that say so.
func (m *mpi) join(t *task) ([]string, error) {
	if m.server == nil {
		return nil, nil
	}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	t.child = append(t.child, ends[1])
	own, err := parentEnd(ends[0])
	if err != nil {
		return nil, err
	}
	// An error is the task's: it left, or does not speak PMI.
	go func() { _ = m.server.Serve(m.ctx, t.rank, own) }()
	return pmi.Environ(t.rank, m.daemon.size, m.daemon.Order.ID(), pmiFD), nil
}

// lost reports whether a task that ended leaves others waiting.
func (m *mpi) lost(rank int) bool {
	if m.server == nil {
		return false
	}
	initialized, finalized := m.server.Joined(rank)
	return initialized && !finalized
}

// Fence sends the pairs of this node to grun and waits for those of all nodes.
func (m *mpi) Fence(ctx context.Context, pairs map[string]string) (map[string]string, error) {
	p := m.daemon.peer.Load()
	if p == nil {
		return nil, errDetached
	}
	if err := p.SendValue(stream.Fence, stream.Pairs(pairs)); err != nil {
		return nil, err
	}
	select {
	case all := <-m.replies:
		return all, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.ctx.Done():
		return nil, errors.New("the step is ending")
	}
}

// fenced receives grun's answer. One that no fence waits for is dropped.
func (m *mpi) fenced(pairs stream.Pairs) {
	select {
	case m.replies <- pairs:
	default:
	}
}

// abort sends a task's request to end the step.
func (m *mpi) abort(rank, code int, message string) {
	p := m.daemon.peer.Load()
	if p == nil {
		m.daemon.end(step.Ending{Signal: int(syscall.SIGTERM), Grace: lostGrace})
		return
	}
	// If the connection is lost, the step is ending already.
	_ = p.SendValue(stream.Abort, stream.AbortRequest{Rank: rank, Code: code, Message: message})
}

// close ends waiting tasks' fences.
func (m *mpi) close() { m.cancel() }
