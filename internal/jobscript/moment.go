package jobscript

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// farthest bounds the time from now to a moment: a later one is a typing error.
const farthest = 10 * 365 * 24 * time.Hour

// ParseMoment reads a point in time as sbatch --begin does: "now", "now+60",
// "now+1hour", "16:00", "4:00pm", "today", "tomorrow", "midnight", "noon",
// "teatime", "2026-11-21", "2026-11-21T16:00[:30]", "11/21/26". A time of day
// that is over today is tomorrow's. Local times are in now's location.
func ParseMoment(word string, now time.Time) (time.Time, error) {
	t, ok := parseMoment(strings.ToLower(strings.TrimSpace(word)), now)
	if !ok {
		return time.Time{}, advise(fmt.Sprintf("not a time: %q", word), "write 16:00, now+1hour, tomorrow or 2026-11-21T16:00")
	}
	if t.Sub(now) > farthest {
		return time.Time{}, advise(fmt.Sprintf("%q is more than ten years away", word), "write 16:00, now+1hour, tomorrow or 2026-11-21T16:00")
	}
	return t, nil
}

func parseMoment(word string, now time.Time) (time.Time, bool) {
	if rest, ok := strings.CutPrefix(word, "now"); ok {
		return sinceNow(rest, now)
	}
	if hour, ok := map[string]int{"midnight": 0, "noon": 12, "teatime": 16}[word]; ok {
		return next(now, hour, 0, 0), true
	}
	switch word {
	case "today":
		return now, true
	case "tomorrow":
		return day(now, 1), true
	}
	if t, ok := clock(word, now); ok {
		return t, true
	}
	for _, layout := range []string{"2006-01-02t15:04:05z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, strings.ToUpper(word)); err == nil {
			return t, true
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "01/02/06-15:04", "01/02/06"} {
		if t, err := time.ParseInLocation(layout, strings.ToUpper(word), now.Location()); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// sinceNow reads what follows "now": nothing, or + and a count with a unit.
func sinceNow(rest string, now time.Time) (time.Time, bool) {
	if rest == "" {
		return now, true
	}
	count, ok := strings.CutPrefix(rest, "+")
	if !ok {
		return time.Time{}, false
	}
	digits := strings.TrimRight(count, "abcdefghijklmnopqrstuvwxyz")
	unit := time.Second
	switch count[len(digits):] {
	case "", "s", "sec", "second", "seconds":
	case "m", "min", "minute", "minutes":
		unit = time.Minute
	case "h", "hour", "hours":
		unit = time.Hour
	case "d", "day", "days":
		unit = 24 * time.Hour
	case "w", "week", "weeks":
		unit = 7 * 24 * time.Hour
	default:
		return time.Time{}, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n > uint64(2*farthest/unit) {
		return time.Time{}, false
	}
	return now.Add(time.Duration(n) * unit), true
}

// clock reads hh:mm, hh:mm:ss, with am or pm.
func clock(word string, now time.Time) (time.Time, bool) {
	half := -1
	for i, suffix := range []string{"am", "pm"} {
		if head, ok := strings.CutSuffix(word, suffix); ok {
			word, half = strings.TrimSpace(head), i
		}
	}
	parts := strings.Split(word, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return time.Time{}, false
	}
	var hms [3]int
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 7)
		if err != nil || len(part) > 2 {
			return time.Time{}, false
		}
		hms[i] = int(n)
	}
	if half >= 0 {
		if hms[0] < 1 || hms[0] > 12 {
			return time.Time{}, false
		}
		hms[0] = hms[0]%12 + 12*half
	}
	if hms[0] > 23 || hms[1] > 59 || hms[2] > 59 {
		return time.Time{}, false
	}
	return next(now, hms[0], hms[1], hms[2]), true
}

// next is the first such time of day that is not before now.
func next(now time.Time, h, m, s int) time.Time {
	y, month, d := now.Date()
	t := time.Date(y, month, d, h, m, s, 0, now.Location())
	if t.Before(now) {
		t = time.Date(y, month, d+1, h, m, s, 0, now.Location())
	}
	return t
}

// day is the start of the day that many days after now's.
func day(now time.Time, days int) time.Time {
	y, month, d := now.Date()
	return time.Date(y, month, d+days, 0, 0, 0, 0, now.Location())
}
