package server

import (
	"sync"
	"time"

	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkpointSlots hands out the slots of checkpoint stores. Only the leader does; the next one begins with none taken,
// so that for some minutes after a change of the leader more jobs may write.
type checkpointSlots struct {
	mu     sync.Mutex
	stores map[string]*storeSlots // by path
}

// writer is an attempt that writes a checkpoint.
type writer struct {
	job     cluster.JobID
	attempt cluster.Attempt
}

// storeSlots are the slots of one store.
type storeSlots struct {
	until   map[writer]time.Time // of those that have a slot
	waiting map[writer]time.Time // when each last asked
}

// forgetAfter is how long an attempt that asked for a slot waits without asking again.
const forgetAfter = 15 * time.Second

// take gives a slot to an attempt, or returns how many others get one before it. O(jobs that write or wait).
func (x *checkpointSlots) take(v *state.View, store cluster.CheckpointStore, w writer, now time.Time) (granted bool, ahead int32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.stores[store.Path]
	if s == nil {
		s = &storeSlots{until: map[writer]time.Time{}, waiting: map[writer]time.Time{}}
		if x.stores == nil {
			x.stores = map[string]*storeSlots{}
		}
		x.stores[store.Path] = s
	}
	s.forget(v, now)
	if _, has := s.until[w]; !has {
		s.waiting[w] = now
		free := max(0, int(store.Slots)-len(s.until))
		if place := s.place(v, w, now); place >= free {
			return false, int32(place - free)
		}
		delete(s.waiting, w)
	}
	s.until[w] = now.Add(cluster.CheckpointSlotTime)
	return true, 0
}

// forget removes attempts that are over, took too long, or do not ask any more.
func (s *storeSlots) forget(v *state.View, now time.Time) {
	for w, until := range s.until {
		if !until.After(now) || writing(v, w) == nil {
			delete(s.until, w)
		}
	}
	for w, asked := range s.waiting {
		if now.Sub(asked) > forgetAfter || writing(v, w) == nil {
			delete(s.waiting, w)
		}
	}
}

// place returns how many waiting attempts come before one.
func (s *storeSlots) place(v *state.View, w writer, now time.Time) (place int) {
	own, at := writing(v, w), cluster.InstantOf(now)
	for other := range s.waiting {
		if j := writing(v, other); other != w && j != nil && cluster.SaveOrder(j, own, at, v.Policy().KillWait) < 0 {
			place++
		}
	}
	return place
}

// release frees the slot of an attempt that has committed a checkpoint.
func (x *checkpointSlots) release(w writer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.stores {
		delete(s.until, w)
		delete(s.waiting, w)
	}
}

// writing returns the job of an attempt that has nodes; nil for none.
func writing(v *state.View, w writer) *cluster.Job {
	j, found := v.Job(w.job)
	if !found || j.Attempt != w.attempt || !j.State.HasAllocation() {
		return nil
	}
	return j
}
