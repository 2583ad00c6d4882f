// Package tracetest draws random logs for tests.
package tracetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/greylag/greylag/internal/sim/trace"
)

// Draw returns a log of n jobs of 1 to procs processors, with many equal times and sizes.
func Draw(r *rand.Rand, n int, procs int32) *trace.Trace {
	log := &trace.Trace{}
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(r.IntN(300)) * time.Second
		est := time.Duration(1+r.IntN(40)) * time.Minute
		run := min(est, time.Duration(1+r.Int64N(int64(est)))/time.Second*time.Second+time.Second)
		log.Jobs = append(log.Jobs, trace.Job{ID: fmt.Sprint(i + 1), Submit: at, Run: run, Estimate: est, Procs: 1 + r.Int32N(procs), User: fmt.Sprint(r.IntN(5))})
	}
	return log
}
