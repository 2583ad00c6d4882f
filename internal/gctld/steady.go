package gctld

import (
	"sync"
	"time"
)

// steady is the clock that stamps the log. It goes with the machine's wall clock,
// but when that jumps it catches up gently: at most a tenth faster or slower than
// time passes. So a clock that is set by an hour, by mistake or to mend it, ends no
// job before its time by more than a tenth.
type steady struct {
	wall func() time.Time

	mu   sync.Mutex
	last time.Time // what it said last
	at   time.Time // when, on the monotonic clock
}

// newSteady is a steady clock that is right now.
func newSteady(wall func() time.Time) *steady {
	return &steady{wall: wall, last: wall(), at: time.Now()}
}

// slack is how far behind or ahead it follows the wall clock at once: what NTP and
// the time between two readings make.
const slack = 100 * time.Millisecond

// Now is the time. It never goes back.
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
