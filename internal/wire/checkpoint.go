package wire

import (
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ReadCheckpoint reads the checkpoint of a commit. The error is a refusal.
func ReadCheckpoint(p *greylagv1.Checkpoint) (cluster.Checkpoint, error) {
	k := cluster.Checkpoint{
		Step: cluster.NoStep, Dir: p.GetDir(), Files: p.GetFiles(), Bytes: p.GetBytes(), State: cluster.CheckpointState(p.GetState()),
	}
	if p.GetState() == 0 {
		return k, Unset("checkpoint.state", p.GetState())
	}
	if err := cluster.CheckCheckpointDir(k.Dir); err != nil {
		return k, refuse("%v", err)
	}
	if p != nil && p.Step != nil {
		k.Step = p.GetStep()
	}
	var err error
	k.Digest, err = ReadManifestDigest(p.GetDigest())
	return k, err
}

// ReadManifestDigest reads the digest of a manifest; a zero one without it. The error is a refusal.
func ReadManifestDigest(text []byte) (d cluster.Digest, err error) {
	if len(text) != 0 && len(text) != len(d) {
		return d, refuse("the digest of a manifest has %d bytes, want %d", len(text), len(d))
	}
	copy(d[:], text)
	return d, nil
}

func writeCheckpoints(all []*cluster.Checkpoint) (list []*greylagv1.Checkpoint) {
	for _, k := range all {
		list = append(list, &greylagv1.Checkpoint{
			Number: k.Number, Attempt: uint32(k.Attempt), Step: stepOf(k), Dir: k.Dir, Files: k.Files, Bytes: k.Bytes, Digest: k.Digest[:],
			State: greylagv1.CheckpointState(k.State), Committed: Timestamp(k.Committed), Verified: Timestamp(k.Verified), Detail: k.Detail,
		})
	}
	return list
}

// writeResumePoint returns the checkpoint from which the current attempt resumes, with the share that the node of
// the rank verifies; nil without one, and for a node that joins later.
func writeResumePoint(j *cluster.Job, rank int) *greylagv1.ResumePoint {
	k := j.Checkpoint(j.Resume)
	share, of := j.ResumeShare(rank)
	if of == 0 || k == nil {
		return nil
	}
	return &greylagv1.ResumePoint{Number: k.Number, Dir: k.Dir, Step: stepOf(k), Digest: k.Digest[:], Share: share, Of: of}
}

// Waits reports whether the script of a job waits until all other nodes have verified their shares of the
// checkpoint that the attempt resumes from: they start their tasks then. O(nodes).
func Waits(j *cluster.Job, rank int) bool {
	staged := len(j.Spec.StageIn) > 0
	if j.Resume == 0 && !staged || rank != 0 || j.Spec.EveryNode {
		return false
	}
	for other, t := range j.Tasks.All() {
		if share, of := j.ResumeShare(other); other != 0 && (staged || share < of) && t.Phase != cluster.TaskStarted { // one that has ended ends the attempt
			return true
		}
	}
	return false
}

func stepOf(k *cluster.Checkpoint) *int64 {
	if k.Step == cluster.NoStep {
		return nil
	}
	return &k.Step
}

// readRetry reads a retry; that of the policy without one.
func readRetry(p *greylagv1.Retry) cluster.Retry {
	if p == nil {
		return cluster.Retry{Limit: cluster.DefaultRetry}
	}
	return cluster.Retry{Limit: p.GetLimit(), AnyExit: p.GetAnyExit(), ExitStatuses: p.GetExitStatuses(), OutOfMemory: p.GetOutOfMemory()}
}

func writeRetry(r *cluster.Retry) *greylagv1.Retry {
	if r.Limit == cluster.DefaultRetry {
		return nil
	}
	return &greylagv1.Retry{Limit: r.Limit, AnyExit: r.AnyExit, ExitStatuses: r.ExitStatuses, OutOfMemory: r.OutOfMemory}
}

// readCheckpointSignal sets when a job is asked for checkpoints. The error is a refusal.
func (s *Submission) readCheckpointSignal(p *greylagv1.JobSpec) error {
	c := p.GetCheckpointSignal()
	if c == nil {
		return nil
	}
	x := &s.Spec
	x.CheckpointSignal = cluster.WarnSignal{Number: c.GetNumber(), Before: cluster.DefaultCheckpointLead, BatchOnly: c.GetBatchOnly()}
	if c.GetNumber() < 1 {
		return refuse("checkpoint_signal.number is not set")
	}
	var errs [2]error
	if c.GetBefore() != nil {
		x.CheckpointSignal.Before, errs[0] = duration("checkpoint_signal.before", c.GetBefore())
	}
	x.CheckpointEvery, errs[1] = duration("checkpoint_signal.every", c.GetEvery())
	return errors.Join(errs[:]...)
}

func writeCheckpointSignal(x *cluster.JobSpec) *greylagv1.CheckpointSignal {
	signal := x.CheckpointSignal
	if signal.Number == 0 {
		return nil
	}
	p := &greylagv1.CheckpointSignal{Number: signal.Number, Before: durationpb.New(signal.Before), BatchOnly: signal.BatchOnly}
	if x.CheckpointEvery > 0 {
		p.Every = durationpb.New(x.CheckpointEvery)
	}
	return p
}

// SignalBase returns the instant from which the node of a job counts its periodic checkpoint signals; 0 if it sends
// none. O(checkpoints).
func SignalBase(j *cluster.Job) cluster.Instant {
	if j.Spec.CheckpointEvery == 0 {
		return 0
	}
	return j.SignalBase()
}

// ReadCheckpointAction reads an action. The error is a refusal.
func ReadCheckpointAction(a greylagv1.CheckpointAction) (command.CheckpointAction, error) {
	if a == 0 {
		return 0, Unset("action", a)
	}
	return command.CheckpointAction(a), nil
}
