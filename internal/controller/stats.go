package controller

import (
	"sync/atomic"
	"time"
)

// numbers counts what the loops did, for the metrics page.
type numbers struct {
	passes, starts, stale, failed atomic.Int64
	lastPass, longestPass         atomic.Int64 // ns
}

// Stats is what the leader's loops did since the process began.
type Stats struct {
	Passes      int64 // scheduling passes
	Starts      int64 // jobs started
	Stale       int64 // starts that no longer fitted the state
	Failed      int64 // passes whose plan could not be agreed
	LastPass    time.Duration
	LongestPass time.Duration
}

// Stats reads them.
func (c *Controller) Stats() Stats {
	n := &c.numbers
	return Stats{
		Passes: n.passes.Load(), Starts: n.starts.Load(), Stale: n.stale.Load(), Failed: n.failed.Load(),
		LastPass: time.Duration(n.lastPass.Load()), LongestPass: time.Duration(n.longestPass.Load()),
	}
}
