package cluster

import (
	"fmt"
	"strings"
	"time"
)

// Values of Task.Quiet: for how long a task has done nothing.
const (
	QuietForWarning = iota + 1 // as long as the policy waits before a warning
	QuietForEnd                // as long as it waits before it ends the job
)

// Warnings is a set of kinds of warnings to the user of a running job.
type Warnings uint8

// The kinds.
const (
	WarnedQuiet Warnings = 1 << iota // it does nothing
	WarnedIdle                       // it has GPUs on which no program runs
)

// IdleGPUs is the time of an attempt's GPUs on which no program ran, as far as its nodes have noticed it.
type IdleGPUs struct {
	GPUs  int32   // now
	At    Instant // last change of GPUs
	Ms    int64   // GPU-milliseconds until then
	Price int64   // micro-credits per GPU hour; 0: nothing is charged
}

// Change records that another number of GPUs is idle. Each of those that were not has been idle for a time already.
func (x *IdleGPUs) Change(gpus int32, already time.Duration, now Instant) {
	x.Ms = x.Until(now) + int64(max(0, gpus-x.GPUs))*already.Milliseconds()
	x.GPUs, x.At = gpus, now
}

// Until returns the GPU-milliseconds until an instant, if no GPU changes from now on.
func (x *IdleGPUs) Until(at Instant) int64 {
	return x.Ms + int64(x.GPUs)*max(0, at.Sub(x.At)).Milliseconds()
}

// Warning describes what the user of a running job should know; "" for nothing. O(nodes).
func (j *Job) Warning() string {
	if j.Warns == 0 || j.Alloc == nil {
		return ""
	}
	gpus := 0
	for i := range j.Alloc.Nodes {
		gpus += len(j.Alloc.Nodes[i].GPUs)
	}
	var list []string
	if j.Warns&WarnedQuiet != 0 {
		list = append(list, "does nothing: "+QuietText(gpus))
	}
	if j.Warns&WarnedIdle != 0 {
		list = append(list, fmt.Sprintf("idle GPUs: %d of %d", j.Idle.GPUs, gpus))
	}
	return strings.Join(list, "; ")
}

// QuietText describes what a job with a number of GPUs that does nothing lacks.
func QuietText(gpus int) string {
	if gpus > 0 {
		return "no output, hardly any CPU time, and no work on its GPUs"
	}
	return "no output, and hardly any CPU time"
}
