package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// farthest bounds how far from now a time may be.
const farthest = 200 * 365 * 24 * time.Hour

// ParseTime reads a point in time as sacct -S and -E do: "HH:MM[:SS][am|pm]", "MMDD[YY]",
// "MM/DD[/YY]", "MM.DD[.YY]", "YYYY-MM-DD", each date optionally with "-HH:MM[:SS]" or
// "THH:MM[:SS]" after it, "now", "today", "midnight", "noon", "elevenses", "fika", "teatime",
// "yesterday", "tomorrow", each optionally with "+" or "-" and a count of seconds, minutes, hours,
// days or weeks after it, and "uts" with seconds since 1970. A time of day is today's, and a date
// without a year the last such date that has begun. Times are local to now.
func ParseTime(word string, now time.Time) (time.Time, error) {
	t, ok := parseTime(strings.ToLower(strings.TrimSpace(word)), now)
	if t.Unix() < 0 && t.Unix() > -24*3600 { // 1970-01-01 east of Greenwich, which scripts write for "ever"
		t = time.Unix(0, 0).In(now.Location())
	}
	if d := t.Sub(now); !ok || d > farthest || d < -farthest || t.Unix() < 0 {
		return time.Time{}, &UsageError{
			Problem: fmt.Sprintf("not a time: %q", word), Advice: "write 2026-11-21T16:00, 11/21, 16:00, today, or now-2days",
		}
	}
	return t, nil
}

func parseTime(word string, now time.Time) (time.Time, bool) {
	if digits, ok := strings.CutPrefix(word, "uts"); ok {
		n, err := strconv.ParseUint(digits, 10, 33)
		return time.Unix(int64(n), 0).In(now.Location()), err == nil
	}
	if t, ok := spoken(word, now); ok {
		return t, true
	}
	if clock, ok := parseClock(word); ok {
		return clock.on(now), true
	}
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(word)); err == nil {
		return t.In(now.Location()), true
	}
	return dated(word, now)
}

// spoken reads a word for a time and the offset after it.
func spoken(word string, now time.Time) (time.Time, bool) {
	end := strings.IndexAny(word, "+-")
	if end < 0 {
		end = len(word)
	}
	hour := func(h, m int) time.Time { return clock{h, m, 0}.on(now) }
	var t time.Time
	switch word[:end] {
	case "now":
		t = now.Truncate(time.Second)
	case "today", "midnight":
		t = hour(0, 0)
	case "noon":
		t = hour(12, 0)
	case "elevenses":
		t = hour(11, 0)
	case "fika":
		t = hour(15, 0)
	case "teatime":
		t = hour(16, 0)
	case "yesterday":
		t = hour(-24, 0)
	case "tomorrow":
		t = hour(24, 0)
	default:
		return time.Time{}, false
	}
	if end == len(word) {
		return t, true
	}
	d, ok := parseSpan(word[end+1:])
	if word[end] == '-' {
		d = -d
	}
	return t.Add(d), ok
}

// parseSpan reads a count with a unit: any prefix of seconds, minutes, hours, days or weeks.
func parseSpan(word string) (time.Duration, bool) {
	digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, false
	}
	name, unit := word[len(digits):], time.Second
	if name != "" {
		known := false
		for long, each := range map[string]time.Duration{
			"seconds": time.Second, "minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
		} {
			if strings.HasPrefix(long, name) {
				known, unit = true, each
			}
		}
		if !known && name != "secs" && name != "mins" {
			return 0, false
		}
		if name == "mins" {
			unit = time.Minute
		}
	}
	if n > uint64(farthest/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// clock is a time of day.
type clock struct{ hour, minute, second int }

func (c clock) on(day time.Time) time.Time {
	y, m, d := day.Date()
	return time.Date(y, m, d, c.hour, c.minute, c.second, 0, day.Location())
}

// parseClock reads HH:MM[:SS][am|pm].
func parseClock(word string) (clock, bool) {
	half := -1
	for i, suffix := range []string{"am", "pm"} {
		if head, ok := strings.CutSuffix(word, suffix); ok {
			word, half = strings.TrimSpace(head), i
		}
	}
	parts := strings.Split(word, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return clock{}, false
	}
	var n [3]int
	for i, part := range parts {
		v, ok := digits(part)
		if !ok {
			return clock{}, false
		}
		n[i] = v
	}
	if half >= 0 {
		if n[0] < 1 || n[0] > 12 {
			return clock{}, false
		}
		n[0] = n[0]%12 + 12*half
	}
	return clock{n[0], n[1], n[2]}, n[0] <= 23 && n[1] <= 59 && n[2] <= 59
}

// digits reads one or two digits.
func digits(word string) (int, bool) {
	n, err := strconv.ParseUint(word, 10, 7)
	return int(n), err == nil && len(word) <= 2
}

// dated reads a date, and the time of day after it if there is one.
func dated(word string, now time.Time) (time.Time, bool) {
	date, rest, both := word, "", false
	if strings.Count(word, "-") >= 2 { // YYYY-MM-DD, whose dashes are its own
		if len(word) > len("2006-01-02") {
			date, rest, both = word[:10], word[11:], strings.ContainsRune("t- ", rune(word[10]))
			if !both {
				return time.Time{}, false
			}
		}
	} else if i := strings.IndexAny(word, "t-"); i >= 0 {
		date, rest, both = word[:i], word[i+1:], true
	}
	day, ok := parseDate(date, now)
	if !ok || !both {
		return day, ok
	}
	c, ok := parseClock(rest)
	return c.on(day), ok
}

// parseDate reads YYYY-MM-DD, MMDD[YY], MM/DD[/YY] and MM.DD[.YY].
func parseDate(word string, now time.Time) (time.Time, bool) {
	if t, err := time.ParseInLocation("2006-01-02", word, now.Location()); err == nil {
		return t, true
	}
	for _, layout := range []string{"01/02/06", "1/2/06", "01/02/2006", "01.02.06", "1.2.06", "010206"} {
		if t, err := time.ParseInLocation(layout, word, now.Location()); err == nil {
			return t, true
		}
	}
	for _, layout := range []string{"1/2", "1.2", "0102"} {
		// The year decides whether 29 February exists.
		for year := now.Year(); year > now.Year()-8; year-- {
			t, err := time.ParseInLocation("2006 "+layout, fmt.Sprintf("%04d %s", year, word), now.Location())
			if err == nil && !t.After(now) {
				return t, true
			}
		}
	}
	return time.Time{}, false
}
