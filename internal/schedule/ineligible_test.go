package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// condition gives some jobs of a site what keeps them back: an instant, another job, an
// array of which few may run, a deadline.
func (s *site) condition(job *cluster.Job) {
	spec := job.Spec
	switch s.r.IntN(8) {
	case 0:
		spec.Begin = s.snap.Now.Add(time.Duration(s.r.Int64N(int64(2 * time.Hour))))
	case 1:
		job.Eligible = s.snap.Now.Add(time.Duration(s.r.Int64N(int64(time.Hour))))
	case 2:
		kinds := []cluster.DependencyKind{cluster.After, cluster.AfterAny, cluster.AfterOK, cluster.AfterNotOK, cluster.Singleton, cluster.Singleton, cluster.Singleton, cluster.Singleton}
		d := cluster.Dependency{Kind: kinds[s.r.IntN(len(kinds))], Job: cluster.JobRef{ID: 1 + cluster.JobID(s.r.IntN(int(s.next))), Index: cluster.NoIndex}}
		if d.Kind == cluster.Singleton {
			d.Job, spec.Name = cluster.JobRef{}, "alone"
		}
		if d.Kind == cluster.After && s.r.IntN(2) == 0 {
			d.Delay = time.Duration(s.r.IntN(60)) * time.Minute
		}
		spec.Depends = []cluster.Dependency{d}
	case 3, 4:
		job.Array, job.Index, spec.ArrayLimit = 10_000+cluster.JobID(s.r.IntN(2)), int32(s.next), 2
	}
	if s.r.IntN(3) == 0 {
		spec.Name = "alone" // as singletons are called
	}
	if s.r.IntN(10) == 0 {
		spec.Deadline = s.snap.Now.Add(spec.TimeLimit + time.Duration(s.r.Int64N(int64(3*time.Hour))))
	}
}

// TestNumbersOfALine: a thousand jobs are told another reason at once, and other numbers
// once in about fifty seconds.
func TestNumbersOfALine(t *testing.T) {
	b, p := newBarred(), NewPlanner()
	spec := &cluster.JobSpec{Account: "ml"}
	says := func(reason cluster.Reason, detail string) verdict { return verdict{reason, detail} }
	for id := range cluster.JobID(1000) {
		b.add(nil, &entry{job: &cluster.Job{ID: id, Spec: spec}}, says(cluster.ReasonResources, "1 of 8"))
	}
	if len(b.lines) != 1 {
		t.Fatalf("%d lines of jobs that ask for the same", len(b.lines))
	}
	for _, step := range []struct {
		at   time.Duration
		says verdict
		told int
	}{
		{time.Minute, says(cluster.ReasonResources, "2 of 8"), 1000},
		{time.Minute + 49*time.Second, says(cluster.ReasonResources, "3 of 8"), 0},
		{time.Minute + 50*time.Second, says(cluster.ReasonResources, "4 of 8"), 1000},
		{time.Minute + 51*time.Second, says(cluster.ReasonResources, "4 of 8"), 0},
		{time.Minute + 52*time.Second, says(cluster.ReasonPriority, "other"), 1000},
	} {
		r := p.newRound(&cluster.Snapshot{Now: start.Add(step.at), Policy: &cluster.Policy{}})
		for _, c := range b.lines {
			c.hear(r, step.says)
		}
		if len(r.told) != step.told {
			t.Errorf("after %s %d were told %+v, want %d", step.at, len(r.told), step.says, step.told)
		}
	}
}

// stillBarred checks that what keeps jobs back still does, for the reason they were told.
func (s *site) stillBarred() {
	snap := s.snap
	r := s.p.newRound(&snap)
	for _, job := range snap.Pending {
		e := s.p.entries[job.ID]
		if e == nil || e.kept == nil || e.class != nil && e.class.never.reason != cluster.ReasonNone {
			continue
		}
		v, barred := s.p.bar(r, job)
		if !barred && e.class != nil {
			v, barred = s.p.promisedAway(r, job)
		}
		if !barred || v.reason != e.why.reason {
			s.Fatalf("job %d was told %+v; it is %+v, and it is %v that it keeps it back", job.ID, e.why, v, barred)
		}
	}
	running := map[cluster.JobID]int32{}
	for _, job := range snap.Active {
		if running[job.Array]++; job.Array != 0 && running[job.Array] > job.Spec.ArrayLimit {
			s.Fatalf("%d elements of array %d run; %d may", running[job.Array], job.Array, job.Spec.ArrayLimit)
		}
	}
}

// TestBarredTwice: who is barred once more, for the same or another reason, is noted once.
func TestBarredTwice(t *testing.T) {
	b := newBarred()
	e := &entry{job: &cluster.Job{ID: 1, Spec: &cluster.JobSpec{Account: "ml"}}}
	for _, reason := range []cluster.Reason{cluster.ReasonResources, cluster.ReasonBeginTime, cluster.ReasonResources, cluster.ReasonResources} {
		b.add(nil, e, verdict{reason: reason})
	}
	if b.count != 1 || len(b.lines) != 1 || b.later.Len() != 0 {
		t.Errorf("%d barred, %d lines, %d alarms", b.count, len(b.lines), b.later.Len())
	}
	if list := b.dueForRecheck(start, nil); list.Len() != 1 || list.Items()[0] != e {
		t.Errorf("looks again at %v", list.Items())
	}
	b.remove(e)
	if list := b.dueForRecheck(start, nil); b.count != 0 || len(b.lines) != 0 || list.Len() != 0 {
		t.Errorf("%d barred, %d lines after it left", b.count, len(b.lines))
	}
}

// TestBarredWhileOffered: what one was offered before a limit took its place is not for it.
func TestBarredWhileOffered(t *testing.T) {
	snap := crowd(t, 1, 1, false)
	p := NewPlanner()
	p.Pass(snap)
	e, r := p.entries[snap.Pending[0].ID], p.newRound(snap)
	if e.at == 0 {
		t.Fatal("it has no place to lose")
	}
	p.moveCandidate(e)
	p.withhold(r, e, verdict{reason: cluster.ReasonArrayTaskLimit})
	s := &incrementalPass{Planner: p, r: r}
	if s.run(); e.at != 0 || p.due.Len() != 0 || e.kept == nil {
		t.Errorf("planned at %v, kept back %v", e.at, e.kept != nil)
	}
}

// TestNewLimitOfAnArray: as many elements have places as the array's limit says, also
// when that changes while all wait.
func TestNewLimitOfAnArray(t *testing.T) {
	snap := crowd(t, 1, 10, false)
	p := NewPlanner()
	for _, limit := range []int32{10, 2, 7} {
		spec := *snap.Pending[0].Spec
		spec.ArrayLimit = limit
		next := *snap
		next.Index, next.Pending = snap.Index+1, nil
		for i, old := range snap.Pending {
			job := *old
			job.Array, job.Index, job.Spec = snap.Pending[0].ID, int32(i), &spec
			next.Pending = append(next.Pending, &job)
		}
		snap = &next
		if p.Pass(snap); p.due.Len() != int(limit) {
			t.Errorf("%d elements are planned; %d may run at once", p.due.Len(), limit)
		}
	}
}
