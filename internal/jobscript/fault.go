package jobscript

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/hint"
)

// Fault is one thing that is wrong with what a user asked for.
type Fault struct {
	Where   string // "job.sh:3", "GSUB_TIME", or "" for the command line
	Option  string // as it was spelled; "" when the fault is not about one
	Problem string
	Advice  string // what to do; may be empty
	line    int    // of the script; 0 elsewhere
}

// Error is "where: option: problem".
func (f *Fault) Error() string {
	text := f.Problem
	if f.Option != "" {
		text = f.Option + ": " + text
	}
	if f.Where != "" {
		text = f.Where + ": " + text
	}
	return text
}

// Hint is the advice.
func (f *Fault) Hint() string { return f.Advice }

// Faults is the error for several faults at once, in the order of their places.
type Faults []*Fault

// Error is one fault a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lists the faults.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, one := range f {
		all[i] = one
	}
	return all
}

// err is nil when there are none. Those of the script come first, by line.
func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	rank := func(one *Fault) int {
		if one.line == 0 {
			return math.MaxInt
		}
		return one.line
	}
	slices.SortStableFunc(f, func(a, b *Fault) int { return cmp.Compare(rank(a), rank(b)) })
	return f
}

// advise returns an error with advice, for a parser of values.
func advise(problem, advice string) error { return hint.New(errors.New(problem), advice) }

// faultOf places an error of a value's parser. Those of pkg/cluster end with
// what they want, in brackets.
func faultOf(a ask, err error) *Fault {
	fault := &Fault{Where: a.where, Option: a.as, Problem: err.Error(), line: a.line}
	if fault.Advice = hint.Of(err); fault.Advice != "" {
		return fault
	}
	if problem, want, ok := strings.Cut(fault.Problem, " (want "); ok {
		fault.Problem, fault.Advice = problem, "write "+strings.TrimSuffix(want, ")")
	}
	return fault
}
