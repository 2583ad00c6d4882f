package raftlog

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// storm is a fleet on slow disks and a slow network whose members lose power.
type storm struct {
	*fleet
	rng   *rand.Rand
	busy  sync.WaitGroup // clients, and members without power
	ended chan struct{}
	most  time.Duration // write time of a leader's disk for entries already sent

	mu    sync.Mutex
	dead  map[*node]bool // power lost: its output no longer counts
	acked map[string]bool
	lost  int // entries that only memory held at the power loss
}

// lag slows what a store writes behind down.
func (s *storm) lag(n *node) {
	b, seed := n.store.behind, s.rng.Uint64()
	b.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.ended, b.once = make(chan []*raft.Log, maxWriteBehind), make(chan struct{}), sync.Once{}
	rng := rand.New(rand.NewPCG(seed, 1))
	go b.run(func(logs []*raft.Log) error {
		time.Sleep(time.Duration(rng.Int64N(int64(s.most))))
		return n.store.writeBehind(logs)
	})
}

// client proposes commands of its own to the apparent leader until the storm is over.
func (s *storm) client(name string) {
	for i := 0; ; i++ {
		select {
		case <-s.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		command := name + "-" + strconv.Itoa(i)
		for _, n := range s.running() {
			if !n.IsLeader() {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, _, err := n.Propose(ctx, []byte(command))
			cancel()
			s.mu.Lock()
			if err == nil && !s.dead[n] {
				s.acked[command] = true
			}
			s.mu.Unlock()
			break
		}
	}
}

func (s *storm) running() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.nodes)
}

// crash cuts the power of a member, and starts it with the content of its disk.
func (s *storm) crash(n *node, away time.Duration) {
	synctest.Wait() // no more writes
	s.mu.Lock()
	s.dead[n] = true
	s.mu.Unlock()
	n.store.behind.mu.Lock()
	s.lost += len(n.store.behind.first)
	n.store.behind.mu.Unlock()
	cfg := n.cfg
	cfg.Dir = s.t.TempDir()
	s.must(os.CopyFS(cfg.Dir, os.DirFS(n.cfg.Dir)))
	s.net.mu.Lock()
	l := s.net.listeners[cfg.Addr]
	delete(s.net.listeners, cfg.Addr)
	s.net.mu.Unlock()
	l.Close()
	for _, other := range s.nodes {
		key := pair(cfg.Addr, other.cfg.Addr)
		if other != n && !s.net.isCut(key) {
			s.net.separate(cfg.Addr, other.cfg.Addr, true)
			s.net.separate(cfg.Addr, other.cfg.Addr, false)
		}
	}
	s.busy.Go(func() { s.close(n) })
	time.Sleep(away)
	s.start(n, cfg)
}

// stop stops a member while it transfers leadership, and starts it again.
func (s *storm) stop(n *node) {
	s.busy.Go(func() { _ = n.Transfer(context.Background(), "") }) // may fail
	s.close(n)
	s.start(n, n.cfg)
}

// close ends a member permanently, which takes long only on a slow disk.
func (s *storm) close(n *node) {
	if err := n.Close(); err != nil && s.most < time.Second {
		s.t.Errorf("%s: %v", n.cfg.ID, err)
	}
}

// start puts a member in the place of one that ended.
func (s *storm) start(n *node, cfg Config) {
	again, err := s.open(cfg, &journal{})
	s.must(err)
	s.lag(again)
	s.mu.Lock()
	s.nodes[slices.Index(s.nodes, n)] = again
	s.mu.Unlock()
}

// act does one of the things that happen to clusters.
func (s *storm) act() {
	time.Sleep(time.Duration(s.rng.Int64N(int64(300 * time.Millisecond))))
	some := s.nodes[s.rng.IntN(len(s.nodes))]
	switch s.rng.IntN(11) {
	case 0, 1, 2, 3:
		s.crash(s.leader(), time.Duration(s.rng.Int64N(int64(2*time.Second))))
	case 4:
		s.crash(some, time.Duration(s.rng.Int64N(int64(2*time.Second))))
	case 5:
		for _, n := range slices.Clone(s.nodes) {
			s.crash(n, 0)
		}
	case 6:
		n := s.leader()
		s.isolate(n, true)
		time.Sleep(time.Duration(s.rng.Int64N(int64(3 * time.Second))))
		s.isolate(n, false)
	case 7:
		_ = s.leader().Transfer(s.ctx(), "") // may fail
	case 8:
		_ = some.SnapshotNow(s.ctx()) // may fail
	case 9:
		s.vote(some)
	case 10:
		if s.most < time.Second { // otherwise it still uses its database when it has stopped
			s.stop(s.leader())
		}
	}
}

// vote removes a member's vote, or restores it.
func (s *storm) vote(n *node) {
	leader := s.leader()
	for _, server := range leader.raft.GetConfiguration().Configuration().Servers {
		switch {
		case server.ID != n.raftID():
		case server.Suffrage == raft.Voter && len(voters(leader.raft.GetConfiguration().Configuration().Servers)) > 1:
			_ = leader.raft.DemoteVoter(server.ID, 0, time.Second).Error()
		default:
			_ = leader.raft.AddVoter(server.ID, server.Address, 0, time.Second).Error()
		}
	}
}

func (n *node) raftID() raft.ServerID { return raft.ServerID(n.self.ID) }

var storms = flag.Uint64("storms", 20, "TestStorm: how many")

// TestStorm checks that what was acknowledged is on every member once, after all that.
func TestStorm(t *testing.T) {
	for seed := range *storms {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { weather(t, seed) })
		})
	}
}

// weather is one storm.
func weather(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &storm{rng: rng, ended: make(chan struct{}), dead: map[*node]bool{}, acked: map[string]bool{}}
	s.fleet = newFleet(t, func(c *Config) { c.TrailingLogs, c.SnapshotThreshold = 64, 100 })
	s.most = []time.Duration{time.Millisecond, 50 * time.Millisecond, 2 * time.Second}[rng.IntN(3)]
	var mu sync.Mutex
	way := rand.New(rand.NewPCG(seed, 2))
	s.net.delay = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(way.Int64N(int64(2 * time.Millisecond)))
	}
	s.grow([]int{2, 3, 3, 5}[rng.IntN(4)])
	defer s.fleet.close()
	for _, n := range s.nodes {
		s.lag(n)
	}
	for i := range 4 {
		s.busy.Go(func() { s.client(fmt.Sprint("c", i)) })
	}
	for range 12 {
		s.act()
	}
	close(s.ended)
	s.busy.Wait()
	s.propose("last")
	have := s.same()
	for c := range s.acked {
		if !slices.Contains(have, c) {
			t.Errorf("%s was acknowledged and is lost", c)
		}
	}
	slices.Sort(have)
	if n := len(have); n != len(slices.Compact(have)) {
		t.Error("a command was carried out twice: ", strings.Join(have, " "))
	}
	t.Logf("%d members, disks of up to %v: %d acknowledged, %d batches lost with the power", len(s.nodes), s.most, len(s.acked), s.lost)
}
