package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadTime is returned for a word that is not a time limit.
var ErrBadTime = errors.New("not a time")

// ErrLongTime is returned for a time limit above the maximum.
var ErrLongTime = errors.New("longer than the maximum")

// maxLimit keeps every time limit far from overflow: 100 years.
const maxLimit = 100 * 365 * 24 * time.Hour

// ParseLimit reads a time limit as sbatch does: "minutes", "minutes:seconds",
// "hours:minutes:seconds", "days-hours", "days-hours:minutes" and
// "days-hours:minutes:seconds". "UNLIMITED", "INFINITE" and a time of zero are 0,
// no limit.
func ParseLimit(word string) (time.Duration, error) {
	if equalFold(word, "UNLIMITED") || equalFold(word, "INFINITE") {
		return 0, nil
	}
	days, clock, dashed := strings.Cut(word, "-")
	if !dashed {
		days, clock = "0", word
	}
	parts := strings.Split(clock, ":")
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	switch {
	case len(parts) > 3:
		return 0, badTime(word)
	case !dashed && len(parts) < 3:
		units = units[1:]
	}
	total, err := scaled(days, 24*time.Hour)
	for i, part := range parts {
		var d time.Duration
		if err == nil {
			d, err = scaled(part, units[i])
		}
		if total += d; err == nil && total > maxLimit { // before the sum can overflow
			err = ErrLongTime
		}
	}
	switch {
	case errors.Is(err, ErrLongTime):
		return 0, fmt.Errorf("%w: %q (want at most %d days, or UNLIMITED)", ErrLongTime, word, maxLimit/(24*time.Hour))
	case err != nil:
		return 0, badTime(word)
	}
	return total, nil
}

func badTime(word string) error {
	return fmt.Errorf("%w: %q (want minutes, h:m:s, d-h:m:s or UNLIMITED, such as 90, 1:30:00 or 2-12:00:00)", ErrBadTime, word)
}

func scaled(digits string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, ErrBadTime
	}
	if n > uint64(maxLimit/unit) {
		return 0, ErrLongTime
	}
	return time.Duration(n) * unit, nil
}

// FormatLimit writes a duration as squeue does: "[days-]hh:mm:ss"; 0 is "UNLIMITED".
func FormatLimit(d time.Duration) string {
	if d == 0 {
		return "UNLIMITED"
	}
	return FormatElapsed(d)
}

// FormatElapsed writes a duration as squeue writes elapsed time: "m:ss",
// "h:mm:ss" or "d-hh:mm:ss", rounded down to seconds.
func FormatElapsed(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	days, h, m, s := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, h, m, s)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}
