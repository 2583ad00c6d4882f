package gqueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
)

// starts is the plan of pending jobs, by their IDs as users write them.
type starts map[string]*greylagv1.PlannedJob

// starts fetches the plan, if the listing shows it: on which nodes, and when jobs are expected to
// start.
func (l *listing) starts(ctx context.Context, c ui.Cluster) (starts, error) {
	if !l.start && !usesStarts(l.format) {
		return nil, nil
	}
	answer, err := c.Cluster().GetPlan(ctx, &greylagv1.GetPlanRequest{Waiting: true, Expected: true, Read: &greylagv1.Read{Stale: l.stale}})
	if err != nil {
		return nil, fmt.Errorf("fetch the plan: %w", err)
	}
	s := make(starts, len(answer.Jobs))
	for _, j := range answer.Jobs {
		s[j.Job] = j
	}
	return s, nil
}

// usesStarts reports whether a format has a field that [listing.starts] fills. An invalid format is
// reported later.
func usesStarts(format string) bool {
	columns, err := parseFormat(format)
	for i := range columns {
		if err == nil && strings.IndexByte("XY", columns[i].letter) >= 0 {
			return true
		}
	}
	return false
}

// startFields are the columns that [listing.starts] fills.
func startFields() []field {
	return []field{
		{'Y', "SCHEDNODES", "promised nodes", func(dst []byte, v view, r *row) []byte {
			if list := v.starts.nodes(r.soonest); list != "" {
				return ui.AppendPrintable(dst, list)
			}
			return append(dst, "(null)"...)
		}},
		{'X', "EXPECTED", "expected start", func(dst []byte, v view, r *row) []byte {
			return v.instant(dst, v.starts.expected(r.soonest))
		}},
	}
}

// nodes returns the hostlist kept for a job; "" if none is.
func (s starts) nodes(j *greylagv1.Job) string {
	var names []string
	for _, h := range s[j.Ref].GetHosts() {
		names = append(names, h.Node)
	}
	return hostlist.Compress(names)
}

func (s starts) expected(j *greylagv1.Job) time.Time { return ui.TimeOf(s[j.Ref].GetExpected()) }

// startLetters returns the columns of --start: on a short line times are short, too, and some
// columns are omitted.
func startLetters(width int, edge bool) (letters string, short bool) {
	const wideLine = 120
	if edge && width < wideLine {
		return "ijutSGXYR", true
	}
	return "iPjutSGXDYR", false
}

// startJSON is a pending job in the output of --start --json.
type startJSON struct {
	ui.JobJSON
	Expected     *time.Time `json:"expected,omitempty"`
	PlannedNodes []string   `json:"planned_nodes,omitempty"`
}

// json converts each job to the form of --json.
func (s starts) json(j *greylagv1.Job) any {
	if s == nil {
		return ui.JobOf(j)
	}
	out := startJSON{JobJSON: ui.JobOf(j), Expected: ui.Stamp(s.expected(j))}
	for _, h := range s[j.Ref].GetHosts() {
		out.PlannedNodes = append(out.PlannedNodes, h.Node)
	}
	return out
}
