package server

import (
	"fmt"
	"sync"
	"time"
)

// limits count what each caller asks for: a token bucket for requests, a number
// for open streams.
type limits struct {
	cfg     Limits
	mu      sync.Mutex
	buckets map[string]*bucket
	streams map[string]int
}

// bucket holds requests that may be made at once; it fills with time.
type bucket struct {
	left float64
	at   time.Time // when left was so
}

// maxBuckets bounds the callers that are remembered; full buckets are forgotten
// first, and nobody gains by it.
const maxBuckets = 10_000

func newLimits(cfg Limits) *limits {
	if cfg.Rate == 0 {
		cfg.Rate = 500
	}
	if cfg.Burst == 0 {
		cfg.Burst = 2000
	}
	if cfg.Streams == 0 {
		cfg.Streams = 128
	}
	if cfg.Patience == 0 {
		cfg.Patience = bodyTime
	}
	return &limits{cfg: cfg, buckets: make(map[string]*bucket), streams: make(map[string]int)}
}

// admit takes one request out of the caller's bucket, or says when there will be one.
func (l *limits) admit(c *caller, now time.Time) error {
	if c.unlimited() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := c.key()
	b, known := l.buckets[key]
	if !known {
		l.makeRoom(now)
		b = &bucket{left: float64(l.cfg.Burst), at: now}
		l.buckets[key] = b
	}
	l.fill(b, now)
	if b.left < 1 {
		after := (1 - b.left) / l.cfg.Rate
		return &limited{fmt.Errorf("%w: %s makes more than %g a second", errTooOften, c.key(), l.cfg.Rate), after}
	}
	b.left--
	return nil
}

func (l *limits) fill(b *bucket, now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.left = min(b.left+d.Seconds()*l.cfg.Rate, float64(l.cfg.Burst))
	}
	b.at = now
}

func (l *limits) makeRoom(now time.Time) {
	if len(l.buckets) < maxBuckets {
		return
	}
	for key, b := range l.buckets {
		if l.fill(b, now); b.left >= float64(l.cfg.Burst) {
			delete(l.buckets, key)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}

// enter counts a stream of the caller until leave is called.
func (l *limits) enter(c *caller) (leave func(), err error) {
	if c.unlimited() {
		return func() {}, nil
	}
	key := c.key()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams[key] >= l.cfg.Streams {
		return nil, &limited{fmt.Errorf("%w: %s has %d streams open", errTooOften, key, l.cfg.Streams), 1}
	}
	l.streams[key]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.streams[key]--; l.streams[key] == 0 {
			delete(l.streams, key)
		}
	}, nil
}
