package audit

import (
	"maps"
	"sync"
	"time"
)

// Told is what clients were told about their submissions. Every submission has a
// name of its own. It may be used by many goroutines.
type Told struct {
	mu      sync.Mutex
	jobs    map[string]uint64
	unknown map[string]bool
	last    time.Time
	longest time.Duration
}

// NewTold has been told nothing.
func NewTold() *Told {
	return &Told{jobs: map[string]uint64{}, unknown: map[string]bool{}}
}

// Acknowledged notes that the named submission is durable under an id.
func (t *Told) Acknowledged(name string, id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() {
		t.longest = max(t.longest, now.Sub(t.last))
	}
	t.last = now
	t.jobs[name] = id
}

// Unknown notes that nobody can say whether the named submission was stored.
func (t *Told) Unknown(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown[name] = true
}

// Jobs are the acknowledged submissions by name, and how many were not answered.
func (t *Told) Jobs() (jobs map[string]uint64, unknown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.jobs), len(t.unknown)
}

// Count is the number of acknowledged submissions.
func (t *Told) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.jobs)
}

// LongestGap is the longest time without any acknowledgement between the first
// and the last.
func (t *Told) LongestGap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.longest
}
