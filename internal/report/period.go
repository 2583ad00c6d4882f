package report

import (
	"fmt"
	"time"
)

// Period is a half-open interval with a name that is valid in file names.
type Period struct {
	Name     string
	Kind     string // day week month, or "" for any other
	From, To time.Time
}

// String returns the period with its time zone for display.
func (p Period) String() string {
	name := p.Name
	if p.Kind == "" {
		const minute = "2006-01-02T15:04"
		name = p.From.Format(minute) + " to " + p.To.Format(minute)
	}
	return name + " (" + p.From.Location().String() + ")"
}

// Kinds lists the kinds of periods that have names.
func Kinds() []string { return []string{"day", "week", "month"} }

// start returns the beginning of the period of a kind that contains t. Weeks begin on Monday.
func start(kind string, t time.Time) (time.Time, error) {
	y, m, d := t.Date()
	switch kind {
	case "day":
	case "week":
		d -= (int(t.Weekday()) + 6) % 7
	case "month":
		d = 1
	default:
		return t, fmt.Errorf("unknown period %q, want day, week or month", kind)
	}
	return time.Date(y, m, d, 0, 0, 0, 0, t.Location()), nil
}

// next returns the beginning of the period after the one that begins at t.
func next(kind string, t time.Time) time.Time {
	switch kind {
	case "week":
		return t.AddDate(0, 0, 7)
	case "month":
		return t.AddDate(0, 1, 0)
	}
	return t.AddDate(0, 0, 1)
}

// PeriodOf returns the period of a kind that contains t, in the time zone of t.
func PeriodOf(kind string, t time.Time) (Period, error) {
	from, err := start(kind, t)
	if err != nil {
		return Period{}, err
	}
	p := Period{Kind: kind, From: from, To: next(kind, from)}
	switch kind {
	case "day":
		p.Name = from.Format(time.DateOnly)
	case "week":
		year, week := from.ISOWeek()
		p.Name = fmt.Sprintf("%d-W%02d", year, week)
	case "month":
		p.Name = from.Format("2006-01")
	}
	return p, nil
}

// Last returns the last complete period of a kind before t, in the time zone of t.
func Last(kind string, t time.Time) (Period, error) {
	from, err := start(kind, t)
	if err != nil {
		return Period{}, err
	}
	return PeriodOf(kind, from.Add(-time.Nanosecond))
}

// Before returns the previous period of the same kind.
func (p Period) Before() (Period, error) { return PeriodOf(p.Kind, p.From.Add(-time.Nanosecond)) }

// Between returns the period from one instant to another.
func Between(from, to time.Time) (Period, error) {
	if !from.Before(to) {
		return Period{}, fmt.Errorf("the period ends at %s, before it begins", to.Format(time.RFC3339))
	}
	const name = "20060102T150405Z0700"
	return Period{Name: from.Format(name) + "-" + to.Format(name), From: from, To: to}, nil
}

// Days returns the bounds of the days in the period; the first and the last day may be partial.
func (p Period) Days() []time.Time {
	bounds := []time.Time{p.From}
	y, m, d := p.From.Date()
	for n := 1; ; n++ {
		day := time.Date(y, m, d+n, 0, 0, 0, 0, p.From.Location())
		if !day.Before(p.To) {
			return append(bounds, p.To)
		}
		bounds = append(bounds, day)
	}
}

// DaysBefore returns the bounds of the given number of days that end with the period: their
// beginnings and the end of the period.
func (p Period) DaysBefore(days int) []time.Time {
	y, m, d := p.To.Add(-time.Nanosecond).Date()
	bounds := make([]time.Time, 0, days+1)
	for i := days - 1; i >= 0; i-- {
		bounds = append(bounds, time.Date(y, m, d-i, 0, 0, 0, 0, p.To.Location()))
	}
	return append(bounds, p.To)
}
