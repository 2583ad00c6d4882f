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

// starts is what is planned for jobs that wait, by their ids as people write them.
type starts map[string]*greylagv1.PlannedJob

// starts asks, where the listing shows it, what is planned: on which nodes, and when
// jobs are expected to start.
func (l *listing) starts(ctx context.Context, c ui.Cluster) (starts, error) {
	if !l.start && !usesStarts(l.format) {
		return nil, nil
	}
	answer, err := c.Cluster().GetPlan(ctx, &greylagv1.GetPlanRequest{Waiting: true, Expected: true, Read: &greylagv1.Read{Stale: l.stale}})
	if err != nil {
		return nil, fmt.Errorf("ask for the plan: %w", err)
	}
	s := make(starts, len(answer.Jobs))
	for _, j := range answer.Jobs {
		s[j.Job] = j
	}
	return s, nil
}

// usesStarts reports whether a format has a field that [listing.starts] fills. A format that
// is none is told of later.
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

// nodes is the host list that is kept for a job; "" when none is yet.
func (s starts) nodes(j *greylagv1.Job) string {
	var names []string
	for _, h := range s[j.Ref].GetHosts() {
		names = append(names, h.Node)
	}
	return hostlist.Compress(names)
}

func (s starts) expected(j *greylagv1.Job) time.Time { return ui.TimeOf(s[j.Ref].GetExpected()) }

// startLetters are the columns of --start: where a line is short the times are, too,
// and some columns stay away.
func startLetters(width int, edge bool) (letters string, short bool) {
	const room = 120
	if edge && width < room {
		return "ijutSGXYR", true
	}
	return "iPjutSGXDYR", false
}

// startJSON is a waiting job in the output of --start --json.
type startJSON struct {
	ui.JobJSON
	Expected     *time.Time `json:"expected,omitempty"`
	PlannedNodes []string   `json:"planned_nodes,omitempty"`
}

// json makes of each job what --json shows of it.
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
