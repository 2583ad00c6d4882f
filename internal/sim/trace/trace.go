// Package trace reads logs of real workloads: which jobs were submitted when, of what size, and how
// long they ran.
//
// It decides what a line of a log means, from that line and the log's header, and which lines are
// invalid; those are counted and named. It never decides the outcome of a job, never corrects a
// line in silence, and reads no clock.
//
// Three kinds of logs are read: the Standard Workload Format of the Parallel Workloads Archive
// (Chapin et al. 1999), tables of comma-separated values with a header line, and archives (tar) of
// such tables; Options.Member chooses one. Each may be compressed with gzip. The kind of a log is
// detected from its content, not its name.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Job is one job of a log. Times count from the log's own origin.
type Job struct {
	Line     int // of the log, from 1
	ID       string
	Submit   time.Duration
	Run      time.Duration // how long it runs if it is not ended; never above Estimate
	Estimate time.Duration // the requested time, after which it is killed
	Procs    int32         // total processors; 0 in logs that count GPUs alone
	GPUs     int32         // total GPUs; 0 in logs that count processors alone
	User     string
	Account  string
}

// Size is the largest size of a job; zero is no limit, less than zero forbids any.
type Size struct{ Procs, GPUs int32 }

// Options configure the reading of a log.
type Options struct {
	Member  string // of an archive: a table's name, with or without .csv
	Skip    bool   // leave out invalid lines; otherwise one refuses the log
	Sort    bool   // sort jobs by submission; otherwise jobs out of order are invalid
	Largest Size
}

// Trace is the content of a log.
type Trace struct {
	Jobs     []Job
	Bad      Faults // lines that were left out
	Capped   int    // jobs that ran longer than they requested: killed at their estimate
	Guessed  int    // jobs without an estimate: their run time is used
	MaxProcs int32  // from the header; 0 if unknown
}

// The limits of a log.
const (
	maxJobs    = 1 << 24
	maxLine    = 1 << 20
	maxSeconds = 3_000_000_000 // of a time: 95 years
	maxSize    = 1 << 24
	maxWord    = 128
)

// unknown is the estimate of a log that has none; some write 0.
const unknown = -time.Second

// ErrBad is wrapped by every error about a log's content.
var ErrBad = errors.New("bad trace")

// ErrLines is wrapped if leaving out lines would help.
var ErrLines = errors.New("are invalid")

// ErrNoGPUs is wrapped instead of ErrLines if jobs need GPUs and the machine has none.
var ErrNoGPUs = fmt.Errorf("%w, since the machine has no GPUs", ErrLines)

// Fault is an invalid line.
type Fault struct {
	Line int
	Why  string
}

// Faults counts invalid lines and holds the first ten.
type Faults struct {
	Count int
	First []Fault
}

// maxListed is the number of faults that are listed.
const maxListed = 10

func (f *Faults) add(line int, format string, args ...any) {
	if f.Count++; len(f.First) < maxListed {
		f.First = append(f.First, Fault{line, fmt.Sprintf(format, args...)})
	}
}

// String lists the faults, one per line.
func (f *Faults) String() string {
	var b strings.Builder
	for _, x := range f.First {
		fmt.Fprintf(&b, "line %d: %s\n", x.Line, x.Why)
	}
	if more := f.Count - len(f.First); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// reading is the state of reading a log.
type reading struct {
	Options
	Trace
	seen   map[string]int    // IDs, and their lines
	words  map[string]string // users and accounts
	last   time.Duration
	noGPUs bool     // a job needs GPUs on a machine without
	fields []string // of the present line: memory that is used again
}

func newReading(o Options) *reading {
	return &reading{Options: o, seen: map[string]int{}, words: map[string]string{}}
}

// word returns a word that does not keep its line in memory, one copy for all equal words.
func (r *reading) word(w string) string {
	known, ok := r.words[w]
	if !ok {
		known = strings.Clone(w)
		r.words[known] = known
	}
	return known
}

// add checks a job of a line and keeps it.
func (r *reading) add(j Job) error {
	if len(r.Jobs) == maxJobs {
		return fmt.Errorf("%w: more than %d jobs", ErrBad, maxJobs)
	}
	if why := r.wrong(&j); why != "" {
		r.Bad.add(j.Line, "%s", why)
		return nil
	}
	switch {
	case j.Estimate <= 0:
		j.Estimate = j.Run
		r.Guessed++
	case j.Run > j.Estimate:
		j.Run = j.Estimate
		r.Capped++
	}
	j.ID, j.User, j.Account = strings.Clone(j.ID), r.word(j.User), r.word(j.Account)
	r.seen[j.ID], r.last = j.Line, j.Submit
	r.Jobs = append(r.Jobs, j)
	return nil
}

// wrong returns why a job is invalid; "" if it is valid.
func (r *reading) wrong(j *Job) string {
	first, duplicate := r.seen[j.ID]
	switch {
	case j.ID == "":
		return "no ID"
	case len(j.ID) > maxWord || len(j.User) > maxWord || len(j.Account) > maxWord:
		return fmt.Sprintf("an ID or a name of more than %d bytes", maxWord)
	case duplicate:
		return fmt.Sprintf("the ID %s is that of line %d", j.ID, first)
	case j.Submit < 0:
		return fmt.Sprintf("job %s is submitted at %s, before the trace begins", j.ID, Seconds(j.Submit))
	case j.Run <= 0:
		return fmt.Sprintf("job %s runs for %s s", j.ID, Seconds(j.Run))
	case j.Estimate < 0 && j.Estimate != unknown:
		return fmt.Sprintf("job %s asks for %s s", j.ID, Seconds(j.Estimate))
	case j.Procs < 0 || j.GPUs < 0 || j.Procs == 0 && j.GPUs == 0:
		return fmt.Sprintf("job %s has a size of %d", j.ID, min(j.Procs, j.GPUs))
	case r.Largest.Procs != 0 && j.Procs > max(r.Largest.Procs, 0):
		return fmt.Sprintf("job %s needs %d processors, and the machine has %d", j.ID, j.Procs, max(r.Largest.Procs, 0))
	case r.Largest.GPUs != 0 && j.GPUs > max(r.Largest.GPUs, 0):
		r.noGPUs = r.Largest.GPUs < 0
		return fmt.Sprintf("job %s needs %d GPUs, and the machine has %d", j.ID, j.GPUs, max(r.Largest.GPUs, 0))
	case j.Submit < r.last && !r.Sort:
		return fmt.Sprintf("job %s is submitted at %s, before the one above it", j.ID, Seconds(j.Submit))
	}
	return ""
}

// done returns the log.
func (r *reading) done() (*Trace, error) {
	t := &r.Trace
	r.seen, r.words = nil, nil
	if r.Sort {
		slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	}
	if t.Bad.Count > 0 && !r.Skip {
		why := ErrLines
		if r.noGPUs {
			why = ErrNoGPUs
		}
		return t, fmt.Errorf("%w: %d lines %w\n%s", ErrBad, t.Bad.Count, why, t.Bad.String())
	}
	if len(t.Jobs) == 0 {
		return t, fmt.Errorf("%w: there is no job in it", ErrBad)
	}
	return t, nil
}
