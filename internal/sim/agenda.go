package sim

import (
	"time"

	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/cluster"
)

// agenda is the future actions of a simulation, by instant; equal ones in the order of their creation.
type agenda struct {
	events  heap.Heap[event]
	created uint64
}

type event struct {
	at     cluster.Instant
	number uint64
	do     func() error
}

func newAgenda() agenda {
	return agenda{events: heap.New(func(a, b *event) bool { return a.at < b.at || a.at == b.at && a.number < b.number })}
}

// In schedules an action after a time; at once if it is negative.
func (v *Virtual) In(d time.Duration, do func() error) { v.At(v.Now.Add(max(d, 0)), do) }

// At schedules an action at an instant.
func (v *Virtual) At(at cluster.Instant, do func() error) {
	v.agenda.created++
	v.agenda.events.Push(event{at, v.agenda.created, do})
}

// NextAction returns the instant of the next action; [cluster.Never] without one.
func (v *Virtual) NextAction() cluster.Instant {
	if v.agenda.events.Len() == 0 {
		return cluster.Never
	}
	return v.agenda.events.Items()[0].at
}

// Act runs the actions that are due, each with after following unless that is nil.
func (v *Virtual) Act(after func() error) error {
	for v.NextAction() <= v.Now {
		if err := v.agenda.events.Pop().do(); err != nil {
			return err
		}
		if after == nil {
			continue
		}
		if err := after(); err != nil {
			return err
		}
	}
	return nil
}
