package reports

import (
	"slices"

	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// adding adds up the usage of jobs in the periods of a question.
type adding struct {
	*query
	grid tally.Grid // slots, split where periods begin and end
	rows map[usagePlace]*tally.Tally
	none tally.Tally // usage outside of all periods
}

func (a *adding) of(period int, k tally.Key) *tally.Tally {
	at := usagePlace{period, k}
	t := a.rows[at]
	if t == nil {
		t = &tally.Tally{}
		a.rows[at] = t
	}
	return t
}

func (a *adding) into(cell cluster.Instant, k tally.Key) *tally.Tally {
	if i, inside := a.period(cell); inside {
		return a.of(i, k)
	}
	return &a.none
}

// usage adds up the usage of jobs: by the archive's sums for half hours within one period, by its
// records for the others, and by the state for what the archive does not hold. It reads the archive
// first: a job that ends before the view is taken is still in the view's tail.
func (q *query) usage() (map[usagePlace]*tally.Tally, archive.Rolled, error) {
	a := &adding{query: q, grid: tally.Cut(q.bounds), rows: make(map[usagePlace]*tally.Tally)}
	points, shared := slotsOf(q.bounds)
	rolled, err := q.service.Archive.Tallies(points, func(i int, k tally.Key, t *tally.Tally) {
		if !shared[points[i]] {
			a.into(points[i], k).Add(t)
		}
	})
	if err != nil {
		return nil, rolled, err
	}
	for _, slot := range points {
		if shared[slot] {
			if err := a.records(slot, rolled.Seq); err != nil {
				return nil, rolled, err
			}
		}
	}
	q.view = q.service.Views.View()
	next := rolled.Seq
	for f := range q.view.Tail(rolled.Seq) {
		if next++; f.Seq == next {
			tally.Job(f.Job, 0, a.grid, a.into)
		}
	}
	rolled.Missing = rolled.Missing || next < q.view.FinishedSeq()
	now := min(q.now(), q.end())
	for j := range q.view.Jobs(0) {
		if j.Started > 0 || len(j.Attempts) > 0 {
			tally.Job(j, now, a.grid, a.into)
		}
	}
	return a.rows, rolled, nil
}

// slotsOf returns the beginnings and ends, ascending, of the slots that hold bounds, and which of
// these slots a bound divides.
func slotsOf(bounds []cluster.Instant) (points []cluster.Instant, shared map[cluster.Instant]bool) {
	shared = make(map[cluster.Instant]bool)
	for _, b := range bounds {
		begin, end := tally.Slots(b)
		if points = append(points, begin); b != begin {
			points, shared[begin] = append(points, end), true
		}
	}
	slices.Sort(points)
	return slices.Compact(points), shared
}

// records adds the usage of jobs in one slot by their records, up to a number. O(jobs in the slot),
// in pages.
func (a *adding) records(slot cluster.Instant, through uint64) error {
	if through == 0 {
		return nil
	}
	into := func(cell cluster.Instant, k tally.Key) *tally.Tally {
		if tally.SlotOf(cell) == slot {
			return a.into(cell, k)
		}
		return &a.none
	}
	question := archive.Question{Since: slot, Until: slot + cluster.Instant(tally.Slot), Through: through, Limit: reportPage}
	for more := true; more; {
		var list []archive.Record
		var err error
		if list, question.After, more, err = a.service.Archive.Answer(question); err != nil {
			return err
		}
		for i := range list {
			if j, err := command.DecodeJob(list[i].Data); err == nil { // the head reports those that cannot be read
				tally.Job(j, 0, a.grid, into)
			}
		}
	}
	return nil
}
