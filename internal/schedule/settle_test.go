package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestWhatAStartLeaves: a job whose time has come takes the node that it fits best, and who
// was planned behind it on the other starts there at once.
func TestWhatAStartLeaves(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=8
		run 1 on=a:0-7 gpus=8 left=10m limit=2h
		run 2 on=b:0-3 gpus=4 left=3h limit=4h
		run 3 on=b:4-7 gpus=4 left=3h limit=4h
		job 4 gpus=4 limit=1h
		job 5 gpus=8 limit=1h after=1m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	next := *snap
	next.Index, next.Now = snap.Index+1, start.Add(10*time.Minute)
	next.Active = slices.DeleteFunc(slices.Clone(snap.Active), func(j *cluster.Job) bool { return j.ID != 2 })
	d := p.Pass(&next)
	if got := write(d); !strings.HasPrefix(got, "4 starts on b:4-7\n") {
		t.Fatalf("two jobs ended: %s", got)
	}
	snap = started(&next, d)
	snap.Index++
	if got := write(p.Pass(snap)); !strings.HasPrefix(got, "5 starts on a:0-7") {
		t.Errorf("the start was agreed: %s", got)
	}
}
