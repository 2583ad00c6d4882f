// Package acct prints finished and active jobs, as sacct does.
//
// It decides, from a question and the cluster's answer to it, which lines are printed
// and what stands in their columns, by sacct's names for them. It keeps no more of an
// answer than the first few thousand jobs: a question about millions needs no more memory
// than one about those. It never decides who may see what.
package acct

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
)

// Question is which jobs are meant.
type Question struct {
	Filter       *greylagv1.Filter
	Since, Until time.Time // zero: no bound
	// AtTheTime: PENDING and RUNNING mean at some time of the interval, not now.
	AtTheTime bool
	Groups    []uint32 // of the job's group; nil: all
	Clusters  []string // names of clusters; nil: this one
}

// Style is how the answer is printed.
type Style struct {
	Format    string // fields, as -o takes them
	Layout    Layout
	Delimiter string // of Parsable and Parsable2
	NoHeader  bool
	Earlier   bool   // a line for each earlier attempt of a job, too
	Truncate  bool   // times outside the interval are cut to it
	Unit      byte   // of sizes: K, M, G, T or P; Unconverted; 0: as is usual
	Steps     bool   // a line for the script and for each step of a job that ran, too
	Slurm     *Slurm // as sacct prints it, with steps if it says so; nil: as gctl acct does
}

// Unconverted has sizes in the unit in which they are kept: memory that was asked for or
// given in M, peaks in K.
const Unconverted = 'c'

// Layout is how fields are set apart.
type Layout uint8

// The layouts.
const (
	Columns   Layout = iota // in columns; what is too long ends with "+"
	Parsable                // with a delimiter behind each field
	Parsable2               // with a delimiter between fields
	JSON
)

// Print asks and prints the lines as they come. found is how many jobs there were. What
// was printed before an error is the beginning of the answer.
func Print(ctx context.Context, p *ui.Process, c ui.Cluster, q Question, s Style) (found int, err error) {
	columns, err := parseFormat(s.Format)
	if err != nil {
		return 0, err
	}
	in := &setting{now: p.Now(), unit: s.Unit, groups: map[uint32]string{}, slurm: s.Slurm}
	if s.Truncate {
		in.since, in.until = q.Since, q.Until
	}
	if len(q.Clusters) > 0 || slices.ContainsFunc(columns, func(f field) bool { return f.name == "Cluster" }) {
		status, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
		if err != nil {
			return 0, err
		}
		in.cluster = status.Cluster
		if len(q.Clusters) > 0 && !slices.Contains(q.Clusters, in.cluster) {
			return 0, &ui.UsageError{Problem: "no such cluster: " + strings.Join(q.Clusters, ","), Advice: "omit --clusters: this is cluster " + in.cluster}
		}
	}
	request := &greylagv1.StreamHistoryRequest{Filter: q.Filter, StatesInInterval: q.AtTheTime, Since: stamp(q.Since), Until: stamp(q.Until)}
	stream, err := c.History().StreamHistory(ctx, request)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	w := newWriter(p.Stdout, columns, s)
	first := sorter{w: w, in: in, over: s.Layout == JSON}
	for stream.Receive() {
		m := stream.Msg()
		w.begin(m)
		for _, job := range m.Jobs {
			if (q.Groups == nil || slices.Contains(q.Groups, job.GetJob().GetGid())) && s.Slurm.selects(job) {
				found++
				first.add(job)
			}
		}
		if w.err != nil { // the reader is gone
			return found, w.err
		}
	}
	first.end()
	if err := stream.Err(); err != nil {
		_ = w.out.Flush() // that it is cut off matters more
		return found, err
	}
	return found, w.end()
}

// mostSorted is how many jobs are kept to be printed in order of id: some megabytes.
const mostSorted = 5000

// sorter prints jobs in order of id, as sacct does, when they are few enough to be kept.
type sorter struct {
	w       *writer
	in      *setting
	jobs    []*greylagv1.PastJob
	over    bool          // there are too many, or their order does not matter: they are printed as they come
	pending pendingArrays // which sacct prints in one line each
}

func (s *sorter) add(job *greylagv1.PastJob) {
	switch {
	case s.in.slurm.folds(job):
		s.pending.add(job)
	case s.over:
		s.w.job(s.in, job)
	case len(s.jobs) == mostSorted:
		s.over = true
		s.print()
		s.w.job(s.in, job)
	default:
		s.jobs = append(s.jobs, job)
	}
}

func (s *sorter) end() {
	s.jobs = append(s.jobs, s.pending.list()...)
	slices.SortStableFunc(s.jobs, func(a, b *greylagv1.PastJob) int { return cmp.Compare(a.GetJob().GetId(), b.GetJob().GetId()) })
	s.print()
}

func (s *sorter) print() {
	for _, job := range s.jobs {
		s.w.job(s.in, job)
	}
	s.jobs = nil
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// writer prints lines. Its first error is kept, and ends it.
type writer struct {
	out     *bufio.Writer
	columns []field
	style   Style
	begun   bool
	lines   int // of JSON
	err     error
}

func newWriter(out io.Writer, columns []field, s Style) *writer {
	return &writer{out: bufio.NewWriterSize(out, 64<<10), columns: columns, style: s}
}

func (w *writer) print(text string) {
	if w.err == nil {
		_, w.err = w.out.WriteString(text)
	}
}

// begin prints what stands above the lines, once.
func (w *writer) begin(m *greylagv1.StreamHistoryResponse) {
	if w.begun {
		return
	}
	w.begun = true
	if w.style.Layout == JSON {
		w.head(m)
		return
	}
	if w.style.NoHeader {
		return
	}
	w.line(func(f *field) string { return f.name })
	if w.style.Layout == Columns {
		w.line(func(f *field) string { return strings.Repeat("-", max(f.width, -f.width)) })
	}
}

// job prints the lines of a job: its earlier attempts, if they are wanted, and it.
func (w *writer) job(in *setting, job *greylagv1.PastJob) {
	if job.Job == nil {
		return
	}
	if w.style.Layout == JSON {
		w.object(job)
		return
	}
	var rows []*row
	if w.style.Earlier {
		for _, a := range job.Attempts {
			rows = append(rows, in.rowOf(job, a))
		}
	}
	rows = w.style.withSteps(append(rows, in.rowOf(job, nil)))
	for _, r := range rows {
		w.line(func(f *field) string {
			if f.write == nil {
				return ""
			}
			return f.write(r)
		})
	}
}

// line prints one line.
func (w *writer) line(cell func(*field) string) {
	var b strings.Builder
	for i := range w.columns {
		f := &w.columns[i]
		text := ui.Printable(cell(f))
		if w.style.Layout == Columns {
			text = fit(text, f.width) + " "
		} else if w.style.Layout == Parsable || i < len(w.columns)-1 {
			text += w.style.Delimiter
		}
		b.WriteString(text)
	}
	text := b.String()
	if w.style.Layout == Columns {
		text = strings.TrimRight(text, " ")
	}
	w.print(text + "\n")
}

// fit makes text as wide as a column; what is cut off is marked by "+".
func fit(text string, width int) string {
	most := max(width, -width)
	runes := []rune(text)
	if len(runes) > most {
		return string(runes[:most-1]) + "+"
	}
	return fmt.Sprintf("%*s", width, text)
}

// end prints what stands below the lines.
func (w *writer) end() error {
	if w.style.Layout == JSON {
		w.print("\n]}\n")
	}
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}
