package controller

import (
	"sync/atomic"
	"time"
)

// numbers holds the counters of the loops for the metrics page.
type numbers struct {
	passes, starts, stale, failed atomic.Int64
	lastPass, longestPass         atomic.Int64 // ns
}

// Stats holds the counters of the leader's loops since the start of the process.
type Stats struct {
	Passes      int64 // scheduling passes
	Starts      int64 // jobs started
	Stale       int64 // starts refused because the state had changed
	Failed      int64 // passes whose plan could not be committed
	LastPass    time.Duration
	LongestPass time.Duration
}

// Stats returns the counters.
func (c *Controller) Stats() Stats {
	n := &c.numbers
	return Stats{
		Passes: n.passes.Load(), Starts: n.starts.Load(), Stale: n.stale.Load(), Failed: n.failed.Load(),
		LastPass: time.Duration(n.lastPass.Load()), LongestPass: time.Duration(n.longestPass.Load()),
	}
}
