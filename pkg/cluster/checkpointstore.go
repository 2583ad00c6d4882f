package cluster

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"time"
)

// CheckpointStore is a file system to which at most Slots jobs write checkpoints at a time.
type CheckpointStore struct {
	Path  string
	Slots int32
}

// CheckpointSlotTime is how long a job may write before another one gets its slot.
const CheckpointSlotTime = 10 * time.Minute

// maxCheckpointStores limits the stores of a policy, and maxCheckpointSlots the slots of one.
const (
	maxCheckpointStores = 64
	maxCheckpointSlots  = 10_000
)

// CheckpointStore returns the store that contains a directory: that with the longest path; false if none does.
// O(stores).
func (p *Policy) CheckpointStore(dir string) (found CheckpointStore, ok bool) {
	if !InS3(dir) {
		dir = path.Clean(dir)
	}
	for _, s := range p.CheckpointStores {
		if below := s.Path == "/" && !InS3(dir) || dir == s.Path || strings.HasPrefix(dir, s.Path+"/"); below && len(s.Path) > len(found.Path) {
			found, ok = s, true
		}
	}
	return found, ok
}

// SaveOrder compares two jobs that want to write checkpoints at an instant. Negative means that a comes first: a job that
// is about to be preempted, and last one that cannot save its work before its SIGKILL, killWait after its SIGTERM; then
// the one with more GPU time at stake for each byte that it wrote last time, then the one with the lower ID.
// O(QOS + checkpoints).
func SaveOrder(a, b *Job, at Instant, killWait time.Duration) int {
	return cmp.Or(cmp.Compare(a.saveTurn(at, killWait), b.saveTurn(at, killWait)), cmp.Compare(b.atStake(at), a.atStake(at)), cmp.Compare(a.ID, b.ID))
}

// saveTurn returns 0 for a job that has to save its work before it is preempted, 1 for one that is not preempted, and 2
// for one that is killed before it could have saved, by the time that its last save took.
func (j *Job) saveTurn(at Instant, killWait time.Duration) int {
	switch {
	case j.Preempting == nil:
		return 1
	case j.Preempting.By == 0 && at.Add(j.WriteTime) > j.Preempting.At.Add(min(killWait, ReclaimLead)): // then the node is gone
		return 2
	case at.Add(j.WriteTime) > j.Preempting.At.Add(killWait):
		return 2
	}
	return 0
}

// atStake returns the unsaved GPU seconds of a job for each GiB of its newest checkpoint; for each GPU one GiB counts
// where none is known. Jobs without GPUs count by their nodes.
func (j *Job) atStake(at Instant) int64 {
	gpus, bytes := int64(0), int64(0)
	if j.Alloc != nil {
		for i := range j.Alloc.Nodes {
			gpus += max(1, int64(len(j.Alloc.Nodes[i].GPUs)))
		}
	}
	for _, c := range j.Checkpoints {
		bytes = c.Bytes
	}
	unsaved := int64(max(0, at.Sub(j.Saved())) / time.Second)
	return gpus * unsaved / max(1, cmp.Or(bytes/int64(GiB), gpus))
}

// checkCheckpointStores reports faults of the stores.
func (p *Policy) checkCheckpointStores(fault faultReporter) {
	if n := len(p.CheckpointStores); n > maxCheckpointStores {
		fault("checkpoint_store", "%d checkpoint stores, at most %d", n, maxCheckpointStores)
	}
	seen := map[string]bool{}
	for i, s := range p.CheckpointStores {
		at := fmt.Sprintf("checkpoint_store[%d]", i)
		if len(s.Path) > maxCheckpointDir || InS3(s.Path) && checkS3(s.Path+"/any") != nil || !InS3(s.Path) && (!path.IsAbs(s.Path) || path.Clean(s.Path) != s.Path) {
			fault(at+".path", "%q: want an absolute path or s3://BUCKET[/PREFIX], at most %d bytes, without . or .. and without a final slash", Sanitize(s.Path, 256), maxCheckpointDir)
		}
		if seen[s.Path] {
			fault(at+".path", "checkpoint store %s is listed twice", s.Path)
		}
		seen[s.Path] = true
		if s.Slots < 1 || s.Slots > maxCheckpointSlots {
			fault(at+".slots", "%d slots, want 1 to %d", s.Slots, maxCheckpointSlots)
		}
	}
}
