package schedule

import (
	"strings"
	"testing"
	"time"
)

// TestAJobThatIsBackBetweenTwoPasses requeues a job after its start was committed and before the
// next pass sees it run. Its planned place is free in that pass.
func TestAJobThatIsBackBetweenTwoPasses(t *testing.T) {
	snap := draw(t, `
		node n1 gpus=1
		job 1 gpus=1 limit=1h
		job 2 gpus=1 limit=10m after=1m`)
	p := NewPlanner()
	d := p.Pass(snap)
	if got := write(d); !strings.HasPrefix(got, "1 starts on n1:0\n") {
		t.Fatal(got)
	}
	settle(snap, d)
	snap = later(snap, time.Second)
	job := *snap.Pending[0]
	job.Attempt, job.Eligible = 1, snap.Now.Add(5*time.Second)
	snap.Pending[0] = &job
	if got := write(p.Pass(snap)); !strings.Contains(got, "2 starts on n1:0") {
		t.Errorf("job 1 is back:\n%s", got)
	}
}

// TestALicenceThatIsNotReleased has a job keep a licence beyond its limit while the next job has
// another node. The next job does not start while the licence is taken, and its promise slips with
// that cause.
func TestALicenceThatIsNotReleased(t *testing.T) {
	snap := draw(t, `
		node n1 gpus=1
		node n2 gpus=1
		licence m count=1
		run 1 on=n1:0 gpus=1 licence=m:1 left=10m limit=1h
		job 2 gpus=1 only=n2 licence=m:1`)
	p := NewPlanner()
	keepPromised(snap, p.Pass(snap))
	for _, seconds := range []int{595, 600, 606, 659, 661} {
		next := later(snap, time.Duration(seconds)*time.Second)
		d := p.Pass(next)
		if len(d.Plan.Starts) > 0 {
			t.Fatalf("after %d s:\n%s", seconds, write(d))
		}
		broken := ""
		for _, v := range d.Plan.Verdicts {
			broken += v.Broken
		}
		if late := seconds == 606 || seconds == 661; late != (broken == "job 1 has not left its nodes in time") || !late && broken != "" {
			t.Errorf("after %d s: broken for %q", seconds, broken)
		}
		keepPromised(next, d)
		snap = later(next, -next.Now.Sub(start))
	}
	next := later(snap, 670*time.Second, 1)
	if got := write(p.Pass(next)); got != "2 starts on n2:0" {
		t.Errorf("the licence is free:\n%s", got)
	}
}

// TestPromiseOfAnEarlierAttempt has a job start before its promise, lose its node and wait again, all between two passes: that
// breaks no promise.
func TestPromiseOfAnEarlierAttempt(t *testing.T) {
	snap := draw(t, `
		node n1 gpus=1
		run 1 on=n1:0 gpus=1 left=30m limit=1h
		job 2 gpus=1 limit=10m`)
	p := NewPlanner()
	d := p.Pass(snap)
	if len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Promise == nil {
		t.Fatalf("no promise: %s", write(d))
	}
	next := later(draw(t, `
		node n1 gpus=1
		run 3 on=n1:0 gpus=1 left=3h limit=3h
		job 2 gpus=1 limit=10m`), 40*time.Minute)
	job := *next.Pending[0]
	job.Attempt = 1
	next.Pending[0] = &job
	if d = p.Pass(next); len(d.Plan.Verdicts) != 1 || d.Plan.Verdicts[0].Broken != "" {
		t.Errorf("broken: %+v", d.Plan.Verdicts)
	}
}
