package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// OutcomeStyle describes how the outcomes of a change to jobs are printed.
type OutcomeStyle struct {
	JSON    bool
	Verbose bool   // name successes, not only failures
	Quiet   bool   // omit jobs for which it was too late
	Verb    string // the success in words, such as "ended"
	// EndedIsDone does not count a job that had already ended as a failure, since the change would
	// have ended it: it only prints a warning, as scancel does.
	EndedIsDone bool
}

// outcomeJSON is the outcome for one job, in the output of --json.
type outcomeJSON struct {
	Ref   string `json:"ref"`
	ID    uint64 `json:"id,omitempty"`
	State string `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	Note  string `json:"note,omitempty"`
}

// tooLate is the code of a change to a job that had already ended.
const tooLate = greylagv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION

// Outcomes prints the result of a change for each job; elements of an array with the same result
// share one line. The error carries the exit status: that of the failures if they agree, else Failed.
func (p *Process) Outcomes(outcomes []*greylagv1.Outcome, style OutcomeStyle) error {
	all := []outcomeJSON{} // [] in JSON, not null
	status := OK
	for _, o := range outcomes {
		all = append(all, outcomeJSON{o.Ref, o.Id, wire.Word(o.State), o.Error, wire.Word(o.Code), o.Note})
	}
	for _, same := range foldOutcomes(outcomes) {
		o := same.first
		if o.Error == "" {
			switch {
			case style.Verbose && o.Note != "" && !style.JSON:
				p.Note("job %s %s; %s", same.ref(), style.Verb, o.Note)
			case style.Verbose:
				p.Note("job %s %s", same.ref(), style.Verb)
			case o.Note != "" && !style.JSON:
				p.Warn(fmt.Sprintf("job %s: %s", same.ref(), o.Note))
			}
			continue
		}
		if style.Quiet && o.Code == tooLate {
			continue
		}
		done := style.EndedIsDone && hadEnded(o)
		switch {
		case style.JSON:
		case done:
			p.Warn(same.problem())
		default:
			p.complain("error", same.problem())
		}
		if done {
			continue
		}
		if s := codeStatus(connect.Code(o.Code)); status == OK || status == s {
			status = s
		} else {
			status = Failed
		}
	}
	if style.JSON {
		if err := p.WriteJSON(struct {
			Outcomes []outcomeJSON `json:"outcomes"`
		}{all}); err != nil {
			return err
		}
	}
	return Exit(status)
}

// sameOutcome is a job, or the elements of an array with the same result.
type sameOutcome struct {
	first   *greylagv1.Outcome
	array   string // the array's ID; "" for a single job
	indices []int32
}

// foldOutcomes groups the outcomes of elements of one array that differ only in the index, in the
// order of the first of each. O(outcomes).
func foldOutcomes(outcomes []*greylagv1.Outcome) []sameOutcome {
	type key struct {
		array, state, problem, note string
		code                        greylagv1.ErrorCode
	}
	at := map[key]int{}
	var groups []sameOutcome
	for _, o := range outcomes {
		array, text, _ := strings.Cut(o.Ref, "_")
		index, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			groups = append(groups, sameOutcome{first: o})
			continue
		}
		k := key{array, wire.Word(o.State), withoutRef(o), o.Note, o.Code}
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, sameOutcome{first: o, array: array})
		}
		groups[i].indices = append(groups[i].indices, int32(index))
	}
	for i := range groups {
		slices.Sort(groups[i].indices)
	}
	return groups
}

// ref returns the job's ID, or 40_[1-3,7] for several elements.
func (s sameOutcome) ref() string {
	if len(s.indices) < 2 {
		return s.first.Ref
	}
	return s.array + "_[" + string(AppendIndices(nil, s.indices)) + "]"
}

// OutcomeProblem returns the error of an outcome with its job, which the error may name already.
func OutcomeProblem(o *greylagv1.Outcome) string { return sameOutcome{first: o}.problem() }

// problem returns the error with its jobs.
func (s sameOutcome) problem() string {
	text := withoutRef(s.first)
	if text == s.first.Error {
		return "job " + s.ref() + ": " + text
	}
	return "job " + s.ref() + " " + text
}

// withoutRef returns the error of an outcome without the job's ID in front.
func withoutRef(o *greylagv1.Outcome) string { return strings.TrimPrefix(o.Error, "job "+o.Ref+" ") }

// hadEnded reports that a change came too late, not that it was invalid.
func hadEnded(o *greylagv1.Outcome) bool {
	state, err := cluster.ParseJobState(wire.Word(o.State))
	return o.Code == tooLate && err == nil && state.Final()
}

// AppendIndices writes ascending numbers as ranges: 4-9,12.
func AppendIndices(dst []byte, indices []int32) []byte {
	for i := 0; i < len(indices); {
		last := i
		for last+1 < len(indices) && indices[last+1] == indices[last]+1 {
			last++
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(indices[i]), 10)
		if last > i {
			dst = append(dst, '-')
			dst = strconv.AppendInt(dst, int64(indices[last]), 10)
		}
		i = last + 1
	}
	return dst
}
