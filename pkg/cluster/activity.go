package cluster

import (
	"fmt"
	"strings"
	"time"
)

// Values of Task.Inactive: for how long a task has been inactive.
const (
	InactiveForWarning = iota + 1 // as long as the policy waits before a warning
	InactiveForLimit              // as long as the limit after which it ends the job
)

// MaxOutputLevel is the highest value of Task.Output.
const MaxOutputLevel = 32

// Warnings is a set of kinds of warnings to the user of a running job.
type Warnings uint8

// The kinds.
const (
	WarnedInactive Warnings = 1 << iota // it is inactive
	WarnedIdle                          // it has GPUs with 0 % utilization
	WarnedOutput                        // its output is large
)

// Activity is what the nodes of a job have noticed of an attempt that should interest its user.
type Activity struct {
	Warns     Warnings // now: see Job.Warning
	WarnsFrom Instant  // about since when
	Noticed   Warnings // kinds of warnings so far
	NoticedAt Instant  // when the last one came that was new
	Idle      IdleGPUs
	Output    Bytes // that its output has reached, as far as reported; 0: less than the size for a warning
}

// Value returns the activity, or a zero one.
func (a *Activity) Value() Activity {
	if a == nil {
		return Activity{}
	}
	return *a
}

// Warn sets the warnings, which hold since an instant. Only the first one of a kind is sent to the user.
func (a *Activity) Warn(kinds Warnings, since, now Instant) {
	switch {
	case kinds == 0:
		a.WarnsFrom = 0
	case kinds != a.Warns:
		a.WarnsFrom = since
	}
	if kinds&^a.Noticed != 0 {
		a.Noticed, a.NoticedAt = a.Noticed|kinds, now
	}
	a.Warns = kinds
}

// End records that the attempt has ended.
func (a *Activity) End(now Instant) {
	a.Warns, a.WarnsFrom, a.Output = 0, 0, 0
	a.Idle.Change(0, 0, now)
}

// SetActivity stores the activity of a job, a value that is not shared yet.
func (j *Job) SetActivity(a Activity) {
	if j.Activity = nil; a != (Activity{}) {
		j.Activity = &a
	}
}

// IdleGPUs is the time of an attempt's GPUs with 0 % utilization, as far as its nodes have noticed it.
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
	a := j.Activity.Value()
	if a.Warns == 0 || j.Alloc == nil {
		return ""
	}
	gpus := 0
	for i := range j.Alloc.Nodes {
		gpus += len(j.Alloc.Nodes[i].GPUs)
	}
	var list []string
	if a.Warns&WarnedInactive != 0 {
		list = append(list, "inactive: "+InactiveText(int(a.Idle.GPUs), gpus))
	}
	if a.Warns&WarnedIdle != 0 {
		list = append(list, fmt.Sprintf("idle GPUs: %d of %d", a.Idle.GPUs, gpus))
	}
	if a.Warns&WarnedOutput != 0 {
		list = append(list, fmt.Sprintf("its output has reached %s", a.Output))
	}
	return strings.Join(list, "; ")
}

// InactiveText describes an inactive job with a number of idle GPUs, and of GPUs in all. CPU time does not count while
// GPUs are busy.
func InactiveText(idle, gpus int) string {
	switch {
	case gpus == 0:
		return "no output, less than 10 % of a CPU"
	case idle >= gpus:
		return "no output, less than 10 % of a CPU, GPUs idle"
	case idle == 0:
		return "no output, " + hungGPUs
	}
	return fmt.Sprintf("no output, %d of %d GPUs idle, the others %s", idle, gpus, strings.TrimPrefix(hungGPUs, "GPUs "))
}

const hungGPUs = "GPUs at or above 95 % utilization but below 35 % of the highest power of this attempt: probably hung in a collective operation (NCCL)"
