package gctld

import (
	"sync"
	"time"
)

// steady is the clock that stamps the log. It follows the machine's wall clock, but after a jump it
// catches up gently: at most a tenth faster or slower than real time. So a clock that jumps by an
// hour ends no job early by more than a tenth.
type steady struct {
	wall func() time.Time

	mu   sync.Mutex
	last time.Time // its last reading
	at   time.Time // when, on the monotonic clock
}

// newSteady returns a steady clock that equals the wall clock now.
func newSteady(wall func() time.Time) *steady {
	return &steady{wall: wall, last: wall(), at: time.Now()}
}

// slack is the difference to the wall clock that it follows at once: that of NTP and of the time
// between two readings.
const slack = 100 * time.Millisecond

// Now returns the time. It never goes back.
func (s *steady) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	passed := max(now.Sub(s.at), 0)
	off := s.wall().Round(0).Sub(s.last.Round(0).Add(passed))
	if off > slack || off < -slack {
		off = min(max(off, -passed/10), passed/10)
	}
	s.last, s.at = s.last.Add(max(passed+off, 0)), now
	return s.last
}
