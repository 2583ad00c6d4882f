package raftlog

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Observer receives measurements of a member. Its methods are called from several goroutines and
// must not block.
type Observer interface {
	// Committed receives the time from the sending of an entry to its application, and the number
	// of its commands. Only a leader calls it.
	Committed(took time.Duration, commands int)
	// Synced receives the duration of a write of entries to the disk.
	Synced(took time.Duration)
}

// unobserved is the Observer of a member without one.
type unobserved struct{}

func (unobserved) Committed(time.Duration, int) {}
func (unobserved) Synced(time.Duration)         {}

// leaderChanges counts how often another member became the leader, as far as this one noticed.
type leaderChanges struct {
	mu     sync.Mutex
	leader raft.ServerID
	count  uint64
}

// watch counts from the observations of r.
func (c *leaderChanges) watch(r *raft.Raft) {
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if seen, is := o.Data.(raft.LeaderObservation); is && seen.LeaderID != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			if seen.LeaderID != c.leader {
				c.leader = seen.LeaderID
				c.count++
			}
		}
		return false // nothing is delivered
	}))
}

func (c *leaderChanges) total() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// snapshotTime returns when a snapshot was taken, in ms since 1970; 0 for no snapshot. Raft names a
// snapshot term-index-time.
func snapshotTime(meta raft.SnapshotMeta) int64 {
	_, text, _ := strings.Cut(meta.ID, "-")
	_, text, _ = strings.Cut(text, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return ms
}
