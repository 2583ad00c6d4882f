package schedule

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestForgetsSnapshots checks that a job which is pending for long keeps no snapshot of an old pass
// in memory.
func TestForgetsSnapshots(t *testing.T) {
	snap := draw(t, "node n gpus=4\nrun 1 on=n:0-3 cpus=1 gpus=4 left=90m limit=2h\njob 2 gpus=4 limit=1h\n")
	p := NewPlanner()
	p.Pass(snap)
	var seen []weak.Pointer[cluster.Snapshot]
	for id := range cluster.JobID(3) {
		next := *snap
		next.Now, next.Index = snap.Now.Add(time.Second), snap.Index+1
		job := *snap.Pending[0]
		job.ID = 10 + id
		next.Pending = append(slices.Clone(snap.Pending), &job)
		if snap = &next; p.Pass(snap).Stats.Full {
			t.Fatal("all jobs were planned again")
		}
		seen = append(seen, weak.Make(snap))
	}
	runtime.GC()
	for i, old := range seen[:len(seen)-1] {
		if old.Value() != nil {
			t.Errorf("snapshot %d of %d is kept", i, len(seen))
		}
	}
	runtime.KeepAlive(p)
}
