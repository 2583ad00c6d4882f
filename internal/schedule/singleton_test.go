package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// isAlone checks that no job of its name runs when a singleton starts.
func (s *site) isAlone(job *cluster.Job) {
	if !eligible.IsSingleton(job.Spec) {
		return
	}
	for _, list := range [...][]*cluster.Job{s.snap.Active, s.snap.Pending} {
		for _, o := range list {
			if o.Spec.Owner.User == job.Spec.Owner.User && o.Spec.Name == job.Spec.Name && (o.State != cluster.Pending || o.ID < job.ID) {
				s.Fatalf("job %d starts while job %d is %s", job.ID, o.ID, o.State)
			}
		}
	}
}

// TestASingletonYields has a singleton with a promise wait for a job of its name that begins after
// all, and for no other.
func TestASingletonYields(t *testing.T) {
	snap := draw(t, `node n1 gpus=8
run 1 on=n1:0-3 gpus=4 left=30m limit=1h
job 5 gpus=8 name=train dep=singleton
job 6 gpus=1 limit=20m name=train
job 7 gpus=1 limit=20m name=train user=bob`)
	p := NewPlanner()
	d := p.Pass(snap)
	if want := "5 waits Resources until +29m55s (promised): needs 8 GPUs on one node\n6 starts on n1:4\n7 starts on n1:5\nwake at +29m55s"; write(d) != want {
		t.Fatalf("decides\n%s\nwant\n%s", write(d), want)
	}
	next := agreed(snap, d)
	d = p.Pass(next)
	if want := "5 waits Dependency: another job of this name is active or ahead of it"; write(d) != want || d.Plan.Verdicts[0].Broken != "another job of this name is active or ahead of it" {
		t.Fatalf("decides\n%s\nwant\n%s", write(d), want)
	}
	next = agreed(next, d)
	next.Now = next.Now.Add(31 * time.Minute)
	next.Active = nil
	if got := write(p.Pass(next)); got != "5 starts on n1:0-7" {
		t.Errorf("decides\n%s", got)
	}
}

// TestASingletonStartsAlone has two jobs of one name due in one pass: the one that is no singleton
// starts.
func TestASingletonStartsAlone(t *testing.T) {
	snap := draw(t, `node n1 gpus=8
job 5 gpus=1 name=train dep=singleton nice=5
job 6 gpus=1 name=train`)
	p := NewPlanner()
	d := p.Pass(snap)
	if want := "6 starts on n1:0\nwake at +1ns"; write(d) != want || !d.More {
		t.Fatalf("decides\n%s", write(d))
	}
	if again := p.Pass(snap); write(again) != write(d) { // it was not committed
		t.Fatalf("decides\n%s\nthen\n%s", write(d), write(again))
	}
	next := agreed(snap, d)
	if got := write(p.Pass(next)); got != "5 waits Dependency: another job of this name is active or ahead of it" {
		t.Errorf("decides\n%s", got)
	}
}

// agreed returns the snapshot after a decision was committed.
func agreed(snap *cluster.Snapshot, d Decision) *cluster.Snapshot {
	s := &site{snap: *snap}
	s.agree(d)
	return &s.snap
}
