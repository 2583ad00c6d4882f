package oracle

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// brute is the rules written again from their text alone: time in whole seconds, the profile an
// array of them, every pass made, no optimisation.
type brute struct {
	jobs    []Job
	alg     Algorithm
	free    []int32
	waiting []int // in order of arrival
	planned []int // start; -1: none yet
	out     []JobStart
	events  []bruteEvent
	starts  int // of start events, for their numbers
	ends    int
	now     int
}

type bruteEvent struct{ at, kind, number, job int }

func seconds(d time.Duration) int { return int(d / time.Second) }

func newBrute(jobs []Job, procs int32, a Algorithm) *brute {
	b := &brute{jobs: jobs, alg: a, out: make([]JobStart, len(jobs)), planned: make([]int, len(jobs))}
	horizon := 10
	for i, j := range jobs {
		b.events = append(b.events, bruteEvent{seconds(j.Submit), 0, i, i})
		horizon = max(horizon, seconds(j.Submit)) + seconds(j.Estimate)
	}
	b.free = slices.Repeat([]int32{procs}, 2*horizon+100)
	return b
}

func (b *brute) fits(job, at int) bool {
	for t := at; t < at+seconds(b.jobs[job].Estimate); t++ {
		if b.free[t] < b.jobs[job].Procs {
			return false
		}
	}
	return true
}

func (b *brute) earliest(job int) int {
	at := b.now
	for !b.fits(job, at) {
		at++
	}
	return at
}

func (b *brute) change(job, from, to int, sign int32) {
	for t := from; t < to; t++ {
		b.free[t] += sign * b.jobs[job].Procs
	}
}

func (b *brute) reserve(job, at int) {
	b.change(job, at, at+seconds(b.jobs[job].Estimate), -1)
	b.planned[job] = at
}

func (b *brute) startEvent(job, at int) {
	b.events = append(b.events, bruteEvent{at, 2, b.starts, job})
	b.starts++
}

func (b *brute) run() []JobStart {
	for len(b.events) > 0 {
		i := 0
		for k, e := range b.events {
			f := b.events[i]
			if slices.Compare([]int{e.at, e.kind, e.number}, []int{f.at, f.kind, f.number}) < 0 {
				i = k
			}
		}
		e := b.events[i]
		b.events = slices.Delete(b.events, i, i+1)
		b.now = e.at
		b.handle(e)
	}
	return b.out
}

func (b *brute) handle(e bruteEvent) {
	j := e.job
	switch {
	case e.kind == 0 && b.alg == Conservative:
		b.waiting = append(b.waiting, j)
		b.reserve(j, b.earliest(j))
		b.out[j].Promise = time.Duration(b.planned[j]) * time.Second
		b.startEvent(j, b.planned[j])
	case e.kind == 0:
		b.waiting = append(b.waiting, j)
		b.out[j].Promise = -1
		b.begin()
	case e.kind == 1:
		from := seconds(b.out[j].Start)
		b.change(j, b.now, from+seconds(b.jobs[j].Estimate), 1)
		if b.alg == Conservative {
			b.replan()
		} else {
			b.begin()
		}
	case b.alg != Conservative || b.planned[j] == b.now && slices.Contains(b.waiting, j):
		b.waiting = slices.DeleteFunc(b.waiting, func(w int) bool { return w == j })
		b.out[j].Start = time.Duration(b.now) * time.Second
		b.events = append(b.events, bruteEvent{b.now + seconds(b.jobs[j].Run), 1, b.ends, j})
		b.ends++
	}
}

func (b *brute) replan() {
	for _, j := range b.waiting {
		old := b.planned[j]
		if old <= b.now {
			continue
		}
		b.change(j, old, old+seconds(b.jobs[j].Estimate), 1)
		if b.reserve(j, b.earliest(j)); b.planned[j] != old {
			b.startEvent(j, b.planned[j])
		}
	}
}

// begin starts the heads, and with EASY the jobs that may pass.
func (b *brute) begin() {
	start := func(i int) {
		j := b.waiting[i]
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.reserve(j, b.now)
		b.startEvent(j, b.now)
	}
	for len(b.waiting) > 0 && b.jobs[b.waiting[0]].Procs <= b.free[b.now] {
		start(0)
	}
	for i := 1; b.alg == EASY && i < len(b.waiting); {
		head, j := b.waiting[0], b.waiting[i]
		at := b.earliest(head)
		end := at + seconds(b.jobs[head].Estimate)
		b.change(head, at, end, -1)
		ok := b.jobs[j].Procs <= b.free[b.now] && b.earliest(j) == b.now
		b.change(head, at, end, 1)
		if ok {
			start(i)
		} else {
			i++
		}
	}
}

// FuzzRules draws small logs with many equal times, and compares each start and promise with those
// of the rules carried out second by second.
func FuzzRules(f *testing.F) {
	for seed := range uint64(400) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		procs := int32(1 + r.IntN(8))
		jobs := make([]Job, 1+r.IntN(40))
		at := 0
		for i := range jobs {
			at += r.IntN(4)
			est := 1 + r.IntN(12)
			run := 1 + r.IntN(est)
			if r.IntN(3) == 0 {
				run = est
			}
			jobs[i] = Job{time.Duration(at) * time.Second, time.Duration(run) * time.Second, time.Duration(est) * time.Second, 1 + r.Int32N(procs)}
		}
		for _, a := range []Algorithm{FCFS, EASY, Conservative} {
			got, err := Run(jobs, procs, a)
			if err != nil {
				t.Fatal(err)
			}
			if want := newBrute(jobs, procs, a).run(); !reflect.DeepEqual(got, want) {
				t.Fatalf("algorithm %d, %d processors\njobs %v\ngot  %v\nwant %v", a, procs, jobs, got, want)
			}
			if a == Conservative {
				kept(t, got)
			}
		}
	})
}

func kept(t *testing.T, out []JobStart) {
	for i, o := range out {
		if o.Start > o.Promise {
			t.Fatalf("job %d was promised %v and started at %v", i, o.Promise, o.Start)
		}
	}
}
