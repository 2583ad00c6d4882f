package state

import (
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
)

// maxSignals is how many signals of one attempt are kept for its nodes. A node that
// is away while more are sent misses the oldest.
const maxSignals = 16

// Signal is a signal that a user asked for and the node has to deliver once.
type Signal struct {
	ID        uint64 // ascending within a job
	Number    int32
	BatchOnly bool // only the script itself, not its children
}

// send adds a signal for the tasks of a job. Its id is the log index, or the next
// one that is free when one entry sends several.
func (s *State) send(id cluster.JobID, number int32, batchOnly bool) {
	old, _ := s.signals.Get(id)
	signal := Signal{ID: s.index, Number: number, BatchOnly: batchOnly}
	if n := len(old); n > 0 {
		signal.ID = max(signal.ID, old[n-1].ID+1)
	}
	list := append(slices.Clone(old), signal)
	s.setSignals(id, list[max(0, len(list)-maxSignals):])
}

// setSignals replaces the signals of a job.
func (s *State) setSignals(id cluster.JobID, list []Signal) {
	old, known := s.signals.Get(id)
	if !known && len(list) == 0 {
		return
	}
	s.digest ^= s.hashSignals(id, old) ^ s.hashSignals(id, list)
	if len(list) == 0 {
		s.signals.Delete(id)
	} else {
		s.signals.Set(id, list)
	}
}
