package raftlog

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// finding is what a leader makes of the digests it heard.
type finding int

const (
	undecided finding = iota // no majority has the same digest
	agreed                   // a majority has the leader's
	outvoted                 // a majority has another one than the leader's
)

// compare counts the voters' digests of the state after one entry. own is the
// leader's; it votes too. Digests of another version say nothing. need is a majority.
//
// The leader does not simply tell the others its own digest: if it were the one
// whose memory or disk is bad, every healthy member would stop.
func compare(own checkpoint, answers []heard, need int) finding {
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
func (h heard) says(version uint16) bool {
	return h.err == nil && h.DigestKnown && h.DigestVersion == version
}

// check runs every CheckInterval on the leader: it asks all members for their clock
// and for the digest of their state after the entry this one applied last, steps
// down if its clock is off, and has the digest that a majority holds agreed as a
// checkpoint. A member whose state differs then stops when it applies the
// checkpoint (fsm.go), wherever it is and however late.
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
			l.hearClocks()
			continue
		case <-tick.C:
		}
		if l.ruling.Load() == 0 {
			l.hearClocks()
			continue
		}
		l.checkPeers()
	}
}

func (l *Log) checkPeers() {
	own := l.machine.latest()
	servers := l.raft.GetConfiguration().Configuration().Servers
	replies, asked := l.askAll(servers, question{DigestAt: own.index}, digestPatience+time.Second)
	answers := make([]heard, 0, asked)
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
	// Losing leadership here is no fault; a leader whose entries are never agreed is
	// the watchdog's to notice.
	if _, _, err := l.submit(ctx, &proposal{kind: kindCheckpoint, checkpoint: c}); err != nil {
		l.log.Info("checkpoint not agreed", "index", c.index, "err", err)
	}
}

// reportUndecided speaks up only if somebody really holds another digest, rather
// than none: with too few members up nobody can tell who is right.
func (l *Log) reportUndecided(own checkpoint, answers []heard) {
	for _, h := range answers {
		if h.err == nil && h.DigestKnown && h.DigestVersion != own.version {
			l.machine.otherVersion(h.DigestVersion)
		}
		if h.says(own.version) && h.Digest != own.digest {
			l.log.Error("states differ and too few members answer to tell who is right: bring the others back",
				"index", own.index, "member", h.server.ID)
		}
	}
}
