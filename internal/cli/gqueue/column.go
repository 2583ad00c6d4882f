package gqueue

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// column is one field of a line of the queue.
type column struct {
	ui.Column
	letter byte
	colour bool
	field  *field
}

// view is what the fields need in addition to the job.
type view struct {
	now    time.Time
	short  bool   // times without the year and seconds
	begin  bool   // show the earliest start of a job that may not start yet
	starts starts // where they are shown
}

// instant formats an instant.
func (v view) instant(dst []byte, t time.Time) []byte {
	switch {
	case t.IsZero():
		return append(dst, "N/A"...)
	case v.short:
		return t.In(v.now.Location()).AppendFormat(dst, "01-02T15:04")
	}
	return t.In(v.now.Location()).AppendFormat(dst, ui.TimeLayout)
}

// when formats a time of the API.
func (v view) when(t *timestamppb.Timestamp) string { return string(v.instant(nil, ui.TimeOf(t))) }

// field formats one property of a job.
type field struct {
	letter byte
	head   string
	help   string
	write  func(dst []byte, v view, r *row) []byte
}

// text returns a field for a string of a job.
func text(get func(*greylagv1.Job) string) func([]byte, view, *row) []byte {
	return func(dst []byte, _ view, r *row) []byte { return ui.AppendPrintable(dst, get(r.job)) }
}

// number returns a field for a number of a job.
func number(get func(*greylagv1.Job) int64) func([]byte, view, *row) []byte {
	return func(dst []byte, _ view, r *row) []byte { return strconv.AppendInt(dst, get(r.job), 10) }
}

// instant returns a field for an instant, of the element that starts first.
func instant(get func(*greylagv1.Job) time.Time) func([]byte, view, *row) []byte {
	return func(dst []byte, v view, r *row) []byte { return v.instant(dst, get(r.soonest)) }
}

// fields are the letters of -o, with squeue's meaning.
func fields() []field {
	return append(slices.Concat(identityFields(), startFields(), priorityFields(), textFields()), []field{
		{'t', "ST", "state, short", func(dst []byte, _ view, r *row) []byte {
			if r.state == 0 {
				return append(dst, '?')
			}
			return append(dst, r.state.Code()...)
		}},
		{'T', "STATE", "state", text(func(j *greylagv1.Job) string { return wire.Word(j.State) })},
		{'r', "REASON", "reason", text(func(j *greylagv1.Job) string { return ui.ReasonText(j) })},
		{'R', "NODELIST(REASON)", "nodes, or the reason", func(dst []byte, v view, r *row) []byte {
			if v.begin && wire.Word(r.job.Reason) == cluster.ReasonBeginTime.String() && r.job.Eligible != nil {
				return append(v.instant(append(dst, "(BeginTime "...), ui.TimeOf(r.job.Eligible)), ')')
			}
			return ui.AppendNodesOrReason(dst, r.job)
		}},
		{'M', "TIME", "time used", func(dst []byte, v view, r *row) []byte {
			if d := ui.Elapsed(r.job, v.now); d > 0 {
				return append(dst, cluster.FormatElapsed(d)...)
			}
			return append(dst, "0:00"...) // most rows, without the cost
		}},
		{'l', "TIME_LIMIT", "time limit", func(dst []byte, _ view, r *row) []byte {
			return append(dst, ui.LimitText(r.job)...)
		}},
		{'L', "TIME_LEFT", "time left", func(dst []byte, v view, r *row) []byte {
			limit := r.job.TimeLimit.AsDuration()
			switch {
			case r.state.Final():
				limit = 0
			case limit == 0:
				return append(dst, "UNLIMITED"...)
			}
			return append(dst, cluster.FormatElapsed(limit-ui.Elapsed(r.job, v.now))...)
		}},
		{'S', "START_TIME", "start, or planned start", instant(ui.StartOf)},
		{'G', "PROMISED", "start is promised", func(dst []byte, _ view, r *row) []byte {
			if r.soonest.Promised {
				return append(dst, "yes"...)
			}
			return append(dst, '-')
		}},
		{'e', "END_TIME", "end, or latest end", instant(ui.EndOf)},
		{'V', "SUBMIT_TIME", "submission", instant(func(j *greylagv1.Job) time.Time { return j.Submitted.AsTime() })},
		{'D', "NODES", "number of nodes", func(dst []byte, v view, r *row) []byte {
			if planned := v.starts[r.soonest.Ref].GetHosts(); len(planned) > 0 { // which are listed next to it
				return strconv.AppendInt(dst, int64(len(planned)), 10)
			}
			return strconv.AppendInt(dst, int64(ui.NodeCount(r.job)), 10)
		}},
		{'=', "NODE_RANGE", "range of nodes", text(ui.NodeRange)},
		{'N', "NODELIST", "nodes", text(func(j *greylagv1.Job) string { return ui.NodeList(j) })},
		{'C', "CPUS", "CPUs", number(ui.CPUCount)},
		{'+', "TRES_ALLOC", "allocated resources", text(ui.TRESText)},
		{'b', "TRES_PER_NODE", "GPUs per node", text(ui.GPUText)},
		{'m', "MIN_MEMORY", "memory", text(ui.MemoryText)},
		{'E', "DEPENDENCY", "dependencies", text(func(j *greylagv1.Job) string { return ui.DependencyText(j.Depends) })},
		{'f', "FEATURES", "requested features", text(func(j *greylagv1.Job) string { return orNull(cluster.FormatFeatures(j.Request.GetFeatures())) })},
		{'n', "REQ_NODES", "requested nodes", text(func(j *greylagv1.Job) string { return hostlist.Compress(j.Request.GetNodeList()) })},
		{'x', "EXC_NODES", "nodes excluded", text(func(j *greylagv1.Job) string { return hostlist.Compress(j.Request.GetExclude()) })},
		{'y', "NICE", "nice value", number(func(j *greylagv1.Job) int64 { return int64(j.Nice) })},
		{'Z', "WORK_DIR", "working directory", text((*greylagv1.Job).GetWorkDir)},
	}...)
}

func textFields() (all []field) {
	for _, p := range ui.JobProperties() {
		all = append(all, field{p.Letter, strings.ToUpper(p.Name), p.Help, text(func(j *greylagv1.Job) string { return orNull(p.Of(j)) })})
	}
	return all
}

func identityFields() []field {
	return []field{
		{'i', "JOBID", "id", func(dst []byte, _ view, r *row) []byte { return appendRef(dst, r) }},
		{'A', "JOBID", "numeric ID", number(func(j *greylagv1.Job) int64 { return int64(j.Id) })},
		{'F', "ARRAY_JOB_ID", "ID of the array", number(func(j *greylagv1.Job) int64 {
			if j.ArrayId == 0 {
				return int64(j.Id)
			}
			return int64(j.ArrayId)
		})},
		{'K', "ARRAY_TASK_ID", "index in the array", func(dst []byte, _ view, r *row) []byte {
			switch {
			case r.job.ArrayId == 0:
				return append(dst, "N/A"...)
			case r.indices != nil:
				return ui.AppendIndices(dst, r.indices)
			}
			return strconv.AppendInt(dst, int64(r.job.ArrayIndex), 10)
		}},
		{'j', "NAME", "name", text(func(j *greylagv1.Job) string { return cmp.Or(j.Name, "-") })},
		{'u', "USER", "user", text((*greylagv1.Job).GetUser)},
		{'U', "UID", "user ID", number(func(j *greylagv1.Job) int64 { return int64(j.Uid) })},
		{'a', "ACCOUNT", "account", text(func(j *greylagv1.Job) string { return orNull(j.Account) })},
		{'P', "PARTITION", "partition", text(partitionText)},
		{'q', "QOS", "priority class", text((*greylagv1.Job).GetQos)},
	}
}

// partitionText returns all partitions of a pending job, as squeue shows them, and the one in which
// a job runs or ran.
func partitionText(j *greylagv1.Job) string {
	if wire.Word(j.State) != cluster.Pending.String() || len(j.OtherPartitions) == 0 {
		return j.Partition
	}
	return j.Partition + "," + strings.Join(j.OtherPartitions, ",")
}

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}

// endsWithDots reports whether a truncated column ends with dots: an ID or a list of nodes.
func endsWithDots(letter byte) bool { return letter == 'i' || letter == 'Y' }

// fieldOf finds a field by its letter; nil if the letter is unknown.
func fieldOf(all []field, letter byte) *field {
	for i := range all {
		if all[i].letter == letter {
			return &all[i]
		}
	}
	return nil
}

// queueLetters is the part of gqueue's help about -o.
func queueLetters() string {
	var b strings.Builder
	b.WriteString("\nLetters of -o, as in %8j (eight columns) and %.8j (right-aligned):\n")
	for i, f := range fields() {
		fmt.Fprintf(&b, "  %%%c %-20s", f.letter, f.help)
		if i%3 == 2 {
			b.WriteByte('\n')
		}
	}
	return strings.TrimRight(b.String(), " \n") + "\n"
}

// parseFormat reads a format of squeue: text with fields %[[.]width]letter.
func parseFormat(format string) ([]column, error) {
	all := fields()
	var columns []column
	before := ""
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			before += format[i : i+1]
			continue
		}
		c := column{Column: ui.Column{Before: ui.Printable(before)}}
		before = ""
		i++
		if i < len(format) && format[i] == '.' {
			c.Right = true
			i++
		}
		digits := i
		for i < len(format) && format[i] >= '0' && format[i] <= '9' {
			i++
		}
		c.Width, _ = strconv.Atoi(format[digits:i])
		if i == len(format) || c.Width > ui.MostWidth || i-digits > 3 {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("not a format: %q", format), Advice: `write fields such as "%.10i %9P %.8j %t %R"`}
		}
		c.letter = format[i]
		if c.field = fieldOf(all, c.letter); c.field == nil {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("unknown field %q in the format %q", "%"+format[i:i+1], format), Advice: "gqueue --help lists the letters"}
		}
		c.Dots = endsWithDots(c.letter)
		columns = append(columns, c)
	}
	if len(columns) == 0 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("the format %q has no field", format), Advice: `write fields such as "%.10i %9P %.8j %t %R"`}
	}
	if before != "" {
		columns = append(columns, column{Column: ui.Column{Before: ui.Printable(before)}, field: &field{write: func(dst []byte, _ view, _ *row) []byte { return dst }}})
	}
	return columns, nil
}

// writeHeader writes the line of headings.
func writeHeader(out *bufio.Writer, columns []column) {
	var line []byte
	for i := range columns {
		line = columns[i].Append(line, func(dst []byte) []byte { return append(dst, columns[i].field.head...) }, i == len(columns)-1)
	}
	out.Write(append(line, '\n')) // an error shows at Flush
}

// writeRow appends one line.
func writeRow(line []byte, columns []column, v view, r *row) []byte {
	for i := range columns {
		c := &columns[i]
		line = c.Append(line, func(dst []byte) []byte { return c.field.write(dst, v, r) }, i == len(columns)-1)
		if c.colour {
			line = paint(line, r.state, c.Width)
		}
	}
	return append(line, '\n')
}
