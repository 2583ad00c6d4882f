package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/auth"
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

// costOf is how many requests a call counts for. What needs a pass of the scheduler, or
// walks over history or a journal, costs the controller as much as so many small ones.
func costOf(rpc auth.RPC) float64 {
	switch rpc {
	case "ClusterService/Why", "ClusterService/Plan", "CreditService/Quote", "JobService/Forecast":
		return 10
	case "CreditService/Statement", "HistoryService/Jobs",
		"ReportService/Usage", "ReportService/Ended", "ReportService/Credits", "ReportService/Standing":
		return 20
	}
	return 1
}

// jobsARequest is how many jobs of a submission, or elements of an array, count as one
// request: those that come together cost about a tenth of those that come alone.
const jobsARequest = 10

// admit takes one call out of the caller's bucket, or says when it may be made. A call
// that costs more than there is leaves a debt, so that none is too large for ever.
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
		after := time.Duration((1 - b.left) / l.cfg.Rate * float64(time.Second))
		return &limited{fmt.Errorf("%w: %s may make %d at once and %g a second (limits.burst and limits.requests of this controller): the next one in %s",
			errTooOften, c.key(), l.cfg.Burst, l.cfg.Rate, max(after.Round(time.Millisecond), time.Millisecond)), after}
	}
	b.left -= costOf(c.rpc)
	return nil
}

// jobs counts the n jobs of an accepted submission. Regardless of n, the caller's next call waits
// for about a second at most: the jobs are in the log, and waiting would save nothing.
func (l *limits) jobs(c *caller, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.buckets[c.key()]; b != nil && !c.unlimited() {
		left := b.left - float64(n-1)/jobsARequest // one is in the price of the call
		b.left = max(left, min(b.left, -l.cfg.Rate))
	}
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
		return nil, &limited{fmt.Errorf("%w: %s has %d watches, logs and lists open, which is the most (limits.streams of this controller)", errTooOften, key, l.cfg.Streams), time.Second}
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
