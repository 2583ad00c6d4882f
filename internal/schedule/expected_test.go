package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestExpected(t *testing.T) {
	snap := draw(t, `node a1 gpus=8 cpus=16 mem=64G
run 1 on=a1:0-7 gpus=8 name=train left=3h limit=4h
job 10 gpus=8 limit=2h name=eval
job 11 gpus=8 limit=1h
job 12 gpus=8 limit=1h hold=user`)
	usual := func(lasts map[string]time.Duration) func(*cluster.JobSpec) (time.Duration, bool) {
		return func(s *cluster.JobSpec) (time.Duration, bool) { d, ok := lasts[s.Name]; return d, ok }
	}
	about := func(what string, got cluster.Instant, want time.Duration) {
		t.Helper()
		if d := got.Sub(start) - want; d < -time.Minute || d > 2*time.Minute {
			t.Errorf("%s: in %s, want %s", what, got.Sub(start), want)
		}
	}
	none, some := usual(nil), usual(map[string]time.Duration{"train": 90 * time.Minute, "eval": 10 * time.Minute})
	of := func(lasts func(*cluster.JobSpec) (time.Duration, bool), id cluster.JobID) cluster.Instant {
		return Expectations(snap, 2000, lasts)[id]
	}
	about("10 by limits", of(none, 10), 3*time.Hour)
	about("11 by limits", of(none, 11), 5*time.Hour)
	about("10", of(some, 10), 30*time.Minute)
	about("11", of(some, 11), 40*time.Minute)
	about("after a run that is longer than usual", of(usual(map[string]time.Duration{"train": 30 * time.Minute}), 10), 3*time.Hour)
	about("longer than its limit", of(usual(map[string]time.Duration{"train": 9 * time.Hour}), 10), 3*time.Hour)
	all := Expectations(snap, 2000, some)
	if first := Expectations(snap, 1, some); len(all) != 2 || len(first) != 1 || first[10] != all[10] {
		t.Errorf("of all: %v, of the first: %v", all, first)
	}
	if v := Decide(snap).Plan.Verdicts; len(v) < 2 || v[0].Planned.Sub(start) < 2*time.Hour {
		t.Errorf("the plan rests on a guess: %+v", v)
	}
}

// TestExpectedAt: what is told is never past, and never later than what is planned.
func TestExpectedAt(t *testing.T) {
	minutes := func(n int) cluster.Instant { return start.Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct {
		what                      string
		guess, planned, now, want cluster.Instant
	}{
		{"sooner than planned", minutes(20), minutes(30), minutes(10), minutes(20)},
		{"a guess that is over", minutes(5), minutes(30), minutes(10), minutes(10)},
		{"within a second", minutes(10), minutes(30), minutes(10) + 1, minutes(10).Add(time.Second)},
		{"later than planned", minutes(40), minutes(30), minutes(10), minutes(30)},
		{"planned is due", minutes(20), minutes(10), minutes(10), 0},
		{"nothing is planned", minutes(20), 0, minutes(10), 0},
		{"nothing is known", 0, minutes(30), minutes(10), 0},
	} {
		job := &cluster.Job{State: cluster.Pending, Planned: c.planned}
		if got := ExpectedAt(c.guess, job, c.now); got != c.want {
			t.Errorf("%s: %s from the start, want %s", c.what, got.Sub(start), c.want.Sub(start))
		}
	}
	if got := ExpectedAt(minutes(20), &cluster.Job{State: cluster.Running, Planned: minutes(30)}, start); got != 0 {
		t.Errorf("of a job that runs: %d", got)
	}
}
