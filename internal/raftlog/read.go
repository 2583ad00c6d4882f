package raftlog

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// ErrNoQuorum reports that a majority of the members did not answer in time.
var ErrNoQuorum = errors.New("raftlog: no majority of the members answers")

// ReadIndex returns an index such that a state that holds it holds everything committed before the
// call, and waits until this member's state does: a read after it is linearizable. Callers share
// one round of questions to the other members. It returns ErrNotLeader on any member except the
// leader.
//
// The round asks each peer for its term, after the call began. A newer leader needs a majority that
// stored a higher term before it voted, and two majorities share a member. So if a majority answers
// with no higher term, there was no newer leader when it did. (The library's VerifyLeader counts
// answers to messages sent before it was called, and so can confirm a leader that was paused
// through an election.)
func (l *Log) ReadIndex(ctx context.Context) (uint64, error) {
	r := &read{done: make(chan struct{})}
	select {
	case l.reads <- r:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-l.stop:
		return 0, ErrClosed
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-l.dead:
		return 0, ErrClosed
	}
	if r.err != nil {
		return 0, l.orClosed(r.err)
	}
	return r.index, l.WaitApplied(ctx, r.index)
}

// read is one caller of ReadIndex.
type read struct {
	done  chan struct{} // closed when index or err is set
	index uint64
	err   error
}

// serveReads runs one round at a time for all that wait when it begins.
func (l *Log) serveReads() {
	for {
		select {
		case r := <-l.reads:
			round := l.gatherReads(r)
			index, err := l.confirm()
			for _, r := range round {
				r.index, r.err = index, err
				close(r.done)
			}
		case <-l.stop:
			return
		}
	}
}

func (l *Log) gatherReads(first *read) []*read {
	round := []*read{first}
	for {
		select {
		case r := <-l.reads:
			round = append(round, r)
		default:
			return round
		}
	}
}

// confirm returns the commit index if this member leads now.
func (l *Log) confirm() (uint64, error) {
	term := l.raft.CurrentTerm()
	if l.raft.State() != raft.Leader {
		return 0, ErrNotLeader
	}
	if err := l.awaitTerm(term); err != nil {
		return 0, err
	}
	index := l.raft.CommitIndex()
	servers := l.raft.GetConfiguration().Configuration().Servers
	timeout := 2 * l.cfg.Profile.Election
	answers, asked := l.askAll(voters(servers), question{}, timeout)
	yes, need := 1, quorum(servers)
	for range asked {
		if yes >= need {
			break
		}
		switch h := <-answers; {
		case h.err != nil:
		case h.Term > term:
			return 0, ErrNotLeader
		default:
			yes++
		}
	}
	switch {
	case l.raft.CurrentTerm() != term:
		return 0, ErrNotLeader
	case yes < need:
		return 0, ErrNoQuorum
	}
	return index, nil
}

// awaitTerm waits until this leader has applied an entry of its own term: before,
// it does not know what its predecessors committed.
func (l *Log) awaitTerm(term uint64) error {
	for l.ruling.Load() != term {
		if l.raft.CurrentTerm() != term || l.raft.State() != raft.Leader {
			return ErrNotLeader
		}
		select {
		case <-time.After(time.Millisecond):
		case <-l.stop:
			return ErrClosed
		}
	}
	return nil
}

// WaitApplied returns when this member's state holds the entry of this index, on
// any member.
func (l *Log) WaitApplied(ctx context.Context, index uint64) error {
	for l.machine.appliedIndex() < index {
		// The state sees only commands: for another kind of entry, wait for the command before it.
		// It can be found once raft has passed the entry on.
		if l.raft.AppliedIndex() >= index {
			command, known := l.commandAt(index)
			if !known {
				return nil
			}
			index = command
		}
		patience, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		l.machine.wait(patience, index)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case <-l.dead:
			return ErrClosed
		default:
		}
	}
	return nil
}

// commandAt returns the newest command at or before index that may not be in the state yet; false
// if all of them are applied, or in a restored snapshot.
func (l *Log) commandAt(index uint64) (uint64, bool) {
	for ; index > l.machine.appliedIndex(); index-- {
		var log raft.Log
		if !l.store.cache.get(index, &log) && l.store.readEntry(index, &log) != nil {
			return 0, false
		}
		if log.Type == raft.LogCommand {
			return index, true
		}
	}
	return 0, false
}

// voters returns the servers that have a vote.
func voters(servers []raft.Server) []raft.Server {
	var out []raft.Server
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			out = append(out, s)
		}
	}
	return out
}

// quorum returns the number of votes of a majority.
func quorum(servers []raft.Server) int { return len(voters(servers))/2 + 1 }
