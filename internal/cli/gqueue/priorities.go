package gqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

// unranked is the priority of a job that is not pending.
const unranked = -1 << 63

// priorities fetches the priorities of pending jobs, if the listing shows them or is sorted by
// them: they change with time, and are not part of a job.
func (l *listing) priorities(ctx context.Context, c ui.Cluster) (map[uint64]int64, error) {
	columns, err := parseFormat(l.format)
	asked := slices.ContainsFunc(l.sort, func(k sortKey) bool { return isPriority(k.letter) })
	if l.format != "" && err == nil {
		asked = asked || slices.ContainsFunc(columns, func(c column) bool { return isPriority(c.letter) })
	}
	if !asked {
		return nil, nil
	}
	answer, err := c.Accounts().ListPriorities(ctx, &greylagv1.ListPrioritiesRequest{Read: &greylagv1.Read{Stale: l.stale}})
	if err != nil {
		return nil, fmt.Errorf("fetch priorities: %w", err)
	}
	all := make(map[uint64]int64, len(answer.Jobs))
	for _, j := range answer.Jobs {
		all[j.Job] = j.Priority
	}
	return all, nil
}

func isPriority(letter byte) bool { return strings.IndexByte("pQ", letter) >= 0 }

// rank sets the priorities of rows.
func rank(rows []row, priorities map[uint64]int64) {
	for i := range rows {
		n, waits := priorities[rows[i].job.Id]
		if rows[i].priority = n; !waits {
			rows[i].priority = unranked
		}
	}
}

// priorityFields are the columns that [listing.priorities] fills.
func priorityFields() []field {
	return []field{
		{'Q', "PRIORITY", "priority", func(dst []byte, _ view, r *row) []byte {
			if r.priority == unranked {
				return append(dst, "N/A"...)
			}
			return strconv.AppendInt(dst, r.priority, 10)
		}},
		{'p', "PRIORITY", "priority, from 0 to 1", func(dst []byte, _ view, r *row) []byte {
			if r.priority == unranked {
				return append(dst, "N/A"...)
			}
			const most = 1<<32 - 1 // squeue's
			return strconv.AppendFloat(dst, float64(min(max(r.priority, 0), most))/most, 'f', 14, 64)
		}},
	}
}
