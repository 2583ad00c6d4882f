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
	about("10 by limits", Expected(snap, 10, none), 3*time.Hour)
	about("11 by limits", Expected(snap, 11, none), 5*time.Hour)
	about("10", Expected(snap, 10, some), 30*time.Minute)
	about("11", Expected(snap, 11, some), 40*time.Minute)
	about("after a run that is longer than usual", Expected(snap, 10, usual(map[string]time.Duration{"train": 30 * time.Minute})), 3*time.Hour)
	about("longer than its limit", Expected(snap, 10, usual(map[string]time.Duration{"train": 9 * time.Hour})), 3*time.Hour)
	all := Expectations(snap, 2000, some)
	about("10 of all", all[10], 30*time.Minute)
	about("11 of all", all[11], 40*time.Minute)
	if first := Expectations(snap, 1, some); len(all) != 2 || len(first) != 1 || first[10] != all[10] {
		t.Errorf("of all: %v, of the first: %v", all, first)
	}
	for _, id := range []cluster.JobID{1, 12, 99} {
		if at := Expected(snap, id, some); at != 0 {
			t.Errorf("job %d is expected at %d", id, at)
		}
	}
	snap.Pending[0].Planned = start.Add(time.Hour)
	about("not after the planned start", Expected(snap, 10, none), time.Hour)
	about("nor of all", Expectations(snap, 2000, none)[10], time.Hour)
	snap.Pending[0].Planned = 0
	if v := Decide(snap).Plan.Verdicts; len(v) < 2 || v[0].Planned.Sub(start) < 2*time.Hour {
		t.Errorf("the plan rests on a guess: %+v", v)
	}
}
