package raftlog

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// clockTolerance is how far a leader's clock may be off its peers' median.
const clockTolerance = 5 * time.Second

// offset is how far ahead of here the peer's clock is, known to half the round trip.
func (h heard) offset(here time.Time) time.Duration {
	middle := here.Add(-h.came.Sub(h.sent) / 2)
	return time.Unix(0, h.Now).Sub(middle)
}

// medianOffset is the median of the clocks' offsets from the leader's, its own (0)
// included; of two middle ones, the one nearer to the leader's own. O(n log n).
func medianOffset(offsets []time.Duration) time.Duration {
	all := append([]time.Duration{0}, offsets...)
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	if low.Abs() < high.Abs() {
		return low
	}
	return high
}

// guardClock hands leadership over if this leader's clock is off the median of a
// majority, to the voter whose clock is nearest to it. It reports whether it did.
func (l *Log) guardClock(answers []heard, need int) bool {
	last := time.Now()
	now := l.cfg.Wall()
	var offsets []time.Duration
	var peers []heard
	for _, h := range answers {
		if h.err != nil || h.server.Suffrage != raft.Voter {
			continue
		}
		here := now.Add(h.came.Sub(last)) // this member's clock when the answer came
		offsets = append(offsets, h.offset(here))
		peers = append(peers, h)
	}
	if len(offsets)+1 < need {
		return false
	}
	median := medianOffset(offsets)
	if median.Abs() <= clockTolerance {
		return false
	}
	best := 0
	for i := range offsets {
		if (offsets[i] - median).Abs() < (offsets[best] - median).Abs() {
			best = i
		}
	}
	l.log.Error("this leader's clock is off: handing leadership over", "behind", median, "to", peers[best].server.ID)
	err := l.raft.LeadershipTransferToServer(peers[best].server.ID, peers[best].server.Address).Error()
	if err != nil {
		l.log.Error("handover failed, trying again later", "err", err)
	}
	return true
}
