package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// enlarged returns a snapshot in which a pending job requests 8 GPUs.
func enlarged(snap *cluster.Snapshot, i int) *cluster.Snapshot {
	job := *snap.Pending[i]
	spec := *job.Spec
	spec.Request.GPUsPerNode, job.Spec = 8, &spec
	snap.Pending[i] = &job
	return snap
}

// TestLargerRequestBreaksNoPromise has a promised job request more when all jobs are planned again,
// while another job of its owner ends: the node stays with the job that was promised it.
func TestLargerRequestBreaksNoPromise(t *testing.T) {
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
	d := p.Pass(enlarged(later(snap, time.Second, 1), 1))
	for _, v := range d.Plan.Verdicts {
		if v.Job == 4 {
			t.Errorf("the verdict of job 4 is %+v", v)
		}
	}
	if got := write(d); !strings.HasPrefix(got, "4 starts on a:0-7\n") {
		t.Errorf("job 1 ended: %s", got)
	}
}

// TestLargerRequestPassesNoJob has a promised job request more as another job of its owner ends:
// that node is for the job ahead of it.
func TestLargerRequestPassesNoJob(t *testing.T) {
	snap := draw(t, `
		node a gpus=8
		node b gpus=1
		run 1 on=a:0-7 gpus=8 left=5h limit=6h
		run 2 on=b:0 gpus=1 left=30m limit=1h
		job 4 gpus=8 limit=2h
		job 5 gpus=1 limit=3h after=1m`)
	p := NewPlanner()
	settle(snap, p.Pass(snap))
	d := p.Pass(enlarged(later(snap, time.Second, 1), 1))
	if got := write(d); !strings.HasPrefix(got, "4 starts on a:0-7\n") || d.Stats.Full {
		t.Errorf("job 1 ended: %s", got)
	}
}

// TestSmallerRequestKeepsItsTurn has all promises slip behind a job that overstays. A job that just
// got a comment, or a smaller request, slips like unchanged ones, for the same cause.
func TestSmallerRequestKeepsItsTurn(t *testing.T) {
	for what, change := range map[string]func(*cluster.JobSpec){
		"a comment":    func(s *cluster.JobSpec) { s.Comment = "mine" },
		"less time":    func(s *cluster.JobSpec) { s.TimeLimit -= time.Minute },
		"half a node":  func(s *cluster.JobSpec) { s.Request.GPUsPerNode = 4 },
		"not anything": func(*cluster.JobSpec) {},
	} {
		snap := draw(t, `
			node a gpus=8
			run 1 on=a:0-7 gpus=8 left=30m limit=1h
			job 4 gpus=8 limit=25m
			job 5 gpus=8 limit=20m after=1m`)
		p := NewPlanner()
		settle(snap, p.Pass(snap))
		next := later(snap, 31*time.Minute)
		job := *snap.Pending[0]
		spec := *job.Spec
		change(&spec)
		job.Spec, next.Pending[0] = &spec, &job
		d := p.Pass(next)
		if p.schedule.Entry(4).At >= p.schedule.Entry(5).At {
			t.Errorf("%s: %s", what, write(d))
		}
		for _, v := range d.Plan.Verdicts {
			if v.Job == 4 && v.Broken != "no controller was running to start jobs in time" {
				t.Errorf("%s: broken since %q", what, v.Broken)
			}
		}
	}
}
