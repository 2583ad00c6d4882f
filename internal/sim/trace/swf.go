package trace

import (
	"slices"
	"strings"
)

// The fields of the Standard Workload Format that are used, from 0. Unknown is -1.
const (
	swfID        = 0
	swfSubmit    = 1
	swfRun       = 3
	swfAllocated = 4
	swfRequested = 7
	swfEstimate  = 8
	swfUser      = 11
	swfGroup     = 12
	swfFields    = 18
)

// swfLine reads one line of the Standard Workload Format. The requested processors count, or the
// allocated ones if those are unknown. A line may leave out fields at its end from the requested
// time on.
func (r *reading) swfLine(number int, line string) error {
	if header, ok := strings.CutPrefix(line, ";"); ok {
		r.swfHeader(header)
		return nil
	}
	r.fields = slices.AppendSeq(r.fields[:0], strings.FieldsSeq(line))
	fields := r.fields
	if len(fields) == 0 {
		return nil
	}
	if len(fields) < swfEstimate || len(fields) > swfFields {
		r.Bad.add(number, "%d fields, and the format has %d", len(fields), swfFields)
		return nil
	}
	j := Job{Line: number, ID: fields[swfID]}
	var good [5]bool
	j.Submit, good[0] = seconds(fields[swfSubmit])
	j.Run, good[1] = seconds(fields[swfRun])
	j.Procs, good[2] = count(fields[swfRequested])
	got, ok := count(fields[swfAllocated])
	good[3] = ok
	j.Estimate, good[4] = unknown, true
	if len(fields) > swfEstimate {
		j.Estimate, good[4] = seconds(fields[swfEstimate])
	}
	for i, field := range [...]int{swfSubmit, swfRun, swfRequested, swfAllocated, swfEstimate} {
		if !good[i] {
			r.Bad.add(number, "field %d: %q is not a number, or too large", field+1, cut(fields[field]))
			return nil
		}
	}
	if j.Procs == -1 {
		j.Procs = got
	}
	if len(fields) > swfUser {
		j.User = known(fields[swfUser])
	}
	if len(fields) > swfGroup {
		j.Account = known(fields[swfGroup])
	}
	return r.add(j)
}

// swfHeader reads the size of the machine from a comment such as "; MaxProcs: 100".
func (r *reading) swfHeader(text string) {
	key, value, found := strings.Cut(text, ":")
	if !found || strings.TrimSpace(key) != "MaxProcs" {
		return
	}
	if n, ok := count(strings.TrimSpace(value)); ok && n > 0 {
		r.MaxProcs = n
	}
}

// known returns a word that may be unknown; "" if it is.
func known(word string) string {
	if word == "-1" {
		return ""
	}
	return word
}

// cut shortens a word of a log for messages.
func cut(word string) string {
	if len(word) > 40 {
		word = word[:40] + "..."
	}
	return strings.ToValidUTF8(word, "?")
}
