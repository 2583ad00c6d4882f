package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/explain"
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
		return explain.Expectations(snap, 2000, lasts)[id]
	}
	for _, id := range []cluster.JobID{10, 11} {
		if of(none, id) != cluster.Never {
			t.Errorf("%d by limits: %d", id, of(none, id))
		}
	}
	about("10", of(some, 10), 30*time.Minute)
	about("11", of(some, 11), 40*time.Minute)
	for what, lasts := range map[string]time.Duration{"a run that is longer than usual": 30 * time.Minute, "longer than its limit": 9 * time.Hour} {
		if got := of(usual(map[string]time.Duration{"train": lasts}), 10); got != cluster.Never {
			t.Errorf("after %s: %s from the start", what, got.Sub(start))
		}
	}
	all := explain.Expectations(snap, 2000, some)
	if first := explain.Expectations(snap, 1, some); len(all) != 2 || len(first) != 1 || first[10] != all[10] {
		t.Errorf("of all: %v, of the first: %v", all, first)
	}
	if v := Decide(snap).Plan.Verdicts; len(v) < 2 || v[0].Planned.Sub(start) < 2*time.Hour {
		t.Errorf("the plan rests on a guess: %+v", v)
	}
}

// TestExpectedAt checks that an expected start is never past, and never later than the planned one.
func TestExpectedAt(t *testing.T) {
	minutes := func(n int) cluster.Instant { return start.Add(time.Duration(n) * time.Minute) }
	for _, c := range []struct {
		what                      string
		guess, planned, now, want cluster.Instant
	}{
		{"sooner than planned", minutes(20), minutes(30), minutes(10), minutes(20)},
		{"a guess that is over", minutes(5), minutes(30), minutes(10), minutes(10)},
		{"within a second", minutes(10), minutes(30), minutes(10) + 1, minutes(10).Add(time.Second)},
		{"as planned", cluster.Never, minutes(30), minutes(10), minutes(30)},
		{"later than planned", minutes(40), minutes(30), minutes(10), minutes(30)},
		{"planned is due", minutes(20), minutes(10), minutes(10), 0},
		{"nothing is planned", minutes(20), 0, minutes(10), 0},
		{"nothing is known", 0, minutes(30), minutes(10), 0},
	} {
		job := &cluster.Job{State: cluster.Pending, Planned: c.planned}
		if got := explain.ExpectedAt(c.guess, job, c.now); got != c.want {
			t.Errorf("%s: %s from the start, want %s", c.what, got.Sub(start), c.want.Sub(start))
		}
	}
	if got := explain.ExpectedAt(minutes(20), &cluster.Job{State: cluster.Running, Planned: minutes(30)}, start); got != 0 {
		t.Errorf("of a job that runs: %d", got)
	}
}

// TestExpectedKeepsPromises checks that a job behind a promise is expected at its planned start,
// not where it would be without the promise.
func TestExpectedKeepsPromises(t *testing.T) {
	snap := draw(t, `node a1 gpus=8 cpus=16 mem=64G
run 1 on=a1:0-7 gpus=8 name=train left=3h limit=4h
job 10 gpus=8 limit=1h
job 11 gpus=8 limit=9h
job 12 gpus=8 limit=1h hold=user name=known
rules . horizon=24h`)
	snap = agreed(snap, Decide(snap))
	for i, j := range snap.Pending {
		if j.ID == 11 { // which has the highest priority from now on, and is too long to start first
			other, spec := *j, *j.Spec
			spec.Nice, other.Spec, other.Promise, other.Planned = -1000, &spec, nil, 0
			snap.Pending[i] = &other
		}
	}
	snap = agreed(snap, Decide(snap))
	for _, name := range []string{"", "known"} { // the reservation is unknown, or the job has none
		usual := func(s *cluster.JobSpec) (time.Duration, bool) { return time.Minute, s.Name == name && name != "" }
		all := explain.Expectations(snap, 2000, usual)
		for _, j := range snap.Pending[:2] {
			if got := explain.ExpectedAt(all[j.ID], j, snap.Now); got != j.Planned || j.Planned <= snap.Now {
				t.Errorf("%d is planned in %s and expected in %s", j.ID, j.Planned.Sub(snap.Now), got.Sub(snap.Now))
			}
		}
	}
	all := explain.Expectations(snap, 2000, func(s *cluster.JobSpec) (time.Duration, bool) { return 2 * time.Hour, s.Name == "train" })
	if first, second := all[10], all[11]; first >= second || second >= snap.Pending[1].Planned {
		t.Errorf("10 is expected in %s, 11 in %s", first.Sub(snap.Now), second.Sub(snap.Now))
	}
}

// FuzzExpected checks, in a random history without known run times, that each job is expected at
// its planned start.
func FuzzExpected(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := newSite(t, seed)
		for range 10 {
			s.submit()
		}
		for range 40 {
			s.pass()
			all := explain.Expectations(&s.snap, 2000, func(*cluster.JobSpec) (time.Duration, bool) { return 0, false })
			for _, j := range s.snap.Pending {
				if got := explain.ExpectedAt(all[j.ID], j, s.snap.Now); j.Planned > s.snap.Now && got != j.Planned {
					t.Fatalf("job %d is planned in %s and expected in %s", j.ID, j.Planned.Sub(s.snap.Now), got.Sub(s.snap.Now))
				}
			}
			s.step()
		}
	})
}
