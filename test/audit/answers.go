package audit

import (
	"maps"
	"sync"
	"time"
)

// Answers records the answers to clients about their submissions. Every submission has a unique name.
// It may be used by many goroutines.
type Answers struct {
	mu      sync.Mutex
	jobs    map[string]uint64
	unknown map[string]bool
	last    time.Time
	longest time.Duration
}

// NewAnswers returns an empty record.
func NewAnswers() *Answers {
	return &Answers{jobs: map[string]uint64{}, unknown: map[string]bool{}}
}

// Acknowledged records that the named submission is durable under an ID.
func (t *Answers) Acknowledged(name string, id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() {
		t.longest = max(t.longest, now.Sub(t.last))
	}
	t.last = now
	t.jobs[name] = id
}

// Unknown records that the outcome of the named submission is unknown.
func (t *Answers) Unknown(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown[name] = true
}

// Jobs returns the acknowledged submissions by name, and the number of unanswered ones.
func (t *Answers) Jobs() (jobs map[string]uint64, unknown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.jobs), len(t.unknown)
}

// Count returns the number of acknowledged submissions.
func (t *Answers) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.jobs)
}

// LongestGap returns the longest time without any acknowledgement between the first and the last.
func (t *Answers) LongestGap() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.longest
}
