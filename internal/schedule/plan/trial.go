package plan

import (
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Trial is a plan of all that comes before one job, in which other requests of the job are tried: the jobs
// ahead of it, and promises.
type Trial struct {
	*Pass
	Job *cluster.Job
}

// NewTrial plans the jobs ahead of a job, and promises: these stay where they are, or move forward as in a
// pass. Jobs behind it are held, not left out: others may depend on them.
func NewTrial(snap *cluster.Snapshot, job *cluster.Job, ahead []*cluster.Job, keepPlaces bool) *Trial {
	first := make(map[cluster.JobID]bool, len(ahead))
	for _, j := range ahead {
		first[j.ID] = true
	}
	shot := *snap
	shot.Pending = make([]*cluster.Job, 0, len(snap.Pending))
	for _, j := range snap.Pending {
		if j.ID == job.ID || !first[j.ID] && j.Promise == nil && j.Hold == cluster.NotHeld {
			behind := *j
			behind.Hold, behind.Promise = cluster.HeldByUser, nil
			j = &behind
		}
		shot.Pending = append(shot.Pending, j)
	}
	p := New().Begin(&shot)
	p.keepPlaces = keepPlaces
	return &Trial{Pass: p.run(), Job: job}
}

// Starts reports whether the job would start now with another request.
func (t *Trial) Starts(spec *cluster.JobSpec) bool {
	job := *t.Job
	job.Spec = spec
	if _, blocked := t.Check.First(&job); blocked {
		return false
	}
	if _, exceeded := t.promises.exceeded(&job); exceeded {
		return false
	}
	c := t.ClassOf(t.Job.ID, spec)
	if len(c.Options) == 0 {
		return false
	}
	_, _, ok := t.bookings.Find(c, t.Snap.Now, t.Snap.Now+1)
	return ok
}

// MaxDelayed is how many planned starts are tried to find those that a job would delay: each costs a search
// or two.
const MaxDelayed = 256

// Delayed returns when the job could start if no other job was pending, and the jobs whose planned starts
// that would delay: the fewest, from the end of the order. Only the last MaxDelayed planned starts are tried.
func (t *Trial) Delayed() (cluster.Instant, []*cluster.Job) {
	now, c := t.Snap.Now, t.ClassOf(t.Job.ID, t.Job.Spec)
	if len(c.Options) == 0 {
		return 0, nil
	}
	type booking struct {
		*Entry
		start  backfill.Start
		choice int
	}
	var planned []booking
	for _, e := range t.bookings.Due() {
		if !e.Starting && e.At > now {
			planned = append(planned, booking{e, backfill.Start{At: e.At, Kind: e.Kind, Shares: e.Shares}, e.Choice})
		}
	}
	slices.SortFunc(planned, func(a, b booking) int { return compareRanks(a.Entry, b.Entry) })
	planned = planned[max(0, len(planned)-MaxDelayed):]
	for _, x := range planned {
		t.bookings.Unbook(x.Entry)
	}
	first, _, ever := t.bookings.Find(c, now, cluster.Never)
	fits := func() bool {
		_, _, ok := t.bookings.Find(c, first.At, first.At+1)
		return ok
	}
	var others []*cluster.Job
	for _, x := range planned {
		if t.bookings.Book(x.Entry, x.start, x.choice); ever && !fits() {
			t.bookings.Unbook(x.Entry)
			others = append(others, x.Job)
			defer t.bookings.Book(x.Entry, x.start, x.choice)
		}
	}
	return first.At, others
}
