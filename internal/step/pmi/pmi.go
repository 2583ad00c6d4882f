// Package pmi serves PMI-1 and PMI-2, the protocols by which the ranks of an MPI program exchange
// their addresses, over one connection per rank.
package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// The limits that get_maxes reports, and those on what a rank may send.
const (
	maxName    = 256      // bytes of the name of the key-value space
	maxKey     = 64       // bytes of a key
	maxValue   = 1024     // bytes of a value
	maxMessage = 16 << 10 // bytes of a message
	maxStored  = 1 << 20  // bytes of keys and values that one rank may store
	mappingKey = "PMI_process_mapping"
)

// Exchange merges the key-value pairs of all nodes at a barrier.
type Exchange interface {
	// Fence is called once per barrier by each node, with that node's new pairs, when all of its
	// ranks have entered. It returns the merged new pairs of all nodes.
	Fence(ctx context.Context, pairs map[string]string) (map[string]string, error)
}

// Config describes a step and the ranks of it on one node.
type Config struct {
	Job      string   // the name of the key-value space, such as 123.0
	Size     int      // ranks of the step
	Ranks    []int    // global ranks on this node, in local order
	Mapping  string   // ranks by node, as Mapping returns it; empty if unknown
	Node     int      // index of this node in the step
	Exchange Exchange // nil if the step has one node

	// Abort is called when a rank asks to end the step with an exit code.
	Abort func(rank, code int, message string)
}

// Server answers the ranks of a step on one node.
type Server struct {
	config Config

	mu      sync.Mutex
	ranks   map[int]*rankState
	store   map[string]string // pairs of all nodes, as of the last barrier
	pending map[string]string // pairs of this node since the last barrier
	barrier *barrier

	attributes map[string]string // PMI-2's attributes of the node
	changed    chan struct{}     // closed at the next change of attributes
}

// rankState is what the server knows about one rank.
type rankState struct {
	initialized, finalized bool
	stored                 int // bytes of keys and values that it stored
}

// barrier is one barrier of the ranks on this node.
type barrier struct {
	entered int
	done    chan struct{}
	err     error // valid once done is closed
}

func newBarrier() *barrier { return &barrier{done: make(chan struct{})} }

// New returns a server for the ranks of c.
func New(c Config) *Server {
	s := &Server{
		config: c, ranks: map[int]*rankState{}, store: map[string]string{}, pending: map[string]string{},
		barrier: newBarrier(), attributes: map[string]string{}, changed: make(chan struct{}),
	}
	for _, rank := range c.Ranks {
		s.ranks[rank] = &rankState{}
	}
	return s
}

// Joined reports whether a rank has called init and whether it has called finalize since. A process
// that initialized and ends without finalize leaves the others waiting: its step should end.
func (s *Server) Joined(rank int) (initialized, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.ranks[rank]; r != nil {
		return r.initialized, r.finalized
	}
	return false, false
}

// Environ returns the variables by which a rank finds its server on the inherited descriptor fd.
func Environ(rank, size int, job string, fd int) []string {
	return []string{
		"PMI_FD=" + strconv.Itoa(fd), "PMI_RANK=" + strconv.Itoa(rank),
		"PMI_SIZE=" + strconv.Itoa(size), "PMI_JOBID=" + job,
	}
}

// Mapping returns the value of PMI_process_mapping for a step with the given tasks on each node,
// ranks block by block: blocks of first node, number of nodes, tasks per node. It returns "" where
// the value would exceed the length limit.
func Mapping(tasks []int) string {
	var out strings.Builder
	out.WriteString("(vector")
	for first := 0; first < len(tasks); {
		n := 1
		for first+n < len(tasks) && tasks[first+n] == tasks[first] {
			n++
		}
		fmt.Fprintf(&out, ",(%d,%d,%d)", first, n, tasks[first])
		first += n
	}
	out.WriteString(")")
	if out.Len() > maxValue {
		return ""
	}
	return out.String()
}

// Serve answers one rank until its connection or ctx ends, and closes conn. It returns an error
// when the rank sends what is not PMI; the rank then finds its connection closed.
func (s *Server) Serve(ctx context.Context, rank int, conn io.ReadWriteCloser) error {
	defer conn.Close()
	if s.ranks[rank] == nil {
		return fmt.Errorf("rank %d is not on node %d of the step", rank, s.config.Node)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c := &client{Server: s, rank: rank, in: bufio.NewReaderSize(conn, maxMessage), out: conn}
	for {
		m, err := c.next()
		if err == nil {
			err = c.handle(ctx, m)
		}
		var invalid invalidError
		switch {
		case errors.As(err, &invalid):
			return fmt.Errorf("rank %d sent an invalid PMI message: %w", rank, err)
		case err != nil: // the connection ended, or ctx did
			return nil
		}
	}
}

// client is the connection of one rank.
type client struct {
	*Server
	rank    int
	version int // 0 before init
	in      *bufio.Reader
	out     io.Writer
}

// handle answers one message.
func (c *client) handle(ctx context.Context, m message) error {
	if m.command == "init" {
		return c.init(m)
	}
	initialized, finalized := c.Joined(c.rank)
	switch {
	case !initialized:
		return invalidError(fmt.Sprintf("%.40q before init", m.command))
	case finalized:
		return c.fail(m, c.answer(m.command), "init must come first: this rank called finalize")
	case c.version == 1:
		return c.handle1(ctx, m)
	default:
		return c.handle2(ctx, m)
	}
}

// init answers the first line, which PMI-1 and PMI-2 share.
func (c *client) init(m message) error {
	version, subversion := m.pairs["pmi_version"], "1"
	switch version {
	case "1":
		c.version = 1
	case "2":
		c.version, subversion = 2, "0"
	default:
		return c.line("response_to_init", "pmi_version", "2", "pmi_subversion", "0", "rc", "-1")
	}
	c.mu.Lock()
	r := c.ranks[c.rank]
	r.initialized, r.finalized = true, false
	c.mu.Unlock()
	return c.line("response_to_init", "pmi_version", version, "pmi_subversion", subversion, "rc", "0")
}

// finalize notes that the rank leaves as it should.
func (c *client) finalize() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks[c.rank].finalized = true
}

// abort asks for the end of the step; a missing or invalid exit code counts as 1.
func (c *client) abort(m message) {
	code, err := strconv.Atoi(m.pairs["exitcode"])
	if err != nil {
		code = 1
	}
	message := m.pairs["message"]
	if message == "" {
		message = m.pairs["msg"]
	}
	c.config.Abort(c.rank, code, message)
}

// reserve checks a pair of a rank and counts its bytes. The caller holds mu.
func (s *Server) reserve(rank int, key, value string) error {
	r := s.ranks[rank]
	switch size := len(key) + len(value); {
	case key == "":
		return errors.New("the key is missing")
	case len(key) > maxKey:
		return fmt.Errorf("the key is longer than %d bytes", maxKey)
	case len(value) > maxValue:
		return fmt.Errorf("the value is longer than %d bytes", maxValue)
	case strings.ContainsAny(key+value, "\n\x00"):
		return errors.New("the pair contains a line end or a NUL byte")
	case r.stored+size > maxStored:
		return fmt.Errorf("this rank stored %d bytes already", r.stored)
	default:
		r.stored += size
		return nil
	}
}

// put stores a pair for the next barrier.
func (s *Server) put(rank int, key, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reserve(rank, key, value); err != nil {
		return err
	}
	s.pending[key] = value
	return nil
}

// get returns the value of a key: of this node at once, of the others since the last barrier.
func (s *Server) get(key string) (string, bool) {
	if key == mappingKey {
		return s.config.Mapping, s.config.Mapping != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.pending[key]
	if !ok {
		value, ok = s.store[key]
	}
	return value, ok
}

// fence waits until all ranks of the step have entered the barrier; then each knows all pairs.
func (s *Server) fence(ctx context.Context) error {
	s.mu.Lock()
	b := s.barrier
	if b.entered++; b.entered < len(s.config.Ranks) {
		s.mu.Unlock()
		select {
		case <-b.done:
			return b.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	pairs := s.pending
	s.pending, s.barrier = map[string]string{}, newBarrier()
	s.mu.Unlock()
	if s.config.Exchange != nil {
		pairs, b.err = s.config.Exchange.Fence(ctx, pairs)
	}
	s.mu.Lock()
	for key, value := range pairs {
		s.store[key] = value
	}
	s.mu.Unlock()
	close(b.done)
	return b.err
}

// putAttribute stores a PMI-2 attribute of the node.
func (s *Server) putAttribute(rank int, key, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reserve(rank, key, value); err != nil {
		return err
	}
	s.attributes[key] = value
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// attribute returns a PMI-2 attribute of the node; with wait it waits until a rank stores it.
func (s *Server) attribute(ctx context.Context, key string, wait bool) (string, bool) {
	for {
		s.mu.Lock()
		value, ok := s.attributes[key]
		changed := s.changed
		s.mu.Unlock()
		if ok || !wait {
			return value, ok
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", false
		}
	}
}
