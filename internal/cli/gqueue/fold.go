package gqueue

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// row is one line of the queue: a job, or elements of an array that share a line.
type row struct {
	job     *greylagv1.Job
	state   cluster.JobState
	indices []int32        // of the elements; nil for a single job
	soonest *greylagv1.Job // of those the one that starts first; the job if none has a start

	branch   string // before its ID in a tree
	priority int64  // if it is shown or sorted by; unranked for a job that is not pending
}

// fold puts pending elements of an array with the same reason into one row each. single leaves
// every job its own. O(jobs).
func fold(jobs []*greylagv1.Job, single bool) []row {
	type share struct {
		array             uint64
		reason, partition string
	}
	at := make(map[share]int)
	rows := make([]row, 0, len(jobs))
	for _, j := range jobs {
		if single || j.ArrayId == 0 || j.State != greylagv1.JobState_JOB_STATE_PENDING {
			rows = append(rows, row{job: j, soonest: j, state: stateOf(j)})
			continue
		}
		key := share{j.ArrayId, wire.Word(j.Reason), j.Partition}
		i, ok := at[key]
		if !ok {
			i = len(rows)
			at[key] = i
			rows = append(rows, row{job: j, soonest: j, state: cluster.Pending})
		}
		rows[i].indices = ui.ElementIndices(rows[i].indices, j)
		if rankTime(ui.StartOf(j)) < rankTime(ui.StartOf(rows[i].soonest)) {
			rows[i].soonest = j
		}
	}
	for i := range rows {
		if len(rows[i].indices) == 1 && rows[i].job.ArrayLimit == 0 {
			rows[i].indices = nil
		}
		slices.Sort(rows[i].indices)
	}
	return rows
}

// appendRef appends the ID as squeue does: 123, 123_4 or 123_[4-9,12%2].
func appendRef(dst []byte, r *row) []byte {
	dst = append(dst, r.branch...)
	if r.indices == nil {
		return append(dst, r.job.Ref...)
	}
	dst = strconv.AppendUint(dst, r.job.ArrayId, 10)
	dst = append(dst, "_["...)
	dst = ui.AppendIndices(dst, r.indices)
	if r.job.ArrayLimit > 0 {
		dst = append(dst, '%')
		dst = strconv.AppendInt(dst, int64(r.job.ArrayLimit), 10)
	}
	return append(dst, ']')
}

// sortKey is one key of an order: a letter of -o.
type sortKey struct {
	letter byte
	down   bool
}

func parseSort(word string) ([]sortKey, error) {
	var keys []sortKey
	for _, term := range strings.Split(word, ",") {
		letter := strings.TrimLeft(term, "+-")
		if len(letter) != 1 || sorter(letter[0]) == nil {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("cannot sort by %q", term), Advice: "write letters such as P,t,-S; those of -o that sort are A D F K M N P Q S T U V a e i j l p q t u y"}
		}
		keys = append(keys, sortKey{letter[0], strings.HasPrefix(term, "-")})
	}
	return keys, nil
}

// sorter returns a comparison of two jobs by one letter of -o; nil for a letter that does not sort.
func sorter(letter byte) func(a, b *row) int {
	byText := func(field func(*greylagv1.Job) string) func(a, b *row) int {
		return func(a, b *row) int { return strings.Compare(field(a.job), field(b.job)) }
	}
	byNumber := func(field func(*greylagv1.Job) int64) func(a, b *row) int {
		return func(a, b *row) int { return cmp.Compare(field(a.job), field(b.job)) }
	}
	switch letter {
	case 'i', 'A':
		return func(a, b *row) int { return cmp.Compare(a.job.Id, b.job.Id) }
	case 'F':
		return func(a, b *row) int { return cmp.Compare(a.job.ArrayId, b.job.ArrayId) }
	case 'K':
		return byNumber(func(j *greylagv1.Job) int64 { return int64(j.ArrayIndex) })
	case 'j':
		return byText((*greylagv1.Job).GetName)
	case 'u':
		return byText((*greylagv1.Job).GetUser)
	case 'a':
		return byText((*greylagv1.Job).GetAccount)
	case 'P':
		return byText(partitionText)
	case 'q':
		return byText((*greylagv1.Job).GetQos)
	case 't', 'T':
		return func(a, b *row) int { return cmp.Compare(a.state, b.state) } // pending first, as squeue
	case 'U':
		return byNumber(func(j *greylagv1.Job) int64 { return int64(j.Uid) })
	case 'D':
		return byNumber(func(j *greylagv1.Job) int64 { return int64(ui.NodeCount(j)) })
	case 'N':
		return byText(func(j *greylagv1.Job) string { return ui.NodeList(j) })
	case 'l':
		return byNumber(func(j *greylagv1.Job) int64 { return int64(j.TimeLimit.AsDuration()) })
	case 'S', 'M': // the longer it runs, the earlier it began
		return func(a, b *row) int {
			return cmp.Compare(rankTime(ui.StartOf(a.soonest)), rankTime(ui.StartOf(b.soonest)))
		}
	case 'e':
		return func(a, b *row) int { return cmp.Compare(rankTime(ui.EndOf(a.soonest)), rankTime(ui.EndOf(b.soonest))) }
	case 'V':
		return byNumber(func(j *greylagv1.Job) int64 { return j.Submitted.AsTime().UnixNano() })
	case 'p', 'Q':
		return func(a, b *row) int { return cmp.Compare(a.priority, b.priority) }
	case 'y':
		return byNumber(func(j *greylagv1.Job) int64 { return int64(j.Nice) })
	}
	return nil
}

// rankTime orders times; unset times come last.
func rankTime(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// stateOf returns a job's state; 0 for a state of a newer controller that this program does not
// know.
func stateOf(j *greylagv1.Job) cluster.JobState {
	state, err := cluster.ParseJobState(wire.Word(j.State))
	if err != nil {
		return 0
	}
	return state
}

// sortRows sorts rows by the keys, ties by ID. O(n log n); O(n) when they are sorted already.
func sortRows(rows []row, keys []sortKey) {
	compare := make([]func(a, b *row) int, len(keys))
	for i, key := range keys {
		compare[i] = sorter(key.letter)
	}
	slices.SortFunc(rows, func(a, b row) int {
		for i, key := range keys {
			c := compare[i](&a, &b)
			if c != 0 && key.down {
				return -c
			}
			if c != 0 {
				return c
			}
		}
		return cmp.Compare(a.job.Id, b.job.Id)
	})
}
