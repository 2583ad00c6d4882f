package trace

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Seconds writes a time in seconds: an integer if it is whole.
func Seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10)
	}
	return strings.TrimRight(strconv.FormatFloat(d.Seconds(), 'f', 9, 64), "0")
}

// seconds reads a time: an integer or a decimal fraction of seconds.
func seconds(word string) (time.Duration, bool) {
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		if n < -maxSeconds || n > maxSeconds {
			return 0, false
		}
		return time.Duration(n) * time.Second, true
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || !(math.Abs(f) <= maxSeconds) {
		return 0, false
	}
	return time.Duration(math.Round(f * float64(time.Second))), true
}

// count reads a size; some tools write whole numbers with a fraction.
func count(word string) (int32, bool) {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || f != math.Trunc(f) || !(math.Abs(f) <= maxSize) {
		return 0, false
	}
	return int32(f), true
}

// instant reads a time of submission: seconds, or a date in UTC, which counts from the Unix epoch.
func instant(word string) (time.Duration, bool) {
	if d, ok := seconds(word); ok {
		return d, true
	}
	for _, layout := range [...]string{time.DateTime, "2006-01-02T15:04:05", time.RFC3339, "2006-01-02 15:04:05 MST"} {
		if t, err := time.Parse(layout, word); err == nil {
			if s := t.Unix(); s >= 0 && s <= maxSeconds {
				return time.Duration(s)*time.Second + time.Duration(t.Nanosecond()), true
			}
			return 0, false
		}
	}
	return 0, false
}
