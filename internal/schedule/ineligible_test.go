package schedule

import (
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// condition gives some jobs of a site an obstacle: an instant, another job, a limit of their array,
// a deadline.
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
		spec.Name = "alone" // the name of singletons
	}
	if s.r.IntN(10) == 0 {
		spec.Deadline = s.snap.Now.Add(spec.TimeLimit + time.Duration(s.r.Int64N(int64(3*time.Hour))))
	}
}

// stillBlocked checks that the obstacles of ineligible jobs still exist, with the same reason.
func (s *site) stillBlocked() {
	snap, schedule := s.snap, s.p.schedule
	elements := eligible.NewElements()
	for _, e := range schedule.Entries() {
		if e.Eligible() {
			elements.Add(e.Job)
		}
	}
	c := eligible.NewChecker(&snap, eligible.NewJobList(&snap, &eligible.JobList{}), eligible.RulesOf(snap.Policy, nil), elements)
	for _, job := range snap.Pending {
		e := schedule.Entry(job.ID)
		if e == nil || e.Eligible() || e.Class != nil && len(e.Class.Options) == 0 {
			continue
		}
		o, blocked := c.First(job)
		if !blocked && e.Class != nil {
			o, blocked = schedule.PromisedToOthers(job)
		}
		if !blocked || o.Reason != e.Obstacle.Reason {
			s.Fatalf("job %d has the obstacle %+v; it is %+v now (%v)", job.ID, e.Obstacle, o, blocked)
		}
	}
	running := map[cluster.JobID]int32{}
	for _, job := range snap.Active {
		if running[job.Array]++; job.Array != 0 && running[job.Array] > job.Spec.ArrayLimit {
			s.Fatalf("%d elements of array %d run; %d may", running[job.Array], job.Array, job.Spec.ArrayLimit)
		}
	}
}

// TestNewLimitOfAnArray checks that as many elements have a planned start as the array's limit
// allows, also when it changes while all are pending.
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
		if p.Pass(snap); len(p.schedule.Bookings().Due()) != int(limit) {
			t.Errorf("%d elements are planned; %d may run at once", len(p.schedule.Bookings().Due()), limit)
		}
	}
}
