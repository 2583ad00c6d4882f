// Package top is gctl top: partitions, the queue and the user's own jobs on one screen, which is
// drawn again when one of these jobs changes and at an interval.
package top

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	maxOwn       = 1000        // the user's jobs that are fetched
	leastPause   = time.Second // between two screens
	minPartition = 3           // partitions that are shown however small the screen is
	defaultRows  = 24
)

// command is one run of gctl top.
type command struct {
	*tool.Tool
	every time.Duration
	once  bool
}

// Command returns gctl top.
func Command(t *tool.Tool) *cobra.Command {
	p := &command{Tool: t}
	seconds := 0
	c := &cobra.Command{
		Use: "top", Short: "Watch nodes, GPUs, the queue and your jobs", GroupID: tool.GroupInspect, Args: noJobs,
		Long: "Shows each partition with its nodes by state and its GPUs, the length of the queue,\nand your jobs. The screen is drawn again when one of your jobs changes, and every\n--interval seconds. The key q and Ctrl-C quit. With --once, and where the output is\nno terminal, it prints one screen in full.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			if seconds < 1 {
				return &ui.UsageError{Problem: fmt.Sprintf("--interval %d: want 1 or more seconds", seconds), Advice: "gctl top --once prints one screen"}
			}
			if t.JSON {
				return &ui.UsageError{Problem: "gctl top does not print JSON", Advice: "use gctl info --json and gqueue --me --json"}
			}
			p.every = time.Duration(seconds) * time.Second
			return p.run(ctx, c)
		}),
	}
	c.Flags().IntVarP(&seconds, "interval", "i", 5, "seconds between two screens without changes of your jobs")
	c.Flags().BoolVar(&p.once, "once", false, "print one screen, of all your jobs, and end")
	t.AddStaleFlag(c)
	return c
}

// noJobs refuses arguments: scontrol top JOB raises the priority of a job.
func noJobs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &ui.UsageError{Problem: fmt.Sprintf("%s takes no arguments, got %q", c.CommandPath(), args[0]), Advice: "an operator raises a job with gctl update job JOB nice=-N"}
}

func (p *command) run(ctx context.Context, c ui.Cluster) error {
	if p.once || !p.ToTerminal() {
		s, err := p.fetch(ctx, c)
		if err != nil {
			return err
		}
		p.TellStale(s.info.AsOf)
		width, _ := p.Width()
		_, err = io.WriteString(p.Stdout, strings.Join(p.screen(s, width, 0), "\n")+"\n")
		return err
	}
	return p.watch(ctx, c)
}

// state is what one screen shows.
type state struct {
	info *greylagv1.GetInfoResponse
	jobs []*greylagv1.Job // the user's, by ID; at most maxOwn
	more bool             // there are more of them
}

// fetch asks for the present state.
func (p *command) fetch(ctx context.Context, c ui.Cluster) (state, error) {
	info, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: p.Read()})
	if err != nil {
		return state{}, err
	}
	jobs, err := c.Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Mine: true}, PageSize: maxOwn, Brief: true, Read: p.Read()})
	if err != nil {
		return state{}, err
	}
	return state{info: info, jobs: jobs.Jobs, more: jobs.NextPageToken != ""}, nil
}

// screen returns the lines of a screen; height 0 is any number of lines.
func (p *command) screen(s state, width, height int) []string {
	parts, jobs := p.partitions(s.info), p.jobs(s)
	head := fmt.Sprintf("%s running, %d pending", ui.Count(s.info.RunningJobs, "job"), s.info.PendingJobs)
	at := p.Now().Format(ui.TimeLayout)
	lines := []string{head + strings.Repeat(" ", max(width-len(head)-len(at), 1)) + at, ""}
	if height > 0 {
		free := height - len(lines) - 1 // a blank line between the tables
		parts.Rows = cut(parts.Rows, max(free-len(jobs.Rows)-2, min(free/2, minPartition)), 0, "partition")
		jobs.Rows = cut(jobs.Rows, max(free-len(parts.Rows)-2, 0), 1, "job")
	}
	lines = append(lines, parts.Lines(width)...)
	lines = append(lines, "")
	if len(s.jobs) == 0 {
		lines = append(lines, "you have no jobs in the queue")
	} else {
		lines = append(lines, jobs.Lines(width)...)
	}
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	return lines
}

// cut keeps the first rows. The last one that is kept says in a column how many are not shown.
func cut(rows [][]string, most, column int, noun string) [][]string {
	if len(rows) <= most || most < 1 {
		return rows[:min(len(rows), max(most, 0))]
	}
	more := make([]string, len(rows[0]))
	more[column] = "and " + ui.Count(int64(len(rows)-most+1), "more "+noun)
	return append(rows[:most-1:most-1], more)
}

// partitions is the table of partitions with their nodes by state.
func (p *command) partitions(info *greylagv1.GetInfoResponse) ui.Table {
	t := ui.Table{Head: []string{"PARTITION", "NODES", "IDLE", "USED", "OTHER", "GPUS", "USED", "CPUS", "USED"}, Right: "lrrrrrrrr", Wide: []int{0}}
	for _, part := range info.Partitions {
		var n, idle, used, other, gpus, gpusUsed, cpus, cpusUsed int32
		for _, g := range part.Groups {
			n, gpus, gpusUsed, cpus, cpusUsed = n+g.Nodes, gpus+g.GpusTotal, gpusUsed+g.GpusUsed, cpus+g.CpusTotal, cpusUsed+g.CpusUsed
			switch wire.Word(g.State) {
			case cluster.NodeIdle.String():
				idle += g.Nodes
			case cluster.NodeMixed.String(), cluster.NodeAllocated.String():
				used += g.Nodes
			default:
				other += g.Nodes
			}
		}
		row := []string{part.Name}
		for _, x := range []int32{n, idle, used, other, gpus, gpusUsed, cpus, cpusUsed} {
			row = append(row, strconv.Itoa(int(x)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// jobs is the table of the user's jobs, those with nodes first.
func (p *command) jobs(s state) ui.Table {
	t := ui.Table{Head: []string{"JOBID", "NAME", "PARTITION", "STATE", "TIME", "START OR REASON"}, Right: "rllll", Wide: []int{1, 2}}
	for _, pending := range []bool{false, true} {
		for _, j := range s.jobs {
			if (wire.Word(j.State) == cluster.Pending.String()) == pending {
				t.Rows = append(t.Rows, p.job(j))
			}
		}
	}
	if s.more {
		t.Rows = append(t.Rows, []string{"...", "gqueue --me lists all", "", "", "", ""})
	}
	return t
}

func (p *command) job(j *greylagv1.Job) []string {
	when, ran := "", "-"
	switch {
	case wire.Word(j.State) != cluster.Pending.String():
		if j.Started != nil {
			when, ran = p.FormatTime(j.Started), cluster.FormatElapsed(max(p.Now().Sub(j.Started.AsTime()), 0))
		}
	case j.Planned != nil:
		when = "planned " + p.FormatTime(j.Planned)
		if j.Promised {
			when = "promised " + p.FormatTime(j.Planned)
		}
	default:
		when = wire.Word(j.Reason)
	}
	return []string{j.Ref, j.Name, j.Partition, wire.Word(j.State), ran, when}
}
