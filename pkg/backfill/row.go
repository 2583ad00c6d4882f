package backfill

import (
	"iter"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Row is the free capacity of one host over time: a step function without end. Invariant: steps ascend
// in from, neighbours differ, and the first one covers the earliest instant that may be asked
// about.
type Row struct{ steps []step }

type step struct {
	from cluster.Instant
	free Amount
}

// NewRow returns the row of a host that is free from an instant on.
func NewRow(from cluster.Instant, all Amount) Row { return Row{[]step{{from, all}}} }

// at returns the index of the step that covers t; 0 when t is before the row. O(log steps).
func (r *Row) at(t cluster.Instant) int {
	lo, hi := 0, len(r.steps)
	for hi-lo > 1 {
		if mid := int(uint(lo+hi) >> 1); r.steps[mid].from <= t {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// end returns when step i ends.
func (r *Row) end(i int) cluster.Instant {
	if i+1 < len(r.steps) {
		return r.steps[i+1].from
	}
	return cluster.Never
}

// cut makes t the beginning of a step and returns its index.
func (r *Row) cut(t cluster.Instant) int {
	i := r.at(t)
	if r.steps[i].from >= t {
		return i
	}
	r.steps = slices.Insert(r.steps, i+1, step{t, r.steps[i].free})
	return i + 1
}

// Free returns what is free at an instant.
func (r *Row) Free(t cluster.Instant) Amount { return r.steps[r.at(t)].free }

// Take takes an amount for an interval. O(steps).
func (r *Row) Take(from, to cluster.Instant, a *Amount) { r.change(from, to, a, (*Amount).less) }

// Release is the inverse of Take. O(steps).
func (r *Row) Release(from, to cluster.Instant, a *Amount) { r.change(from, to, a, (*Amount).more) }

func (r *Row) change(from, to cluster.Instant, a *Amount, by func(*Amount, *Amount)) {
	if from = max(from, r.steps[0].from); from >= to {
		return
	}
	first := r.cut(from)
	last := len(r.steps)
	if to < cluster.Never {
		last = r.cut(to)
	}
	for i := first; i < last; i++ {
		by(&r.steps[i].free, a)
	}
	r.join(last)
	r.join(first)
}

// join removes step i when it equals the one before it.
func (r *Row) join(i int) {
	if i > 0 && i < len(r.steps) && r.steps[i-1].free == r.steps[i].free {
		r.steps = slices.Delete(r.steps, i, i+1)
	}
}

// DropBefore drops the steps before an instant.
func (r *Row) DropBefore(before cluster.Instant) {
	if i := r.at(before); i > 0 {
		r.steps = slices.Delete(r.steps, 0, i)
	}
	r.steps[0].from = max(r.steps[0].from, before)
}

// Earliest returns the first instant in [from, before) at which the amount is free for a duration.
// O(steps).
func (r *Row) Earliest(from, before cluster.Instant, lasts time.Duration, a *Amount) (cluster.Instant, bool) {
	start := max(from, r.steps[0].from)
	for i := r.at(start); start < before; i++ {
		if !r.steps[i].free.Covers(a) {
			if start = r.end(i); start == cluster.Never {
				break
			}
			continue
		}
		if end := r.end(i); end == cluster.Never || end.Sub(start) >= lasts {
			return start, true
		}
	}
	return 0, false
}

// earliestInPlace returns the first instant from from on at which an amount that is taken from at
// on for a duration could be taken instead; at itself when no earlier one exists. A step with a
// negative amount serves nothing. O(steps).
func (r *Row) earliestInPlace(from, at cluster.Instant, lasts time.Duration, a *Amount) cluster.Instant {
	start := max(from, r.steps[0].from)
	i := r.at(start)
	for ; start < at; i++ {
		end := r.end(i)
		if !r.steps[i].free.Covers(a) {
			start = end
			continue
		}
		if end >= at || end.Sub(start) >= lasts {
			break
		}
	}
	if start >= at {
		return at
	}
	for end := start.Add(lasts); i < len(r.steps) && r.steps[i].from < end; i++ { // its own amount
		if free := &r.steps[i].free; r.end(i) > at && free.negative() {
			return at
		}
	}
	return start
}

// opening is an interval of instants at which something can start.
type opening struct{ from, before cluster.Instant }

// opening returns the first interval of possible starts from from on, up to its end. O(steps).
func (r *Row) opening(from, before cluster.Instant, lasts time.Duration, a *Amount) (opening, bool) {
	start, ok := r.Earliest(from, before, lasts, a)
	if !ok {
		return opening{}, false
	}
	i := r.at(start)
	for r.end(i) != cluster.Never && r.end(i) < before.Add(lasts) && r.steps[i+1].free.Covers(a) {
		i++
	}
	if end := r.end(i); end != cluster.Never {
		before = min(before, end.Add(-lasts)+1)
	}
	return opening{start, before}, true
}

// Step is an interval in which the same is free.
type Step struct {
	From, To cluster.Instant
	Free     Amount
}

// Steps yields the steps within an interval, in order.
func (r *Row) Steps(from, to cluster.Instant) iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for i := r.at(from); from < to && i < len(r.steps); i++ {
			end := min(r.end(i), to)
			if !yield(Step{from, end, r.steps[i].free}) {
				return
			}
			from = end
		}
	}
}

// Clone returns a copy that changes on its own.
func (r *Row) Clone() Row { return Row{slices.Clone(r.steps)} }

// Window returns what is free throughout an interval. O(steps in it).
func (r *Row) Window(from, to cluster.Instant) Amount { return r.window(from, to) }

// window returns what is free throughout an interval. O(steps in it).
func (r *Row) window(from, to cluster.Instant) Amount {
	i := r.at(from)
	free := r.steps[i].free
	for i++; i < len(r.steps) && r.steps[i].from < to; i++ {
		free.both(&r.steps[i].free)
	}
	return free
}

// without returns what is free throughout an interval, counting as free an amount that was taken
// from an instant at until the end of the interval or longer. O(steps in it).
func (r *Row) without(from, at, to cluster.Instant, own *Amount) Amount {
	if at >= to {
		return r.window(from, to)
	}
	free, rest := r.window(from, at), r.window(at, to)
	rest.more(own)
	free.both(&rest)
	return free
}
