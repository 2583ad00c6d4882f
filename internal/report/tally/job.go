package tally

import (
	"cmp"
	"math/bits"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Into is where a job is added: the tally of a cell, by its beginning, and of a key.
type Into func(cell cluster.Instant, k Key) *Tally

// Job adds a job: one that has ended, or with all that it used up to an instant one
// that has not. A job that is COMPLETING counts as ended unless it will run again.
// O(cells in which it ran × GPU types).
func Job(j *cluster.Job, until cluster.Instant, grid Grid, into Into) {
	over := j.State.Final() || j.State == cluster.Completing && !j.Returns
	for i := range j.Attempts {
		attempt(j, &j.Attempts[i], j.Attempts[i].Ended, grid, into)
	}
	last := j.ThisAttempt()
	if j.State != cluster.Pending && j.Started > 0 {
		end := j.Ended
		if j.State.HasAllocation() && j.State != cluster.Completing {
			end, last.Ended = until, 0
		}
		last.Held = j.HeldUntil(end)
		attempt(j, &last, end, grid, into)
	}
	if over {
		t := into(cellOf(grid, j.Ended), keyOf(j, &last))
		t.Ended[max(last.Outcome, first)-first]++
		t.Charged += j.Charged
		memory(t, j, &last)
		wait(t, j)
		promises(t, j)
	}
}

// keyOf returns where an attempt counts, without its GPUs: for the account and QOS that it ran
// for, since a job that waits again may be given others, and under the type of most of its
// GPUs, or of a job that never ran under the only one that it asked for.
func keyOf(j *cluster.Job, a *cluster.AttemptRecord) Key {
	k := Key{Account: cmp.Or(a.Account, j.Spec.Account), User: j.Spec.Owner.User, Partition: a.Partition, QOS: cmp.Or(a.QOS, j.Spec.QOS), WCKey: j.Spec.WCKey}
	if k.Partition == "" {
		k.Partition = j.Spec.Partition
	}
	most := int64(0)
	for _, x := range a.TRES {
		if name, typed := strings.CutPrefix(x.Resource, "gpu:"); typed && x.Count > most {
			k.GPUType, most = name, x.Count
		}
	}
	if a.Started == 0 && j.Spec.Request.TotalGPUs() > 0 && len(j.Spec.Request.GPUTypes) == 1 {
		k.GPUType = j.Spec.Request.GPUTypes[0]
	}
	return k
}

// GPUType is the type under which an attempt of a job counts: that of most of its GPUs.
// Of an attempt that is not kept any more it is that of the last one.
func GPUType(j *cluster.Job, attempt cluster.Attempt) string {
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.Attempt == attempt {
			return keyOf(j, a).GPUType
		}
	}
	last := j.ThisAttempt()
	return keyOf(j, &last).GPUType
}

// amount is how much of a resource an attempt had.
func amount(a *cluster.AttemptRecord, resource string) int64 {
	for _, x := range a.TRES {
		if x.Resource == resource {
			return x.Count
		}
	}
	return 0
}

// attempt adds what an attempt used up to an instant, and when it has ended what is
// known only then. What an elastic job had is spread evenly over its time, since only the sum is kept.
func attempt(j *cluster.Job, a *cluster.AttemptRecord, end cluster.Instant, grid Grid, into Into) {
	k := keyOf(j, a)
	whole := millis(a.Started, end)
	had, typed := heldTime(a, whole), int64(0)
	for _, x := range a.TRES {
		if name, ok := strings.CutPrefix(x.Resource, "gpu:"); ok && name != k.GPUType {
			typed += x.Count
			other := k
			other.GPUType = name
			each(grid, a.Started, end, func(cell cluster.Instant, millis int64) { into(cell, other).GPU += x.Count * millis })
		}
	}
	done := int64(0)
	each(grid, a.Started, end, func(cell cluster.Instant, millis int64) {
		t, from := into(cell, k), done
		done += millis
		t.GPU += part(had.GPUMs, done, whole) - part(had.GPUMs, from, whole) - typed*millis
		t.CPU += part(had.CPUMs, done, whole) - part(had.CPUMs, from, whole)
		t.Node += part(had.NodeMs, done, whole) - part(had.NodeMs, from, whole)
	})
	if a.Ended == 0 {
		return
	}
	t := into(cellOf(grid, a.Ended), k)
	t.Attempts++
	t.CPUUsed += int64(a.CPUTime / time.Millisecond)
	t.CPUHeld += had.CPUMs
	t.GPUBusy += a.GPU.BusyMs
	t.GPUKnown += a.GPU.KnownMs
	switch a.Outcome {
	case cluster.NodeFailed:
		t.Fault += had.GPUMs
	case cluster.Preempted:
		t.Preempt += had.GPUMs
	}
}

// heldTime returns how long an attempt that lasted for some milliseconds had its resources.
func heldTime(a *cluster.AttemptRecord, whole int64) cluster.HeldTime {
	if a.Held != (cluster.HeldTime{}) {
		return a.Held
	}
	return cluster.HeldTime{
		NodeMs: amount(a, cluster.ResourceNode) * whole, CPUMs: amount(a, cluster.ResourceCPU) * whole, GPUMs: amount(a, cluster.ResourceGPU) * whole,
	}
}

// part returns total × done / whole, rounded down; 0 for nothing.
func part(total, done, whole int64) int64 {
	if whole == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(total), uint64(done))
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}

// millis returns the milliseconds between two instants, by their whole milliseconds; at least 0.
func millis(from, to cluster.Instant) int64 {
	const ms = cluster.Instant(time.Millisecond)
	return max(0, int64(to/ms-from/ms))
}

func cellOf(grid Grid, at cluster.Instant) cluster.Instant {
	begin, _ := grid(at)
	return begin
}

// each calls do for every cell between two instants with the milliseconds in it.
func each(grid Grid, from, to cluster.Instant, do func(cell cluster.Instant, millis int64)) {
	for from < to {
		cell, end := grid(from)
		end = min(end, to)
		do(cell, millis(from, end))
		from = end
	}
}

// memory adds what the last attempt used of its memory: the peaks of its tasks.
func memory(t *Tally, j *cluster.Job, a *cluster.AttemptRecord) {
	held := amount(a, cluster.ResourceMem)
	if held == 0 || a.Started == 0 {
		return
	}
	var peak cluster.Bytes
	for _, t := range j.Tasks.All() {
		peak += t.Memory
	}
	seconds := int64(a.Ended.Sub(a.Started) / time.Second)
	t.MemUsed += int64(peak/cluster.MiB) * seconds
	t.MemHeld += held * seconds
}

// wait counts how long the job waited for its first start.
func wait(t *Tally, j *cluster.Job) {
	started := j.Started
	if len(j.Attempts) > 0 {
		started = j.Attempts[0].Started
	}
	if started > 0 {
		t.Wait.Count(started.Sub(max(j.Submitted, j.Spec.Begin)))
	}
}

// promises counts kept and broken promised starts, as far as the job's
// history goes back. The last note of a promise that was kept or was kept late is the
// start itself.
func promises(t *Tally, j *cluster.Job) {
	open := false
	for _, n := range j.History {
		started := n.Promised && n.Reason == cluster.ReasonNone && n.Planned == n.At
		switch {
		case n.Broken != "":
			t.Broken++
			t.blame(plain(n.Broken), 1)
		case started:
			t.Kept++
		case open && !n.Promised:
			t.Dropped++
		}
		open = n.Promised && !started
	}
	if open {
		t.Dropped++
	}
}

// plain returns a cause without the details of one case: names of nodes, jobs and
// partitions, and numbers.
func plain(why string) string {
	for _, kind := range [...]string{"node ", "job ", "partition "} {
		if rest, ok := strings.CutPrefix(why, kind); ok {
			if _, rest, ok = strings.Cut(rest, " "); ok {
				why = kind + rest
				break
			}
		}
	}
	if strings.HasPrefix(why, "it started ") && strings.HasSuffix(why, " late") {
		return "it started late"
	}
	var b strings.Builder
	digits := false
	for _, r := range why {
		switch number := r >= '0' && r <= '9'; {
		case !number:
			b.WriteRune(r)
		case !digits:
			b.WriteByte('N')
		}
		digits = r >= '0' && r <= '9'
	}
	return b.String()
}
