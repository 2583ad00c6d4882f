package raftlog

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// finding is a leader's conclusion from the digests of the members.
type finding int

const (
	undecided finding = iota // no majority has the same digest
	agreed                   // a majority has the leader's
	outvoted                 // a majority has a different one than the leader
)

// compare counts the voters' digests of the state after one entry. own is the leader's vote.
// Digests of another version are not counted. need is a majority.
//
// The leader does not just send its own digest to the others: if its memory or disk were the bad
// one, every healthy member would stop.
func compare(own checkpoint, answers []peerAnswer, need int) finding {
	votes := map[uint64]int{own.digest: 1}
	for _, h := range answers {
		if h.says(own.version) && h.server.Suffrage == raft.Voter {
			votes[h.Digest]++
		}
	}
	for digest, n := range votes { // at most one has a majority
		if n >= need {
			if digest == own.digest {
				return agreed
			}
			return outvoted
		}
	}
	return undecided
}

// says reports whether the peer's digest can be compared with one of this version.
func (h peerAnswer) says(version uint16) bool {
	return h.err == nil && h.DigestKnown && h.DigestVersion == version
}

// check runs every CheckInterval on the leader. It asks all members for their clock and for the
// digest of their state after the entry that this one applied last. It steps down if its clock is
// wrong, and commits the majority's digest as a checkpoint. A member whose state differs stops when
// it applies the checkpoint (fsm.go), however late.
func (l *Log) check() {
	tick := time.NewTicker(l.cfg.CheckInterval)
	defer tick.Stop()
	space := time.NewTicker(diskGuardEvery)
	defer space.Stop()
	soon := time.After(l.cfg.CheckInterval / 20)
	for {
		select {
		case <-l.stop:
			return
		case <-space.C:
			if l.ruling.Load() != 0 && l.reserve.low.Load() {
				l.guardDisk()
			} else {
				l.crowded.Store(false)
			}
			continue
		case <-soon: // so that a leader lost soon afterwards is remembered
			l.askClocks()
			continue
		case <-tick.C:
		}
		if l.ruling.Load() == 0 {
			l.askClocks()
			continue
		}
		l.checkPeers()
	}
}

func (l *Log) checkPeers() {
	own := l.machine.latest()
	servers := l.raft.GetConfiguration().Configuration().Servers
	replies, asked := l.askAll(servers, question{DigestAt: own.index}, digestPatience+time.Second)
	answers := make([]peerAnswer, 0, asked)
	var answered []raft.Server
	for range asked {
		h := <-replies
		answers = append(answers, h)
		if l.clocks.note(h); h.err == nil && h.server.Suffrage == raft.Voter {
			answered = append(answered, h.server)
		}
	}
	if l.guardClock(answered) {
		return
	}
	l.promote(answers)
	if own.index == 0 {
		return // nothing was ever proposed
	}
	switch compare(own, answers, quorum(servers)) {
	case outvoted:
		l.halt(ExitDamaged, true, fmt.Sprintf("state diverged: after entry %d a majority holds another digest than %016x", own.index, own.digest))
	case agreed:
		l.proposeCheckpoint(own)
	case undecided:
		l.reportUndecided(own, answers)
	}
}

func (l *Log) proposeCheckpoint(c checkpoint) {
	ctx, cancel := context.WithTimeout(l.life, l.cfg.CheckInterval)
	defer cancel()
	// Losing leadership here is no fault; the watchdog detects a leader whose entries are never
	// committed.
	if _, _, err := l.submit(ctx, &proposal{kind: kindCheckpoint, checkpoint: c}); err != nil {
		l.log.Info("checkpoint not committed", "index", c.index, "err", err)
	}
}

// reportUndecided logs only if a member reports a different digest, not if digests are missing:
// with too few members up no digest has a majority.
func (l *Log) reportUndecided(own checkpoint, answers []peerAnswer) {
	for _, h := range answers {
		if h.err == nil && h.DigestKnown && h.DigestVersion != own.version {
			l.machine.otherVersion(h.DigestVersion)
		}
		if h.says(own.version) && h.Digest != own.digest {
			l.log.Error("states differ and no majority answers to decide which is correct: start the other members",
				"index", own.index, "member", h.server.ID)
		}
	}
}
