package cluster

import (
	"strings"
	"testing"
	"time"
)

// TestCheckpointStore: a directory is in the store with the longest path that contains it.
func TestCheckpointStore(t *testing.T) {
	p := DefaultPolicy()
	p.CheckpointStores = []CheckpointStore{{"/ckpt", 8}, {"/ckpt/fast", 64}}
	for dir, want := range map[string]string{"/ckpt": "/ckpt", "/ckpt/a/1": "/ckpt", "/ckpt/fast/../a": "/ckpt", "/ckpt/fast/a": "/ckpt/fast", "/ckpt2": "", "/home": ""} {
		if s, ok := p.CheckpointStore(dir); s.Path != want || ok != (want != "") {
			t.Errorf("%s: %v, want %q", dir, s, want)
		}
	}
	if list := p.Faults(); len(list) > 0 {
		t.Errorf("faults: %v", list)
	}
	for _, bad := range []CheckpointStore{{"ckpt", 1}, {"/ckpt/", 1}, {"/x/../y", 1}, {"/ckpt", 1}, {"/x", 0}, {"/x", 1 << 20}} {
		q := p
		q.CheckpointStores = append(q.CheckpointStores[:2:2], bad)
		if list := q.Faults(); len(list) != 1 || !strings.HasPrefix(list[0].Key, "checkpoint_store[2].") {
			t.Errorf("%v: faults %v", bad, list)
		}
	}
}

// TestSaveOrder: a job that is about to be preempted comes first, unless it is killed before it could have saved; then
// the one that would repeat the most GPU time for each byte.
func TestSaveOrder(t *testing.T) {
	now := Instant(100 * time.Hour)
	job := func(id JobID, gpus int, unsaved time.Duration, bytes Bytes) *Job {
		return &Job{ID: id, Attempt: 1, Started: now.Add(-unsaved), Alloc: &Allocation{Nodes: []NodeAllocation{{GPUs: make([]int32, gpus)}}},
			Checkpoints: []*Checkpoint{{Attempt: 1, Bytes: int64(bytes), Committed: now.Add(-unsaved)}}}
	}
	preempted := job(9, 1, time.Minute, 1000*GiB)
	preempted.Preempting, preempted.WriteTime = &Preempting{By: 1, At: now.Add(time.Minute)}, 90*time.Second
	late := job(10, 64, 10*time.Hour, GiB)
	late.Preempting, late.WriteTime = preempted.Preempting, 91*time.Second
	gone := job(11, 64, 10*time.Hour, GiB) // 20 s after its SIGTERM its node is gone
	gone.Preempting, gone.WriteTime = &Preempting{At: now.Add(time.Minute), Ref: "cloud-1"}, 81*time.Second
	inTime := job(12, 1, time.Second, 1000*GiB)
	inTime.Preempting, inTime.WriteTime = gone.Preempting, 80*time.Second
	order := []*Job{preempted, inTime, job(3, 8, time.Hour, 10*GiB), job(2, 8, time.Hour, 100*GiB), job(1, 8, time.Minute, 100*GiB), job(4, 8, time.Minute, 100*GiB), late, gone}
	for i := range order {
		for k := range order {
			if got := SaveOrder(order[i], order[k], now, 30*time.Second); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("%d and %d: %d", order[i].ID, order[k].ID, got)
			}
		}
	}
}
