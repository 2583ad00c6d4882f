package state

import (
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/blobs"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Effects is what must happen outside the state because of what was applied.
type Effects struct {
	Blobs    []blobs.Blob         // to be stored before the entry counts as applied
	Finished []Finished           // to be archived, ascending by Seq without gaps
	Changed  []Change             // in the order they happened
	Entries  []accounting.Entry   // of the journal of credits, ascending by Seq without gaps, to be archived
	Audit    []command.AuditEntry // of the audit journal, likewise
}

// Finished is a job that has ended. Seq numbers finished jobs 1, 2, 3, ... in the
// order in which they ended, equal on every replica.
type Finished struct {
	Seq    uint64
	Job    *cluster.Job
	Record []byte // the job as command.EncodeJob writes it
}

// ChangeKind says what a Change is about.
type ChangeKind uint8

// The kinds.
const (
	JobChanged ChangeKind = iota + 1
	NodeChanged
	PolicyChanged
)

// Change is one thing that is not as it was.
type Change struct {
	Kind ChangeKind
	Job  cluster.JobID // of a JobChanged
	Old  *cluster.Job  // before; nil when the job is new
	New  *cluster.Job  // after, final states included
	Node string        // of a NodeChanged; the node may be gone
}
