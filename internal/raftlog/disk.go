package raftlog

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// reservePart is a purpose for which disk space is reserved.
type reservePart int

const (
	reserveLog  reservePart = iota // entries: running jobs can still end
	reserveVote                    // term and vote: raft panics when it cannot store them
	reserveParts
)

// voteReserveBytes is ample for term and vote, which are overwritten in place.
const voteReserveBytes = 1 << 20

// reserve holds disk space in files of its own, and reports when the disk is low: less than the
// reserve is free in addition to it, or the reserve has been used. Submissions should then be
// refused, so that the reserve serves to end running jobs.
type reserve struct {
	dir  string
	size [reserveParts]int64
	log  *slog.Logger

	mu   sync.Mutex
	held [reserveParts]bool
	low  atomic.Bool
	free atomic.Int64
	// roomy reports whether the reserve for entries is held, for a disk that fills up suddenly.
	roomy atomic.Bool
}

func newReserve(dir string, bytes int64, log *slog.Logger) *reserve {
	r := &reserve{dir: dir, log: log}
	if bytes > 0 {
		r.size = [reserveParts]int64{bytes, min(bytes, voteReserveBytes)}
	}
	for p := range reserveParts { // still there from the last run
		info, err := os.Stat(r.path(p))
		r.held[p] = err == nil && r.size[p] > 0 && info.Size() >= r.size[p]
	}
	r.refresh()
	return r
}

func (r *reserve) path(p reservePart) string {
	return filepath.Join(r.dir, [...]string{"reserve.log", "reserve.vote"}[p])
}

// release frees the space held for p; false if none exists.
func (r *reserve) release(p reservePart) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held[p] {
		return false
	}
	r.held[p] = false
	r.low.Store(true)
	r.roomy.Store(false)
	return os.Remove(r.path(p)) == nil
}

// refresh measures the free space and takes the reserve (again) when twice its size is free.
func (r *reserve) refresh() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(r.dir, &fs); err != nil {
		return // the next write will show
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	r.mu.Lock()
	defer r.mu.Unlock()
	whole := true
	for p := range reserveParts {
		if r.size[p] == 0 || r.held[p] {
			continue
		}
		if free < 2*r.size[p]+r.size[reserveLog] || !r.take(p) {
			whole = false
			continue
		}
		free -= r.size[p]
	}
	low := !whole || free < r.size[reserveLog]
	if low {
		r.free.Store(0)
	} else {
		r.free.Store(free - r.size[reserveLog])
	}
	r.roomy.Store(!low && r.held[reserveLog])
	if was := r.low.Swap(low); was != low {
		r.log.Warn("disk space", "low", low, "free_bytes", free, "dir", r.dir)
	}
}

// take allocates the space of p. A file system that cannot allocate has no reserve. The caller
// holds mu.
func (r *reserve) take(p reservePart) bool {
	f, err := os.OpenFile(r.path(p), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	err = syscall.Fallocate(int(f.Fd()), 0, 0, r.size[p])
	if err != nil {
		os.Remove(r.path(p))
	}
	if errors.Is(err, syscall.EOPNOTSUPP) {
		r.size[p] = 0
		return true
	}
	r.held[p] = err == nil
	return r.held[p]
}

// watch refreshes every second until stop is closed.
func (r *reserve) watch(stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.refresh()
		}
	}
}

// diskGuardEvery is how often a leader whose disk is low looks for a successor.
const diskGuardEvery = time.Second

// guardDisk transfers leadership from a leader whose disk is low to the most up-to-date voter with
// free space, so that submissions are refused only when no member has space.
func (l *Log) guardDisk() {
	replies, asked := l.askAll(voters(l.raft.GetConfiguration().Configuration().Servers), question{}, l.rpcTimeout())
	var best *peerAnswer
	for range asked {
		h := <-replies
		if h.err == nil && !h.DiskLow && (best == nil || h.Applied > best.Applied) {
			best = &h
		}
	}
	if l.crowded.Store(best == nil); best == nil {
		return
	}
	l.log.Warn("the leader's disk is nearly full: transferring leadership", "to", best.server.ID)
	if err := l.handOverTo(best.server); err != nil {
		l.log.Warn("leadership transfer failed, retrying", "err", err)
	}
}
