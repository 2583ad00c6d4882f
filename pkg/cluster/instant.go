package cluster

import (
	"math"
	"time"
)

// Instant is a point in time: nanoseconds since the Unix epoch, UTC. Zero means
// "not set". It is an integer so that every replica computes the same bits.
type Instant int64

// Never is later than every other instant.
const Never Instant = math.MaxInt64

// InstantOf converts a time.Time; the zero time becomes the zero Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time converts to a time.Time in UTC; the zero Instant becomes the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add returns i + d, saturating at [Never].
func (i Instant) Add(d time.Duration) Instant {
	if d > 0 && i > Never-Instant(d) {
		return Never
	}
	return i + Instant(d)
}

// Sub returns i - j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }
