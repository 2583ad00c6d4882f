// Package totals counts what happened to jobs since the cluster began, by partition and QOS, for
// the counters and histograms of monitoring.
//
// The totals are part of the replicated state, so every controller reports the same values and no
// counter falls when another controller leads. The archive could not provide them: a controller
// whose archive has gaps would report less. No decision depends on a total.
package totals

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/pkg/cluster"
)

// Key identifies a total: the partition in which a job runs or, before its first start, its first
// partition, and its QOS.
type Key struct{ Partition, QOS string }

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Partition, b.Partition), strings.Compare(a.QOS, b.QOS))
}

func keyFields(c *codec.Coder, k *Key) {
	codec.String(c, &k.Partition)
	codec.String(c, &k.QOS)
}

const (
	firstOutcome = cluster.Completed
	outcomes     = cluster.OutOfMemory - firstOutcome + 1
)

// Total is the record of one key.
type Total struct {
	Submitted, Started uint64
	finished           [outcomes]uint64 // by final state
	NodeFailed         uint64           // requeues by cause, as in cluster.RestartCauses
	TaskFailed         uint64
	Preempted          uint64
	Requeued           uint64
	PromisesMade       uint64
	PromisesKept       uint64
	broken             [tally.CauseClasses]uint64
	Wait               Durations // from the earliest possible start of an attempt to its start
	Run                Durations // of attempts
}

// Finished returns the number of jobs that ended in a final state.
func (t *Total) Finished(state cluster.JobState) uint64 {
	if !state.Final() {
		return 0
	}
	return t.finished[state-firstOutcome]
}

// Broken returns the number of promises that were broken by a class of causes.
func (t *Total) Broken(c tally.CauseClass) uint64 { return t.broken[c] }

// Bounds are the upper bounds of the intervals of durations.
var Bounds = [...]time.Duration{ // never written
	time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 3 * 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// Durations is a histogram.
type Durations struct {
	Counts [len(Bounds) + 1]uint64 // by interval; the last one has no bound
	Millis uint64                  // the sum
}

func (d *Durations) add(x time.Duration) {
	i := 0
	for i < len(Bounds) && x > Bounds[i] {
		i++
	}
	d.Counts[i]++
	d.Millis += uint64(max(x, 0).Milliseconds())
}

// each calls f for each number of a total, in the order of the encoding.
func (t *Total) each(f func(*uint64)) {
	for _, n := range [...]*uint64{
		&t.Submitted, &t.Started, &t.NodeFailed, &t.TaskFailed, &t.Preempted, &t.Requeued, &t.PromisesMade, &t.PromisesKept, &t.Wait.Millis, &t.Run.Millis,
	} {
		f(n)
	}
	for _, list := range [...][]uint64{t.finished[:], t.broken[:], t.Wait.Counts[:], t.Run.Counts[:]} {
		for i := range list {
			f(&list[i])
		}
	}
}

func totalFields(c *codec.Coder, t *Total) { t.each(func(n *uint64) { codec.Uint(c, n) }) }

var schema = table.Schema[Key, *Total]{ // never written
	Kind: table.Totals, Compare: compareKeys, Key: keyFields, Fields: table.Pointer(totalFields),
}

// Totals holds the totals of all keys. Counting a job costs a fraction of its submission, because
// the changes of the commands of one log entry are stored together.
type Totals struct {
	stored  table.Table[Key, *Total]
	changed map[Key]*Total // since the last flush; nil: none
}

// New returns totals of a new cluster.
func New(h *table.Hasher) Totals { return Totals{stored: table.New(&schema, h)} }

// flush stores the changed totals. O(changed keys log n).
func (t *Totals) flush() {
	for k, total := range t.changed {
		t.stored.Set(k, total)
	}
	clear(t.changed)
}

// Clone returns totals that later changes to t do not affect. O(changed keys log n).
func (t *Totals) Clone(h *table.Hasher) Totals {
	t.flush()
	return Totals{stored: t.stored.Clone(h)}
}

// Digest returns the digest of all totals. O(changed keys log n).
func (t *Totals) Digest() uint64 {
	t.flush()
	return t.stored.Digest()
}

// Check recomputes the digest. O(n).
func (t *Totals) Check() error {
	t.flush()
	return t.stored.Check()
}

// All yields the totals in the order of their keys.
func (t *Totals) All() iter.Seq2[Key, *Total] {
	t.flush()
	return t.stored.All()
}

// Encode writes the totals into frames of a snapshot.
func (t *Totals) Encode(w *table.Writer) {
	t.flush()
	t.stored.Encode(w)
}

// Decode reads one total of a snapshot.
func (t *Totals) Decode(c *codec.Coder) { t.stored.Decode(c) }

// of returns the total of a key, which the caller may change.
func (t *Totals) of(k Key) *Total {
	if total := t.changed[k]; total != nil {
		return total
	}
	total := new(Total)
	if before, known := t.stored.Get(k); known {
		*total = *before
	}
	if t.changed == nil {
		t.changed = map[Key]*Total{}
	}
	t.changed[k] = total
	return total
}

// Count counts the change of a job from old, nil for a new job, to j. O(1), and O(log n) for the
// first change of a key after a flush.
func (t *Totals) Count(old, j *cluster.Job) {
	e := eventsOf(old, j)
	if e == (events{}) {
		return
	}
	key := Key{cmp.Or(j.Partition, j.Spec.Partition), j.Spec.QOS}
	if old != nil && j.Partition == "" && old.Partition != "" { // requeued
		key.Partition = old.Partition
	}
	t.of(key).count(e, old, j)
}

// events are what a change of a job counts as.
type events struct {
	submitted, started, finished, requeued, promised, kept, broken bool
}

func eventsOf(old, j *cluster.Job) events {
	if old == nil {
		return events{submitted: true, promised: j.Promise != nil}
	}
	had, has := old.State.HasAllocation(), j.State.HasAllocation()
	e := events{
		started: !had && has, finished: j.State.Final(), requeued: had && j.State == cluster.Pending,
		broken: brokenBy(old, j) != "",
	}
	e.promised = j.Promise != nil && (old.Promise == nil || e.broken)
	e.kept = e.started && old.Promise != nil && !e.broken
	return e
}

// brokenBy returns why a change broke the promise of a job; "" if it broke none.
func brokenBy(old, j *cluster.Job) string {
	n, before := len(j.History), len(old.History)
	if n == 0 || before > 0 && j.History[n-1] == old.History[before-1] {
		return ""
	}
	return j.History[n-1].Broken
}

func (t *Total) count(e events, old, j *cluster.Job) {
	if e.submitted {
		t.Submitted++
	}
	if e.started {
		t.Started++
		t.Wait.add(j.Started.Sub(max(old.Submitted, old.Eligible)))
	}
	if e.finished {
		t.finished[j.State-firstOutcome]++
	}
	if old != nil && old.State.HasAllocation() && !j.State.HasAllocation() {
		t.Run.add(runOf(j))
	}
	if e.requeued {
		t.NodeFailed += uint64(j.Causes.NodeFailed - old.Causes.NodeFailed)
		t.TaskFailed += uint64(j.Causes.TaskFailed - old.Causes.TaskFailed)
		t.Preempted += uint64(j.Causes.Preempted - old.Causes.Preempted)
		t.Requeued += uint64(j.Causes.Requeued - old.Causes.Requeued)
	}
	if e.promised {
		t.PromisesMade++
	}
	if e.kept {
		t.PromisesKept++
	}
	if e.broken {
		t.broken[tally.ClassOf(brokenBy(old, j))]++
	}
}

// runOf returns the duration of the attempt that ended last.
func runOf(j *cluster.Job) time.Duration {
	if n := len(j.Attempts); j.Started == 0 && n > 0 { // requeued
		return j.Attempts[n-1].Ended.Sub(j.Attempts[n-1].Started)
	}
	return j.Ended.Sub(j.Started)
}

// Add adds another total.
func (t *Total) Add(o *Total) {
	var of []uint64
	o.each(func(n *uint64) { of = append(of, *n) })
	t.each(func(n *uint64) {
		*n += of[0]
		of = of[1:]
	})
}

// Removed is the key of what happened in partitions and QOS that the policy no longer has: the sum
// over all keys never falls.
var Removed Key

// Retain adds the totals of partitions and QOS that a policy does not have to those of Removed.
func (t *Totals) Retain(p *cluster.Policy) {
	t.flush()
	var gone []Key
	for k := range t.stored.All() {
		if k == Removed {
			continue
		}
		_, partition := p.Partition(k.Partition)
		if _, qos := p.QOSNamed(k.QOS); !partition || !qos {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		total, _ := t.stored.Get(k)
		t.of(Removed).Add(total)
		t.stored.Delete(k)
	}
	t.flush()
}
