package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/command"
)

const (
	// maxIndex is the highest array index, far above the largest array of any policy.
	maxIndex = 1<<31 - 2
	// maxRanges bounds the terms of one array expression.
	maxRanges = 10_000
)

// ParseArray reads an array expression as sbatch does: indices and ranges separated by commas, a
// range with ":STEP", and at the end "%LIMIT" for how many elements may run at once (0: no limit
// given). The policy bounds the total number of elements. The errors are refusals. O(length).
func ParseArray(text string) (ranges []command.IndexRange, limit int32, err error) {
	list, percent, limited := strings.Cut(text, "%")
	if limited {
		n, err := number(percent)
		if err != nil || n == 0 {
			return nil, 0, badArray(text, "%.40q is not a number of elements that may run at once", percent)
		}
		limit = n
	}
	if strings.Count(list, ",") >= maxRanges {
		return nil, 0, badArray("", "more than %d ranges", maxRanges)
	}
	for term := range strings.SplitSeq(list, ",") {
		r, err := indexRange(term)
		if err != nil {
			return nil, 0, badArray(text, "%.40q is not an index or a range", term)
		}
		ranges = append(ranges, r)
	}
	return ranges, limit, nil
}

func indexRange(term string) (command.IndexRange, error) {
	bounds, step, stepped := strings.Cut(term, ":")
	from, to, isRange := strings.Cut(bounds, "-")
	r := command.IndexRange{Step: 1}
	var err error
	if r.First, err = number(from); err != nil {
		return r, err
	}
	r.Last = r.First
	if isRange {
		if r.Last, err = number(to); err != nil {
			return r, err
		}
	}
	if stepped {
		if r.Step, err = number(step); err != nil {
			return r, err
		}
	}
	if r.Last < r.First || r.Step < 1 || stepped && !isRange {
		return r, strconv.ErrRange
	}
	return r, nil
}

// number reads a plain decimal number: no sign, no spaces.
func number(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err == nil && n > maxIndex {
		err = strconv.ErrRange
	}
	return int32(n), err
}

func badArray(text, format string, args ...any) error {
	what := "array"
	if text != "" && len(text) < 100 {
		what = fmt.Sprintf("array %q", text)
	}
	return &command.Refusal{
		Code:    command.InvalidArgument,
		Message: what + ": " + fmt.Sprintf(format, args...),
		Hint:    "write it like 0-15, 0,6,16-32 or 0-15:4, and 0-15%4 for at most four at once",
	}
}
