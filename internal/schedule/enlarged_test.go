package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// TestWhoAsksForMoreBreaksNoPromise: a job that was promised a start asks for more when all is
// planned anew, and another job of its owner ends: the node that another was promised stays its.
func TestWhoAsksForMoreBreaksNoPromise(t *testing.T) {
	snap := draw(t, `
		rules . depth=100 horizon=24h
		node a gpus=8
		node b gpus=8
		run 1 on=a:0-7 gpus=8 left=30m limit=1h
		run 2 on=b:0-6 gpus=7 left=10h limit=11h
		run 3 on=b:7 gpus=1 left=29m limit=1h
		job 4 gpus=8 limit=2h
		job 5 gpus=1 limit=3h after=1m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	next := *snap
	next.Index, next.Now, next.Active = snap.Index+1, start.Add(time.Second), snap.Active[1:]
	job := *snap.Pending[1]
	spec := *job.Spec
	spec.Request.GPUsPerNode, job.Spec = 8, &spec
	next.Pending = []*cluster.Job{snap.Pending[0], &job}
	d := p.Pass(&next)
	for _, v := range d.Plan.Verdicts {
		if v.Job == 4 {
			t.Errorf("job 4 is told %+v", v)
		}
	}
	if got := write(d); !strings.HasPrefix(got, "4 starts on a:0-7\n") {
		t.Errorf("job 1 ended: %s", got)
	}
}

// TestWhoAsksForMorePassesNobody: a job that was promised a start asks for more as another job
// of its owner ends: that node is for who stands before it.
func TestWhoAsksForMorePassesNobody(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=1
		run 1 on=a:0-7 gpus=8 left=5h limit=6h
		run 2 on=b:0 gpus=1 left=30m limit=1h
		job 4 gpus=8 limit=2h
		job 5 gpus=1 limit=3h after=1m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	next := *snap
	next.Index, next.Now, next.Active = snap.Index+1, start.Add(time.Second), snap.Active[1:]
	job := *snap.Pending[1]
	spec := *job.Spec
	spec.Request.GPUsPerNode, job.Spec = 8, &spec
	next.Pending = []*cluster.Job{snap.Pending[0], &job}
	d := p.Pass(&next)
	if got := write(d); !strings.HasPrefix(got, "4 starts on a:0-7\n") || d.Stats.Anew {
		t.Errorf("job 1 ended: %s", got)
	}
}
