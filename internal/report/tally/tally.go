package tally

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// finals is how many final states there are, and first the first of them.
const first, finals = cluster.Completed, int(cluster.OutOfMemory-cluster.Completed) + 1

// Tally is what jobs came to. Times are in milliseconds times the resource, memory in
// MiB-seconds.
type Tally struct {
	// While they ran.
	GPU, CPU, Node int64
	// Of jobs that ended.
	Ended    [finals]int64 // jobs by final state, COMPLETED first
	Attempts int64         // attempts that ended, those of requeued jobs included
	Fault    int64         // GPU time of attempts that a fault of the cluster ended
	Preempt  int64         // GPU time of attempts that were preempted
	CPUUsed  int64         // CPU time that their processes used, of CPUHeld
	CPUHeld  int64         // CPU time that ended attempts had
	MemUsed  int64         // peaks times duration, of MemHeld
	MemHeld  int64         // memory that they had, times duration
	Charged  int64         // micro-credits
	Wait     Histogram     // from submission or --begin to the first start
	Kept     int64         // promises that were kept
	Broken   int64         // promises that were not
	Dropped  int64         // promises to jobs that were cancelled, held or changed before
	Causes   []Cause       // of Broken, by what they say
	GPUBusy  int64         // time in which something ran on GPUs of ended attempts, of GPUKnown
	GPUKnown int64         // time of those GPUs for which that is known
}

// Cause is why promises were broken, and how many.
type Cause struct {
	Why   string
	Count int64
}

// Jobs is how many jobs ended in a final state.
func (t *Tally) Jobs(state cluster.JobState) int64 {
	if !state.Final() {
		return 0
	}
	return t.Ended[state-first]
}

// All is how many jobs ended.
func (t *Tally) All() (n int64) {
	for _, x := range t.Ended {
		n += x
	}
	return n
}

// Add adds another tally.
func (t *Tally) Add(o *Tally) {
	for i, n := range o.Ended {
		t.Ended[i] += n
	}
	for i, from := range o.sums() {
		*t.sums()[i] += *from
	}
	t.GPUBusy += o.GPUBusy
	t.GPUKnown += o.GPUKnown
	t.Wait.Add(&o.Wait)
	for _, c := range o.Causes {
		t.blame(c.Why, c.Count)
	}
}

// sums are the fields that only have to be added.
func (t *Tally) sums() [14]*int64 {
	return [...]*int64{
		&t.GPU, &t.CPU, &t.Node, &t.Attempts, &t.Fault, &t.Preempt, &t.CPUUsed, &t.CPUHeld,
		&t.MemUsed, &t.MemHeld, &t.Charged, &t.Kept, &t.Broken, &t.Dropped,
	}
}

func (t *Tally) blame(why string, n int64) {
	i, found := slices.BinarySearchFunc(t.Causes, why, func(c Cause, w string) int { return cmp.Compare(c.Why, w) })
	if !found {
		t.Causes = slices.Insert(t.Causes, i, Cause{Why: why})
	}
	t.Causes[i].Count += n
}

// Fields describes a tally as it is kept. A newer version may append fields.
func Fields(c *codec.Coder, t *Tally) {
	for i := range t.Ended {
		codec.Int(c, &t.Ended[i])
	}
	for _, n := range t.sums() {
		codec.Int(c, n)
	}
	codec.List(c, &t.Wait.counts, countFields)
	codec.List(c, &t.Causes, func(c *codec.Coder, x *Cause) {
		codec.String(c, &x.Why)
		codec.Int(c, &x.Count)
	})
	codec.Int(c, &t.GPUBusy)
	codec.Int(c, &t.GPUKnown)
}

func countFields(c *codec.Coder, x *count) {
	codec.Uint(c, &x.bin)
	codec.Int(c, &x.n)
}

// Encode is a tally as it is kept.
func (t *Tally) Encode() []byte {
	w := codec.Writer(nil)
	codec.Record(&w, t, Fields)
	return w.Written()
}

// Decode reads what Encode wrote.
func Decode(data []byte) (*Tally, error) {
	r := codec.Reader(data)
	t := &Tally{}
	codec.Record(&r, t, Fields)
	return t, r.Err()
}
