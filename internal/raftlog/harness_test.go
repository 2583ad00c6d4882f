package raftlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// journal is a state machine that remembers every command. Its digest chains them,
// so two journals with equal digests hold the same commands in the same order.
type journal struct {
	mu       sync.Mutex
	commands []string
	chain    uint64
	lastAt   int64
	twist    func(command string) string // a fault: changes a command on this replica
	panicOn  string
	newerOn  string
	gate     chan struct{} // if set, Apply waits for it
	bulk     bool          // for benchmarks: chain only
	version  uint16        // of the digest
	salt     uint64        // added to the digest by that version
}

func (j *journal) Apply(_ uint64, at int64, commands [][]byte) []any {
	if j.gate != nil {
		<-j.gate
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lastAt = max(j.lastAt, at)
	results := make([]any, len(commands))
	for i, c := range commands {
		if j.bulk {
			j.chain += uint64(len(c))
			results[i] = len(c)
			continue
		}
		if j.panicOn != "" && string(c) == j.panicOn {
			panic("poison")
		}
		if j.newerOn != "" && string(c) == j.newerOn {
			results[i] = fmt.Errorf("command: %w", ErrNewer)
			continue
		}
		text := string(c)
		if j.twist != nil {
			text = j.twist(text)
		}
		j.add(text)
		results[i] = len(j.commands)
	}
	return results
}

func (j *journal) add(text string) {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, j.chain)
	io.WriteString(h, text)
	j.chain = h.Sum64()
	j.commands = append(j.commands, text)
}

func (j *journal) Digest() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.chain ^ j.salt
}

func (j *journal) DigestVersion() uint16 { return j.version }

func (j *journal) Snapshot() (SnapshotWriter, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return journalSnapshot(j.commands[:len(j.commands):len(j.commands)]), nil
}

type journalSnapshot []string

func (s journalSnapshot) WriteTo(w io.Writer) (n int64, err error) {
	for _, c := range s {
		m, err := w.Write(append(binary.AppendUvarint(nil, uint64(len(c))), c...))
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s journalSnapshot) Release() {}

func (j *journal) Restore(r io.Reader) error {
	all, err := io.ReadAll(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.commands, j.chain = nil, 0
	for len(all) > 0 && err == nil {
		size, n := binary.Uvarint(all)
		if n <= 0 || size > uint64(len(all)-n) {
			return errors.New("bad journal")
		}
		j.add(string(all[n : n+int(size)]))
		all = all[n+int(size):]
	}
	return err
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.commands)
}

// memNet is a network of pipes in memory that can be cut.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	cut       map[[2]string]bool
	deaf      string // accepts no new connections
	pipes     map[[2]string][]net.Conn
	delay     func() time.Duration // of each message; nil: none
}

func newMemNet() *memNet {
	return &memNet{listeners: map[string]*memListener{}, cut: map[[2]string]bool{}, pipes: map[[2]string][]net.Conn{}}
}

type memListener struct {
	n      *memNet
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *memNet) listen(addr string) *memListener {
	l := &memListener{n: n, addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

func pair(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// separate cuts or heals the connections between two addresses.
func (n *memNet) separate(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := pair(a, b)
	n.cut[key] = cut
	if cut {
		for _, c := range n.pipes[key] {
			c.Close()
		}
		n.pipes[key] = nil
	}
}

func (n *memNet) isCut(key [2]string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[key]
}

func (l *memListener) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	l.n.mu.Lock()
	to, key := l.n.listeners[addr], pair(l.addr, addr)
	cut := l.n.cut[key] || l.n.deaf == addr
	l.n.mu.Unlock()
	select {
	case <-l.closed: // the dialler is stopped
		cut = true
	default:
	}
	if to == nil || cut {
		return nil, fmt.Errorf("dial %s: unreachable", addr)
	}
	here, there := l.n.pipe()
	select {
	case to.conns <- there:
	case <-to.closed:
		return nil, fmt.Errorf("dial %s: refused", addr)
	case <-time.After(timeout):
		return nil, os.ErrDeadlineExceeded
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.n.cut[key] {
		here.Close()
	}
	l.n.pipes[key] = append(l.n.pipes[key], here, there)
	return here, nil
}

func (n *memNet) pipe() (here, there net.Conn) {
	here, there = net.Pipe()
	if n.delay != nil {
		here, there = laggard{here, n.delay}, laggard{there, n.delay}
	}
	return here, there
}

// laggard is a connection that delays its messages.
type laggard struct {
	net.Conn
	delay func() time.Duration
}

func (d laggard) Write(p []byte) (int, error) {
	time.Sleep(d.delay())
	return d.Conn.Write(p)
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: l.addr, Net: "memory"} }

// node is one member under test, with the reason of its end.
type node struct {
	*Log
	fsm   *journal
	cfg   Config
	fatal chan string
}

func (n *node) runs() bool { return n.orClosed(nil) == nil }

// fleet is a cluster under test.
type fleet struct {
	t     testing.TB
	net   *memNet
	tweak func(*Config)
	nodes []*node
}

func newFleet(t testing.TB, tweak func(*Config)) *fleet {
	return &fleet{t: t, net: newMemNet(), tweak: tweak}
}

func quiet() *slog.Logger {
	if os.Getenv("RAFTLOG_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

func (f *fleet) config(name string) Config {
	cfg := Config{
		ID: name, Addr: name + ":1", ClusterID: "test", Dir: f.t.TempDir(),
		Logger: quiet(), ReserveBytes: 1, // the least valid value
		StallLimit: time.Minute, // the disk of a machine that tests is shared
	}
	if f.tweak != nil {
		f.tweak(&cfg)
	}
	return cfg
}

// open starts a member, on cfg.Stream if it has one, else in memory.
func (f *fleet) open(cfg Config, fsm *journal) (*node, error) {
	n := &node{fsm: fsm, cfg: cfg, fatal: make(chan string, 8)}
	if cfg.Stream == nil {
		cfg.Stream = f.net.listen(cfg.Addr)
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(code int, reason string) { n.fatal <- fmt.Sprintf("%d %s", code, reason) }
	}
	var err error
	n.Log, err = Open(cfg, fsm)
	return n, err
}

func (f *fleet) start(cfg Config) *node {
	f.t.Helper()
	n, err := f.open(cfg, &journal{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes = append(f.nodes, n)
	return n
}

// grow bootstraps a cluster of size members named a, b, c…
func (f *fleet) grow(size int) {
	f.t.Helper()
	for i := range size {
		n := f.start(f.config(string(rune('a' + i))))
		if i == 0 {
			if err := n.Bootstrap(); err != nil {
				f.t.Fatal(err)
			}
			f.leader()
			continue
		}
		f.add(n.self.ID, n.cfg.Addr)
	}
}

// steady lengthens timeouts on a slow machine, so that members do not depose a leader that waits
// for a processor.
func steady(c *Config) {
	c.Profile = Profile{Heartbeat: 3 * time.Second, Election: 3 * time.Second, Lease: 3 * time.Second}
}

// add gives a member its vote, under any leader.
func (f *fleet) add(id, addr string) {
	f.t.Helper()
	f.change("a vote for "+id, func(leader *node) error { return leader.AddMember(f.ctx(), id, addr) })
}

// change asks the current leader for a membership change until it is made.
func (f *fleet) change(what string, ask func(leader *node) error) {
	f.t.Helper()
	f.until(what, func() bool {
		err := ask(f.leader())
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			f.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

func (f *fleet) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// until waits for a condition, for up to two minutes.
func (f *fleet) until(what string, ok func() bool) {
	f.t.Helper()
	for range 12000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, n := range f.nodes {
		f.t.Logf("%+v err=%v", n.Status(), n.Err())
	}
	f.t.Fatalf("never happened: %s", what)
}

// leader waits for one confirmed leader among the running members.
func (f *fleet) leader() *node {
	f.t.Helper()
	var leader *node
	f.until("a leader", func() bool {
		for _, n := range f.nodes {
			if n.runs() && n.IsLeader() && n.ruling.Load() != 0 {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func (f *fleet) followers() []*node {
	leader := f.leader()
	return slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return n == leader })
}

func (f *fleet) isolate(n *node, cut bool) {
	for _, other := range f.nodes {
		if other != n {
			f.net.separate(n.cfg.Addr, other.cfg.Addr, cut)
		}
	}
}

// propose commits a command through the current leader, retrying where nothing happened.
func (f *fleet) propose(command string) uint64 {
	f.t.Helper()
	var index uint64
	f.until("agreement on "+command, func() bool {
		_, i, err := f.leader().Propose(f.ctx(), []byte(command))
		if err != nil && !errors.Is(err, ErrNotLeader) {
			f.t.Fatalf("propose %s: %v", command, err)
		}
		index = i
		return err == nil
	})
	return index
}

// same waits until every running member holds the same commands, and returns them.
func (f *fleet) same() []string {
	f.t.Helper()
	want := f.leader().fsm.list()
	f.until("equal states", func() bool {
		want = f.leader().fsm.list()
		for _, n := range f.nodes {
			if n.runs() && !slices.Equal(n.fsm.list(), want) {
				return false
			}
		}
		return true
	})
	return want
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		n.Close()
	}
	if f.net.delay != nil {
		time.Sleep(time.Minute) // messages under way arrive
	}
}

// restart closes a member and opens it again on its directory with an empty state.
func (f *fleet) restart(n *node) *node {
	f.t.Helper()
	n.Close()
	again, err := f.open(n.cfg, &journal{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes[slices.Index(f.nodes, n)] = again
	return again
}
