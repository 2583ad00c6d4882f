// Package limits bounds what callers of the API use: the rate of their requests, their open streams
// and the bytes of requests that are read or answered at one time.
package limits

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/server/call"
)

// Config bounds what one user may ask for. Operators, administrators and programs of the cluster have
// no bound on the rate of their requests.
type Config struct {
	Rate        float64       // requests per second; 0: 500
	Burst       int           // requests at once; 0: 2000
	Streams     int           // open streams; 0: 128
	ReadTimeout time.Duration // how long any caller's request may take to arrive; 0: 30 s
}

// ErrTooOften is returned to a caller that exceeds its rate or its number of streams.
var ErrTooOften = errors.New("too many requests")

// limited is an error of a caller that exceeds a limit, with the time until it may try again.
type limited struct {
	error
	after time.Duration
}

// Unwrap returns the error itself.
func (l *limited) Unwrap() error { return l.error }

// RetryAfter returns the time until the caller may try again; 0 for errors of other kinds.
func RetryAfter(err error) time.Duration {
	if l, ok := errors.AsType[*limited](err); ok {
		return l.after
	}
	return 0
}

// Limits counts what each caller uses.
type Limits struct {
	cfg      Config
	budget   budget
	mu       sync.Mutex
	limiters map[string]*rate.Limiter // by Caller.Key
	streams  map[string]int
}

// maxLimiters bounds the callers that are remembered. Those that used nothing lately are removed
// first, which makes no difference to them.
const maxLimiters = 10_000

// New returns limits that no caller has used.
func New(cfg Config) *Limits {
	if cfg.Rate == 0 {
		cfg.Rate = 500
	}
	if cfg.Burst == 0 {
		cfg.Burst = 2000
	}
	if cfg.Streams == 0 {
		cfg.Streams = 128
	}
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = 30 * time.Second
	}
	return &Limits{cfg: cfg, budget: budget{callers: make(map[string]int)}, limiters: make(map[string]*rate.Limiter), streams: make(map[string]int)}
}

// tokensPerRequest is the number of tokens of one request, and so the number of jobs of a
// submission or elements of an array that cost as much as one request.
const tokensPerRequest = 10

// ReadTimeout returns how long a request may take to arrive.
func (l *Limits) ReadTimeout() time.Duration { return l.cfg.ReadTimeout }

// Admit counts one call, or returns an error that says when the caller may make it. A call that costs
// more than the caller has left is admitted and leaves a debt, so that no call is refused permanently.
func (l *Limits) Admit(c *call.Caller, now time.Time) error {
	if c.Unlimited() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := c.Key()
	limiter := l.limiters[key]
	if limiter == nil {
		l.evict(now)
		limiter = rate.NewLimiter(rate.Limit(l.cfg.Rate*tokensPerRequest), l.cfg.Burst*tokensPerRequest)
		l.limiters[key] = limiter
	}
	if left := limiter.TokensAt(now) / tokensPerRequest; left < 1 {
		after := time.Duration((1 - left) / l.cfg.Rate * float64(time.Second))
		return tooOften(fmt.Errorf("%w: the limit for %s is a burst of %d requests and %g per second (limits.burst and limits.requests of this controller): retry in %s",
			ErrTooOften, key, l.cfg.Burst, l.cfg.Rate, max(after.Round(time.Millisecond), time.Millisecond)), after)
	}
	charge(limiter, c.RPC.Cost*tokensPerRequest, now)
	return nil
}

// tooOften adds the time until the next try, and advice.
func tooOften(err error, after time.Duration) error {
	return hint.New(&limited{err, after},
		"use a job array, gqueue --iterate or gsubmit --wait; administrators set [limits] in gctld.toml")
}

// charge takes n tokens, which may leave a debt.
func charge(limiter *rate.Limiter, n int, now time.Time) {
	for most := limiter.Burst(); n > 0; n -= most { // more at once would be refused
		limiter.ReserveN(now, min(n, most))
	}
}

// CountJobs counts the n jobs of an accepted submission. For any n, the caller's next call waits about a
// second at most: the jobs are in the log, and a longer wait would save nothing.
func (l *Limits) CountJobs(c *call.Caller, n int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limiter := l.limiters[c.Key()]; limiter != nil && !c.Unlimited() {
		most := max(0, limiter.TokensAt(now)+l.cfg.Rate*tokensPerRequest)
		charge(limiter, min(n-1, int(most)), now) // the call itself has paid for one
	}
}

// evict removes idle callers once there are maxLimiters of them.
func (l *Limits) evict(now time.Time) {
	if len(l.limiters) < maxLimiters {
		return
	}
	for key, limiter := range l.limiters {
		if limiter.TokensAt(now) >= float64(limiter.Burst()) {
			delete(l.limiters, key)
		}
	}
	if len(l.limiters) >= maxLimiters {
		clear(l.limiters)
	}
}

// Enter counts one stream of the caller until leave is called.
func (l *Limits) Enter(c *call.Caller) (leave func(), err error) {
	if c.Unlimited() {
		return func() {}, nil
	}
	key := c.Key()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams[key] >= l.cfg.Streams {
		return nil, tooOften(fmt.Errorf("%w: the limit for %s is %d open streams (limits.streams of this controller)", ErrTooOften, key, l.cfg.Streams), time.Second)
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
