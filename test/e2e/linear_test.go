package e2e

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
)

// TestLinearizable lets clients submit, change, cancel and read a few jobs through any controller
// while controllers are killed, paused and cut off, and checks that one order of all operations
// explains every answer.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	needsRoot(t, "network namespaces")
	ctx := limited(t, 4*hang)
	options := three()
	options.Nodes, options.Namespaces = 0, true
	s := newSite(t, options)
	r := newRecorder(s.Cluster)
	working, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() { r.client(working, i) })
	}
	for _, fault := range []func(context.Context){
		s.killOne, s.pauseOne, s.splitOff, s.killOne, s.pauseOne, s.splitOff, s.cutAll, s.pauseOne, s.killOne,
	} {
		fault(ctx)
		s.wait(ctx, 500*time.Millisecond)
		r.await(ctx, t, 60)
	}
	stop()
	clients.Wait()
	t.Logf("%d operations on %d jobs, %d with unknown outcome", len(r.history), len(r.ids), r.unknown)
	if len(r.history) < 500 {
		t.Errorf("only %d operations: too few to tell anything", len(r.history))
	}
	if err := r.check(); err != nil {
		t.Error(err)
	}
	s.audit(ctx)
}

// span is the duration of a fault.
func span() time.Duration { return time.Duration(500+rand.IntN(2000)) * time.Millisecond }

// killOne kills the leader, or in one of three cases another controller.
func (s *site) killOne(ctx context.Context) {
	victim := s.leader(ctx)
	if rand.IntN(3) == 0 {
		victim = s.others(victim)[0]
	}
	s.must(victim.Kill())
	s.wait(ctx, span())
	s.must(victim.Start())
	s.must(audit.AwaitFollower(ctx, s.Cluster, victim))
}

func (s *site) pauseOne(ctx context.Context) {
	leader := s.leader(ctx)
	s.must(leader.Pause())
	s.wait(ctx, span())
	s.must(leader.Resume())
}

func (s *site) splitOff(ctx context.Context) {
	leader := s.leader(ctx)
	rest := s.others(leader)
	s.must(s.Split([]int{s.index(leader)}, []int{s.index(rest[0]), s.index(rest[1])}))
	s.wait(ctx, span())
	s.must(s.Heal())
}

func (s *site) cutAll(ctx context.Context) {
	s.must(s.Split())
	s.wait(ctx, span())
	s.must(s.Heal())
}
