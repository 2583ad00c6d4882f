package squeue

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
)

// fetchCluster fetches the cluster's name where it is shown or checked.
func (l *listing) fetchCluster(ctx context.Context, c ui.Cluster, columns []slurmcmd.Column) error {
	shown := slices.ContainsFunc(columns, func(c slurmcmd.Column) bool { return slurmcmd.PlainName(c.Name) == "cluster" })
	if l.cluster != "" || l.clusters == "" && !shown {
		return nil
	}
	answer, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	if l.cluster = answer.Cluster; l.clusters == "" {
		return nil
	}
	return slurmcmd.Ours(l.clusters, l.cluster)
}

// fetchMore fetches what is not part of a job, where it is shown: priorities and planned nodes.
func (l *listing) fetchMore(ctx context.Context, c ui.Cluster, columns []slurmcmd.Column, keys []sortKey) error {
	ranked := slices.ContainsFunc(keys, func(k sortKey) bool { return k.letter == 'p' || k.letter == 'Q' })
	planned := false
	for _, f := range fieldsOf(columns) {
		ranked = ranked || f.letter == 'p' || f.letter == 'Q'
		planned = planned || f.letter == 'Y'
	}
	if ranked {
		answer, err := c.Accounts().ListPriorities(ctx, &greylagv1.ListPrioritiesRequest{})
		if err != nil {
			return err
		}
		l.priority = make(map[uint64]int64, len(answer.Jobs))
		for _, j := range answer.Jobs {
			l.priority[j.Job] = j.Priority
		}
	}
	if planned {
		answer, err := c.Cluster().GetPlan(ctx, &greylagv1.GetPlanRequest{Waiting: true})
		if err != nil {
			return err
		}
		l.planned = make(map[string]*greylagv1.PlannedJob, len(answer.Jobs))
		for _, j := range answer.Jobs {
			l.planned[j.Job] = j
		}
	}
	return nil
}

// briefLetters are the fields that a brief listing of the cluster has.
const briefLetters = "aiAFKjuPqtTrRlLMSeVDNBQpY"

// form returns the shortest form of a listing that has all that is shown: brief ones are several times as
// fast.
func (l *listing) form(columns []slurmcmd.Column, keys []sortKey) int {
	missing := func(letter byte) bool { return letter == 0 || strings.IndexByte(briefLetters, letter) < 0 }
	switch {
	case l.json, l.byPart, l.reserved != "", slices.ContainsFunc(fieldsOf(columns), func(f *field) bool { return missing(f.letter) }),
		slices.ContainsFunc(keys, func(k sortKey) bool { return missing(k.letter) }):
		return slurmcmd.Whole
	case l.single:
		return slurmcmd.Brief
	}
	return slurmcmd.Folded
}

// sortKey is one key of an order: a letter of -o.
type sortKey struct {
	letter byte
	down   bool
}

// parseSort reads the keys of -S; the default is squeue's.
func parseSort(text string, start bool) ([]sortKey, error) {
	switch {
	case text == "" && start:
		text = "S"
	case text == "":
		text = "P,t,-p"
	}
	var keys []sortKey
	for term := range strings.SplitSeq(text, ",") {
		letter := strings.TrimLeft(term, "+-")
		if len(letter) != 1 || compareBy(letter[0]) == nil {
			return nil, &ui.UsageError{Problem: "Invalid sort specification: " + term, Advice: "write letters of -o such as P,t,-S"}
		}
		keys = append(keys, sortKey{letter[0], strings.HasPrefix(term, "-")})
	}
	if text == "P,t,-p" { // priorities cost a call, and are the order of the IDs in most queues
		keys = keys[:2]
	}
	return keys, nil
}

// compareBy returns the comparison by a letter of -o; nil for a letter that does not sort.
func compareBy(letter byte) func(l *listing, a, b *slurmcmd.Job) int {
	number := func(of func(*listing, *slurmcmd.Job) int64) func(l *listing, a, b *slurmcmd.Job) int {
		return func(l *listing, a, b *slurmcmd.Job) int { return cmp.Compare(of(l, a), of(l, b)) }
	}
	switch letter {
	case 'i', 'A':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return int64(j.Id) })
	case 't', 'T':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return int64(j.State) })
	case 'p', 'Q':
		return number(func(l *listing, j *slurmcmd.Job) int64 { return l.priority[j.Id] })
	case 'S', 'M':
		return number(func(_ *listing, j *slurmcmd.Job) int64 {
			return orLast(ui.StartOf(j.Job).UnixNano(), ui.StartOf(j.Job).IsZero())
		})
	case 'e':
		return number(func(_ *listing, j *slurmcmd.Job) int64 {
			return orLast(ui.EndOf(j.Job).UnixNano(), ui.EndOf(j.Job).IsZero())
		})
	case 'V':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return j.Submitted.AsTime().UnixNano() })
	case 'D':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return int64(ui.NodeCount(j.Job)) })
	case 'C':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return ui.CPUCount(j.Job) })
	case 'l':
		return number(func(_ *listing, j *slurmcmd.Job) int64 {
			return orLast(int64(j.TimeLimit.AsDuration()), j.TimeLimit.AsDuration() == 0)
		})
	case 'U':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return int64(j.Uid) })
	case 'y':
		return number(func(_ *listing, j *slurmcmd.Job) int64 { return int64(j.Nice) })
	}
	f := fieldOf(letter)
	if f == nil {
		return nil
	}
	return func(l *listing, a, b *slurmcmd.Job) int {
		v := &view{listing: l}
		return strings.Compare(f.write(v, a), f.write(v, b))
	}
}

func orLast(n int64, last bool) int64 {
	if last {
		return math.MaxInt64
	}
	return n
}

// sortRows sorts lines by the keys, ties by ID. O(n log n).
func (l *listing) sortRows(rows []slurmcmd.Job, keys []sortKey) {
	compare := make([]func(*listing, *slurmcmd.Job, *slurmcmd.Job) int, len(keys))
	for i, k := range keys {
		compare[i] = compareBy(k.letter)
	}
	slices.SortStableFunc(rows, func(a, b slurmcmd.Job) int {
		for i, k := range keys {
			if c := compare[i](l, &a, &b); c != 0 {
				if k.down {
					return -c
				}
				return c
			}
		}
		return cmp.Compare(a.Id, b.Id)
	})
}

// known refuses columns that squeue does not have.
func known(columns []slurmcmd.Column) error {
	for _, c := range columns {
		switch {
		case c.Name == "" && fieldOf(c.Letter) == nil:
			return &ui.UsageError{Problem: fmt.Sprintf("Invalid job format specification: %c", c.Letter), Advice: "docs/from-slurm.md lists the fields"}
		case c.Name != "" && fieldNamed(c.Name) == nil:
			return &ui.UsageError{Problem: "Invalid job format specification: " + c.Name, Advice: "docs/from-slurm.md lists the fields"}
		}
	}
	return nil
}
