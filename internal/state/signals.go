package state

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/state/table"
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
