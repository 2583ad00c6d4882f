package schedule

import (
	"strings"
	"testing"
	"time"
)

// TestAJobThatIsBackBetweenTwoPasses: a start was decided and agreed, and the job waits to be
// started another time before the next pass sees it run. What it was planned on is for others
// in that pass.
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
