package state

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// array is one job array, identified by the ID of its first element. It is kept while an element is
// active or in the tail. The ID of the n-th index in ascending order is the array's ID plus n.
type array struct {
	ranges  []command.IndexRange // ascending, without overlap
	count   int32                // number of elements; follows from ranges
	kept    int32                // elements active or in the tail; an index
	holding int32                // elements with an allocation; an index
}

// elements returns the number of indices of a range; 0 for an invalid one.
func elements(r command.IndexRange) int64 {
	if r.First < 0 || r.Last < r.First || r.Step < 1 {
		return 0
	}
	return (int64(r.Last)-int64(r.First))/int64(r.Step) + 1
}

// indices lists the indices of ranges, in ascending order and without duplicates. The caller has
// bounded the sum of their elements.
func indices(ranges []command.IndexRange) []int32 {
	var all []int32
	for _, r := range ranges {
		for n := range elements(r) {
			all = append(all, int32(int64(r.First)+n*int64(r.Step)))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// canonical converts ascending indices to the fewest ranges that do not interleave.
func canonical(all []int32) []command.IndexRange {
	var ranges []command.IndexRange
	for len(all) > 0 {
		r := command.IndexRange{First: all[0], Last: all[0], Step: 1}
		n := 1
		if len(all) > 1 {
			r.Step = all[1] - all[0]
			for ; n < len(all) && int64(all[n])-int64(r.Last) == int64(r.Step); n++ {
				r.Last = all[n]
			}
		}
		ranges = append(ranges, r)
		all = all[n:]
	}
	return ranges
}

// countOf returns the elements of canonical ranges; ok is false for others.
func countOf(ranges []command.IndexRange) (count int32, ok bool) {
	var sum int64
	last := int64(-1)
	for _, r := range ranges {
		n := elements(r)
		if sum += n; n == 0 || int64(r.First) <= last || sum > maxCommandJobs {
			return 0, false
		}
		last = int64(r.First) + (n-1)*int64(r.Step)
	}
	return int32(sum), sum > 0
}

// element returns the position of an index in the array. O(ranges).
func (a array) element(index int32) (position int32, found bool) {
	for _, r := range a.ranges {
		switch {
		case index < r.First:
			return 0, false
		case index <= r.Last && (index-r.First)%r.Step == 0:
			return position + (index-r.First)/r.Step, true
		case index <= r.Last:
			return 0, false
		}
		position += int32(elements(r))
	}
	return 0, false
}

// Span returns the lowest and the highest index of an array that is kept, and the step between
// them, which is 1 if it varies. It returns the zero range for any other ID. O(log n).
func (v *View) Span(id cluster.JobID) command.IndexRange {
	a, _ := v.arrays.Get(id)
	if len(a.ranges) == 0 {
		return command.IndexRange{}
	}
	span := command.IndexRange{First: a.ranges[0].First, Last: a.ranges[len(a.ranges)-1].Last, Step: 1}
	if len(a.ranges) == 1 {
		span.Step = a.ranges[0].Step
	}
	return span
}

var arraySchema = table.Schema[cluster.JobID, array]{ // never written
	Kind: table.Arrays, Compare: cmp.Compare[cluster.JobID], Key: codec.Uint[cluster.JobID],
	Fields: func(c *codec.Coder, a *array) { codec.List(c, &a.ranges, command.RangeFields) },
}

// keepArray counts the elements that are kept and those with an allocation, and drops the array
// after its last element.
func (x *jobTables) keepArray(id cluster.JobID, kept, holding int32) {
	if id == 0 {
		return
	}
	a, _ := x.arrays.Get(id)
	a.kept += kept
	a.holding += holding
	if a.kept > 0 {
		x.arrays.SetIndexed(id, a)
	} else {
		x.arrays.Delete(id)
	}
}

// resolve lists the jobs that ref names, including those in the tail. O(elements log n).
func (x *jobTables) resolve(ref cluster.JobRef) []cluster.JobID {
	a, isArray := x.arrays.Get(ref.ID)
	if ref.Index != cluster.NoIndex {
		n, found := a.element(ref.Index)
		if _, there := x.job(ref.ID + cluster.JobID(n)); !found || !there {
			return nil
		}
		return []cluster.JobID{ref.ID + cluster.JobID(n)}
	}
	if !isArray {
		if _, there := x.job(ref.ID); !there {
			return nil
		}
		return []cluster.JobID{ref.ID}
	}
	ids := make([]cluster.JobID, 0, a.kept)
	for n := range a.count {
		id := ref.ID + cluster.JobID(n)
		if _, there := x.job(id); there {
			ids = append(ids, id)
		}
	}
	return ids
}

// maxSignals is the number of signals of one attempt that are kept for its nodes. A node that is
// disconnected while more are sent misses the oldest.
const maxSignals = 16

// Signal is a signal that a user requested and that the node must deliver once.
type Signal struct {
	ID        uint64 // ascending within a job
	Number    int32
	BatchOnly bool // only the script itself, not its children
}

var signalSchema = table.Schema[cluster.JobID, []Signal]{ // never written
	Kind: table.Signals, Compare: cmp.Compare[cluster.JobID], Key: codec.Uint[cluster.JobID],
	Fields: func(c *codec.Coder, list *[]Signal) { codec.List(c, list, signalFields) },
}

func signalFields(c *codec.Coder, s *Signal) {
	codec.Uint(c, &s.ID)
	codec.Int(c, &s.Number)
	codec.Bool(c, &s.BatchOnly)
}

// send adds a signal for the tasks of a job. Its ID is the log index, or the next free one if
// one entry sends several.
func (x *jobTables) send(index uint64, id cluster.JobID, number int32, batchOnly bool) {
	old, _ := x.signals.Get(id)
	signal := Signal{ID: index, Number: number, BatchOnly: batchOnly}
	if n := len(old); n > 0 {
		signal.ID = max(signal.ID, old[n-1].ID+1)
	}
	list := append(slices.Clone(old), signal)
	x.signals.Set(id, list[max(0, len(list)-maxSignals):])
}
