package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Retry is after which failures of its own a job is requeued, and how often.
type Retry struct {
	Limit        int32   // retries since the last checkpoint, or the submission; 0: none
	AnyExit      bool    // after any exit status but 0, and any signal
	ExitStatuses []int32 // after these exit statuses
	OutOfMemory  bool
}

// DefaultRetry is the limit of a job that asks for none: it has the retry of the policy.
const DefaultRetry = -1

// Bounds of a retry.
const (
	MaxRetries       = 1000
	maxRetryStatuses = 16
)

// Covers reports whether the job is retried after an end with the outcome and the exit status.
func (r *Retry) Covers(outcome JobState, exit Exit) bool {
	switch outcome {
	case OutOfMemory:
		return r.OutOfMemory
	case Failed:
		return r.AnyExit || slices.Contains(r.ExitStatuses, exit.Status())
	}
	return false
}

// Causes returns the causes as --retry-on has them: exit, exit:75, oom.
func (r *Retry) Causes() string {
	var words []string
	if r.AnyExit {
		words = append(words, "exit")
	}
	for _, n := range r.ExitStatuses {
		words = append(words, "exit:"+strconv.Itoa(int(n)))
	}
	if r.OutOfMemory {
		words = append(words, "oom")
	}
	return strings.Join(words, ",")
}

// ParseRetryCauses reads causes as Causes writes them into a value without a limit.
func ParseRetryCauses(text string) (Retry, error) {
	var r Retry
	for word := range strings.SplitSeq(text, ",") {
		kind, status, given := strings.Cut(word, ":")
		switch {
		case word == "exit":
			r.AnyExit = true
		case word == "oom":
			r.OutOfMemory = true
		case kind == "exit" && given:
			n, err := strconv.ParseInt(status, 10, 32)
			if err != nil || n < 1 || n > 255 {
				return Retry{}, fmt.Errorf("%q: want an exit status from 1 to 255", word)
			}
			r.ExitStatuses = append(r.ExitStatuses, int32(n))
		default:
			return Retry{}, fmt.Errorf("unknown cause %q; causes are exit, exit:STATUS and oom", word)
		}
	}
	return r, nil
}

// Check returns an error for values that make no sense.
func (r *Retry) Check() error {
	switch {
	case r.Limit < DefaultRetry || r.Limit > MaxRetries:
		return fmt.Errorf("%d retries, want 0 to %d", r.Limit, MaxRetries)
	case len(r.ExitStatuses) > maxRetryStatuses:
		return fmt.Errorf("%d exit statuses to retry after, at most %d", len(r.ExitStatuses), maxRetryStatuses)
	case r.Limit > 0 && r.Causes() == "":
		return fmt.Errorf("%d retries without a cause", r.Limit)
	}
	for _, n := range r.ExitStatuses {
		if n < 1 || n > 255 {
			return fmt.Errorf("exit status %d to retry after, want 1 to 255", n)
		}
	}
	return nil
}
