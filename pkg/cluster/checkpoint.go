package cluster

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Checkpoint is a directory that holds the work of a job at one point. An attempt committed it; later attempts
// can resume from it. A checkpoint value is never changed in place.
type Checkpoint struct {
	Number    uint32 // within the job, from 1
	Attempt   Attempt
	Step      int64  // of the training, as the user counts; NoStep: not given
	Dir       string // absolute path
	Files     int64
	Bytes     int64
	Digest    Digest // of the manifest in Dir
	State     CheckpointState
	Committed Instant
	Verified  Instant // of the last verification; 0: none since the commit
	Detail    string  // why it is damaged
}

// NoStep is the step of a checkpoint whose user gave none.
const NoStep = -1

// CheckpointState is what is known of the content of a checkpoint.
type CheckpointState uint8

// The states.
const (
	CheckpointWritten  CheckpointState = iota + 1 // only the sizes of its files are recorded
	CheckpointVerified                            // the hashes of its files are recorded
	CheckpointDamaged                             // its content differs from the manifest: never used again
)

var checkpointStates = [...]string{CheckpointWritten: "WRITTEN", CheckpointVerified: "VERIFIED", CheckpointDamaged: "DAMAGED"}

// String returns the word for the state.
func (s CheckpointState) String() string {
	if s == 0 || int(s) >= len(checkpointStates) {
		return "?"
	}
	return checkpointStates[s]
}

// MaxCheckpoints is the number of checkpoints of a job that are kept: the newest ones.
const MaxCheckpoints = 16

// MaxDamageDetail is the most bytes that are kept of what differs in a damaged checkpoint.
const MaxDamageDetail = 512

// maxCheckpointDir is the most bytes of the path of a checkpoint: the records of a job are in memory.
const maxCheckpointDir = 512

// ResumeShare returns which share of the checkpoint that the attempt resumes from the node of a rank verifies, and the
// number of shares. Share of is empty: an extra node of the start verifies no file. of is 0 if the task does not resume:
// nodes that join later do not, since the job may have deleted that checkpoint. O(1).
func (j *Job) ResumeShare(rank int) (share, of int32) {
	switch {
	case j.Resume == 0 || j.Members != nil && j.Members.List[rank].Granted != j.Granted:
		return 0, 0
	case j.Spec.EveryNode: // each node verifies all of it, since no script waits for another node
		return 0, 1
	case j.Members != nil:
		return min(j.Members.List[rank].Number, j.Spec.Request.Nodes), j.Spec.Request.Nodes
	}
	return int32(rank), int32(j.Tasks.Len())
}

// ResumePoint returns the newest checkpoint that is not damaged; nil without one. O(checkpoints).
func (j *Job) ResumePoint() *Checkpoint {
	for _, c := range slices.Backward(j.Checkpoints) {
		if c.State != CheckpointDamaged {
			return c
		}
	}
	return nil
}

// Checkpoint returns the checkpoint with a number; nil if it is not recorded. O(checkpoints).
func (j *Job) Checkpoint(number uint32) *Checkpoint {
	for _, c := range j.Checkpoints {
		if c.Number == number {
			return c
		}
	}
	return nil
}

// Saved returns the instant until which the work of the current attempt is saved: its last checkpoint, else its
// start. O(checkpoints).
func (j *Job) Saved() Instant {
	for _, c := range slices.Backward(j.Checkpoints) {
		if c.Attempt == j.Attempt && c.State != CheckpointDamaged {
			return max(c.Committed, j.Started)
		}
	}
	return j.Started
}

// DefaultCheckpointLead is how long before its time limit a job gets its checkpoint signal if it requests no other
// time.
const DefaultCheckpointLead = 2 * time.Minute

// minCheckpointEvery is the least time between checkpoint signals.
const minCheckpointEvery = 10 * time.Second

// SignalBase returns the instant from which the periodic checkpoint signals of the current attempt count: its last
// checkpoint or signal, else its start. O(checkpoints).
func (j *Job) SignalBase() Instant { return max(j.Saved(), j.Asked) }

// AskedBy returns when the current attempt last got a checkpoint signal that no checkpoint has followed, at an
// instant; 0 if it did not. O(checkpoints).
func (j *Job) AskedBy(at Instant) Instant {
	base := j.SignalBase()
	if j.Tasks.Len() > 0 {
		base = max(base, j.Tasks.At(0).Started)
	}
	if every := j.Spec.CheckpointEvery; every > 0 && at.Sub(base) >= every {
		return base.Add(at.Sub(base) / every * every)
	}
	if j.Asked > j.Saved() {
		return j.Asked
	}
	return 0
}

// MadeProgress reports whether the current attempt has a checkpoint of a later step than all earlier attempts.
// Damaged checkpoints do not count. O(checkpoints).
func (j *Job) MadeProgress() bool {
	earlier, own := int64(NoStep), int64(NoStep)
	for _, c := range j.Checkpoints {
		switch {
		case c.State == CheckpointDamaged:
		case c.Attempt != j.Attempt:
			earlier = max(earlier, c.Step)
		default:
			own = max(own, c.Step)
		}
	}
	return own > earlier
}

// checkCheckpointSignal checks when a job is asked for checkpoints.
func (s *JobSpec) checkCheckpointSignal(fault func(string, ...any)) {
	signal, every := s.CheckpointSignal, s.CheckpointEvery
	if s.RequeueAtLimit && !s.Requeue {
		fault("a job that is not requeued cannot continue at its time limit")
	}
	switch {
	case signal.Number < 0 || signal.Number > MaxSignal || signal.Before < 0 || signal.Before > maxLimit:
		fault("checkpoint signal %d with lead time %s is out of range: want signal 1 to %d, and 0s to %s", signal.Number, signal.Before, MaxSignal, maxLimit)
	case every != 0 && signal.Number == 0:
		fault("checkpoint interval %s needs a checkpoint signal", every)
	case every != 0 && (every < minCheckpointEvery || every > maxLimit):
		fault("checkpoint interval %s is out of range: want %s to %s", every, minCheckpointEvery, maxLimit)
	}
}

// CheckCheckpointDir returns an error for a path that cannot be the directory of a checkpoint.
func CheckCheckpointDir(dir string) error {
	switch {
	case InS3(dir):
		if err := checkS3(dir); err != nil {
			return err
		}
	case !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/":
		return fmt.Errorf("checkpoint directory %.200q: want an absolute path that has no . or .. in it, or s3://BUCKET/PREFIX", dir)
	}
	if len(dir) > maxCheckpointDir || !utf8.ValidString(dir) || strings.ContainsFunc(dir, UnsafeToDisplay) {
		return fmt.Errorf("checkpoint directory %.200q: want at most %d bytes without control characters", dir, maxCheckpointDir)
	}
	return nil
}

// kernelFolder returns the root of the kernel file system on which a clean path lies; "" for another path. /dev/shm has
// memory for files.
func kernelFolder(dir string) string {
	if dir == "/dev/shm" || strings.HasPrefix(dir, "/dev/shm/") {
		return ""
	}
	for _, root := range []string{"/proc", "/sys", "/dev"} {
		if dir == root || strings.HasPrefix(dir, root+"/") {
			return root
		}
	}
	return ""
}

// checkCheckpointDir checks the pattern of a job's checkpoint directory: %j and the other words that have the
// same value on every node and in every attempt.
func (s *JobSpec) checkCheckpointDir(fault func(string, ...any)) {
	if s.CheckpointDir == "" {
		return
	}
	if err := CheckCheckpointDir(s.CheckpointDir); err != nil {
		fault("%v", err)
	}
	if root := kernelFolder(s.CheckpointDir); root != "" {
		fault("checkpoint directory %.200q: %s is a file system of the kernel; name a directory on a file system that all nodes share", s.CheckpointDir, root)
	}
	for i := 0; i+1 < len(s.CheckpointDir); i++ {
		if s.CheckpointDir[i] != '%' {
			continue
		}
		if i++; !strings.ContainsRune("jAaxu%", rune(s.CheckpointDir[i])) {
			fault("checkpoint directory %.200q: %%%c is not known here; known: %%j %%A %%a %%x %%u, and %%%% for a percent sign", s.CheckpointDir, s.CheckpointDir[i])
		}
	}
}

// s3Scheme begins the URI of a checkpoint in an S3 bucket: s3://BUCKET/PREFIX.
const s3Scheme = "s3://"

// InS3 reports whether a checkpoint directory is a prefix of an S3 bucket.
func InS3(dir string) bool { return strings.HasPrefix(dir, s3Scheme) }

// SplitS3 splits a directory that InS3 accepts into bucket and prefix.
func SplitS3(dir string) (bucket, prefix string) {
	bucket, prefix, _ = strings.Cut(strings.TrimPrefix(dir, s3Scheme), "/")
	return bucket, prefix
}

// checkS3 returns an error for an invalid S3 URI.
func checkS3(dir string) error {
	bucket, prefix := SplitS3(dir)
	odd := strings.ContainsFunc(bucket, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.-", r) })
	if len(bucket) < 3 || len(bucket) > 63 || odd || prefix == "" || path.Clean("/"+prefix) != "/"+prefix {
		return fmt.Errorf("checkpoint directory %.200q: want s3://BUCKET/PREFIX without . or .. and without a slash at its end", dir)
	}
	return nil
}
