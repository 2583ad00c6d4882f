package raftlog

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// clockTolerance is how far a leader's clock may differ from its peers' median.
const clockTolerance = 5 * time.Second

// clockMemory is how long the last reading of a peer that does not answer still counts. A majority
// is needed to detect a wrong clock, and after a leader is lost often only two members remain: the
// third's last reading is its vote.
const clockMemory = time.Hour

// reading is what a member's clocks showed: the one that members compare (Config.Wall) and the one
// that stamps entries (Config.Clock), each as the unix ns at this process's start. Correct clocks
// have the same reading whenever they are asked.
type reading struct{ wall, stamp int64 }

// off returns the difference of two clocks from their offsets.
func (r reading) off(from reading) time.Duration {
	return max(time.Duration(r.wall-from.wall).Abs(), time.Duration(r.stamp-from.stamp).Abs())
}

// clocks remembers the clock readings of the members.
type clocks struct {
	began time.Time // origin on the monotonic clock

	mu       sync.Mutex
	readings map[raft.ServerID]remembered
	wrong    map[raft.ServerID]bool // that the log already reports
}

type remembered struct {
	reading
	at time.Time
}

func newClocks() *clocks {
	return &clocks{began: time.Now(), readings: map[raft.ServerID]remembered{}, wrong: map[raft.ServerID]bool{}}
}

// reading converts clock values at a moment.
func (c *clocks) reading(wall, stamp int64, at time.Time) reading {
	counted := int64(at.Sub(c.began))
	return reading{wall - counted, stamp - counted}
}

// note records an answer: the peer read its clocks halfway, known to half the round trip.
func (c *clocks) note(h peerAnswer) {
	if h.err != nil {
		return
	}
	r := c.reading(h.Now, h.Stamp, h.sent.Add(h.came.Sub(h.sent)/2))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings[h.server.ID] = remembered{r, h.came}
}

// of returns the last readings of the voters, without unknown ones.
func (c *clocks) of(voters []raft.Server) map[raft.ServerID]reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[raft.ServerID]reading{}
	for _, s := range voters {
		if r, ok := c.readings[s.ID]; ok && time.Since(r.at) < clockMemory {
			known[s.ID] = r.reading
		}
	}
	return known
}

// median returns the median of the members' clocks, including own; of two middle ones, the one
// nearer to own. O(n log n).
func median(own reading, peers map[raft.ServerID]reading) reading {
	var walls, stamps []time.Duration
	for _, r := range peers {
		walls = append(walls, time.Duration(r.wall-own.wall))
		stamps = append(stamps, time.Duration(r.stamp-own.stamp))
	}
	return reading{own.wall + int64(medianOffset(walls)), own.stamp + int64(medianOffset(stamps))}
}

// medianOffset returns the median of the clocks' offsets from the leader's, including its own (0);
// of two middle ones, the one nearer to the leader's own. O(n log n).
func medianOffset(offsets []time.Duration) time.Duration {
	all := append([]time.Duration{0}, offsets...)
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	if low.Abs() < high.Abs() {
		return low
	}
	return high
}

// ownClocks reads this member's clocks.
func (l *Log) ownClocks() reading {
	wall, stamp := l.cfg.Wall(), l.cfg.Clock()
	return l.clocks.reading(wall.UnixNano(), stamp.UnixNano(), time.Now())
}

// askClocks asks the voters for their clocks and returns those that answered. It does not wait for
// the rest once a majority answered and the others' readings are remembered.
func (l *Log) askClocks() (answered []raft.Server) {
	servers := voters(l.raft.GetConfiguration().Configuration().Servers)
	replies, asked := l.askAll(servers, question{}, l.cfg.Profile.Election)
	for range asked {
		if known := l.clocks.of(servers); len(answered)+1 >= quorum(servers) && len(known) == asked {
			break
		}
		h := <-replies
		if l.clocks.note(h); h.err == nil {
			answered = append(answered, h.server)
		}
	}
	return answered
}

// guardClock transfers leadership if this leader's clocks differ from the median of a majority, to
// the member that answered with the nearest clocks. It reports whether this member had to. If no
// member is nearer, this one stays: a wrong clock is better than no leader.
func (l *Log) guardClock(answered []raft.Server) bool {
	servers := voters(l.raft.GetConfiguration().Configuration().Servers)
	own, peers := l.ownClocks(), l.clocks.of(servers)
	if len(peers)+1 < quorum(servers) {
		return false
	}
	right := median(own, peers)
	l.reportClocks(right, peers)
	best, off := raft.Server{}, own.off(right)
	if off <= clockTolerance {
		return false
	}
	nearest := off - clockTolerance
	for _, s := range answered {
		if r, ok := peers[s.ID]; ok && r.off(right) < nearest {
			best, nearest = s, r.off(right)
		}
	}
	if best.ID == "" {
		l.log.Error("the clocks of the leader and of all reachable members are wrong: set them", "off", off)
		return false
	}
	l.log.Error("the leader's clock is wrong: transferring leadership", "off", off, "to", best.ID)
	if err := l.handOverTo(best); err != nil {
		l.log.Error("leadership transfer failed, retrying later", "err", err)
	}
	return true
}

// reportClocks logs each peer whose clock is wrong once, and when it is right again.
func (l *Log) reportClocks(right reading, peers map[raft.ServerID]reading) {
	l.clocks.mu.Lock()
	defer l.clocks.mu.Unlock()
	for id, r := range peers {
		off := r.off(right)
		if wrong := off > clockTolerance; wrong != l.clocks.wrong[id] {
			l.clocks.wrong[id] = wrong
			l.log.Warn("a member's clock", "of", id, "wrong", wrong, "off", off)
		}
	}
}
