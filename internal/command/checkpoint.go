package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// CommitCheckpoint records a checkpoint that an attempt of a job has written. It uses Step, Dir, Files, Bytes,
// Digest and State of Checkpoint. A commit with the digest of a recorded checkpoint changes nothing.
type CommitCheckpoint struct {
	Request    RequestID
	Actor      Actor
	Job        cluster.JobID
	Attempt    cluster.Attempt
	Checkpoint cluster.Checkpoint
}

// CheckpointAction is what SetCheckpoint does.
type CheckpointAction uint8

// The actions.
const (
	VerifyCheckpoint    CheckpointAction = iota + 1 // its content is that of the manifest
	DamageCheckpoint                                // its content differs from the manifest
	DropCheckpoint                                  // its record is removed; its files are not touched
	maxCheckpointAction = DropCheckpoint
)

var checkpointActions = [...]string{VerifyCheckpoint: "verify", DamageCheckpoint: "damage", DropCheckpoint: "drop"}

// String returns the word for the action.
func (a CheckpointAction) String() string {
	if a == 0 || a > maxCheckpointAction {
		return "?"
	}
	return checkpointActions[a]
}

// SetCheckpoint records the result of a verification, or drops a checkpoint. Digest is that of the manifest
// that was read.
type SetCheckpoint struct {
	Request RequestID
	Actor   Actor
	Job     cluster.JobID
	Number  uint32
	Digest  cluster.Digest
	Action  CheckpointAction
	Detail  string // of DamageCheckpoint: what differs
}

// CheckpointCommitted answers CommitCheckpoint.
type CheckpointCommitted struct {
	Number uint32
	Known  bool // it was recorded before: nothing changed
}

func (*CommitCheckpoint) kind() kind { return kindCommitCheckpoint }
func (*SetCheckpoint) kind() kind    { return kindSetCheckpoint }
func (*CheckpointCommitted) result() {}

func commitCheckpointFields(c *codec.Coder, x *CommitCheckpoint) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Record(c, &x.Checkpoint, CheckpointFields)
}

func setCheckpointFields(c *codec.Coder, x *SetCheckpoint) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Number)
	codec.Fixed(c, x.Digest[:])
	codec.Uint(c, &x.Action)
	codec.String(c, &x.Detail)
}

func checkpointCommittedFields(c *codec.Coder, x *CheckpointCommitted) {
	codec.Uint(c, &x.Number)
	codec.Bool(c, &x.Known)
}

// checkpoints codes the checkpoints of a job. O(checkpoints).
func checkpoints(c *codec.Coder, x *[]*cluster.Checkpoint) {
	codec.List(c, x, func(c *codec.Coder, p **cluster.Checkpoint) {
		if c.Reading() {
			*p = new(cluster.Checkpoint)
		}
		codec.Record(c, *p, CheckpointFields)
	})
}

// CheckpointFields are those of a checkpoint.
func CheckpointFields(c *codec.Coder, x *cluster.Checkpoint) {
	codec.Uint(c, &x.Number)
	codec.Uint(c, &x.Attempt)
	codec.Int(c, &x.Step)
	codec.String(c, &x.Dir)
	codec.Int(c, &x.Files)
	codec.Int(c, &x.Bytes)
	codec.Fixed(c, x.Digest[:])
	codec.Uint(c, &x.State)
	codec.Int(c, &x.Committed)
	codec.Int(c, &x.Verified)
	codec.String(c, &x.Detail)
}
