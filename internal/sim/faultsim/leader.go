package faultsim

import (
	"bytes"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// logged is one entry of the log.
type logged struct {
	index uint64
	at    cluster.Instant
	c     []byte
}

// leader is what another controller has of the state, and what the present one keeps only in
// memory.
type leader struct {
	snapshot []byte
	log      []logged // since the snapshot
	term     uint64
	round    uint64                  // of metering
	counts   map[sim.TaskID]counting // in this term
	plan     *cluster.Plan           // the last one
}

// counting is the metered run time of an attempt.
type counting struct {
	sum  time.Duration
	last cluster.Instant
}

// save takes a snapshot and truncates the log.
func (l *leader) save(s *state.State) error {
	var b bytes.Buffer
	if err := s.View().Encode(&b); err != nil {
		return err
	}
	l.snapshot, l.log, l.counts, l.round = b.Bytes(), nil, map[sim.TaskID]counting{}, 0
	return nil
}

// counted returns the metered run time of an attempt in this term.
func (l *leader) counted(id sim.TaskID, started, now cluster.Instant) time.Duration {
	c, known := l.counts[id]
	if !known && l.term == 1 {
		c.last = started
	} else if !known {
		c.last = now
	}
	c.sum, c.last = c.sum+max(0, now.Sub(c.last)), now
	l.counts[id] = c
	return c.sum
}

// elect makes another controller the leader: one with the last snapshot and the log since. Its
// state must be equal byte by byte. The client of the last request got no answer and sends it
// again, and the last plan of the old leader arrives again.
func (x *faultSim) elect() error {
	x.summary.Checks.Rebuilt++
	var now, then bytes.Buffer
	view := x.State.View()
	if err := view.Encode(&now); err != nil {
		return err
	}
	s, err := state.Decode(bytes.NewReader(x.leader.snapshot))
	if err != nil {
		return fmt.Errorf("%w: I13: the snapshot cannot be read: %w", ErrViolation, err)
	}
	for _, e := range x.leader.log {
		c, err := command.Decode(e.c)
		if err != nil {
			return fmt.Errorf("%w: I13: entry %d of the log cannot be read: %w", ErrViolation, e.index, err)
		}
		s.Apply(e.index, e.at, c)
		s.Effects()
	}
	if err := s.View().Encode(&then); err != nil {
		return err
	}
	if s.Digest() != view.Digest() || !bytes.Equal(now.Bytes(), then.Bytes()) {
		return fmt.Errorf("%w: I13: at index %d the state has digest %016x, and %016x from its snapshot and %d entries of the log", ErrViolation, x.Index, view.Digest(), s.Digest(), len(x.leader.log))
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w: I13: rebuilt at index %d: %w", ErrViolation, x.Index, err)
	}
	x.State, x.Planner, x.Wake = s, schedule.NewPlanner(), x.Now
	x.leader.term++
	if err := x.leader.save(s); err != nil {
		return err
	}
	if x.Faults.Leader == 0 {
		return nil
	}
	if plan := x.leader.plan; plan != nil && len(plan.Starts) > 0 {
		x.count("plans_delivered_twice")
		if err := x.Must(&command.CommitPlan{Plan: *plan}); err != nil {
			return err
		}
	}
	if x.last != nil {
		last := x.last
		x.last = nil
		return x.repeat(last)
	}
	return nil
}

// latest returns the last command of the log.
func (x *faultSim) latest() command.Command {
	if n := len(x.leader.log); n > 0 {
		if c, err := command.Decode(x.leader.log[n-1].c); err == nil {
			return c
		}
	}
	return nil
}
