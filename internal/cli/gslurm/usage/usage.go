// Package usage shows what jobs use under Slurm's names: sstat for running jobs, seff for ended ones.
//
// It decides which measurements of a job's nodes stand for those of its batch step.
package usage

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/acct"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

func row(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
	return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
}

const same, nothing, refused = slurmcmd.Same, slurmcmd.Nothing, slurmcmd.Refused

// SstatProgram is the description of sstat.
func SstatProgram() slurmcmd.Program {
	return slurmcmd.Program{
		Name: "sstat", Usage: "[OPTIONS] -j JOB[.STEP]", Summary: "Shows what the steps of running jobs use.",
		Options: []slurmcmd.Option{
			row("allsteps", 'a', "", same, "", "all steps of the jobs"),
			row("format", 'o', "FIELDS", same, "", "columns: JobID,MaxRSS,AveCPU", "fields"),
			row("helpformat", 'e', "", same, "", "list the fields"),
			row("jobs", 'j', "IDS", same, "", "these jobs or steps"),
			row("noconvert", 0, "", same, "", "sizes without conversion"),
			row("noheader", 'n', "", same, "", "no header line"),
			row("parsable", 'p', "", same, "", "fields separated by |, with one at the end"),
			row("parsable2", 'P', "", same, "", "fields separated by |"),
			row("pidformat", 'i', "", refused, "process IDs are those of a job's own name space", ""),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
		},
		Notes: []string{"The measurements are those of a job's nodes; they lag by some seconds."},
	}
}

// SeffProgram is the description of seff.
func SeffProgram() slurmcmd.Program {
	return slurmcmd.Program{
		Name: "seff", Usage: "JOB", Summary: "Shows how a job used its CPUs and memory.",
		Options: []slurmcmd.Option{
			{Option: getopt.Option{Long: "debug", Short: 'd'}, Effect: nothing, Note: "it only prints more"},
			{Option: getopt.Option{Long: "file", Short: 'f', Value: "FILE"}, Effect: refused, Note: "name the job"},
		},
		Notes: []string{"GPUs have a line of their own: how busy they were."},
	}
}

// RunSstat runs sstat and returns its exit status.
func RunSstat(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, SstatProgram())
	return c.Finish(ctx, slurmcmd.Unreachable("sstat: error: ", sstat(ctx, c)))
}

// usualStat are the fields of sstat without -o.
const usualStat = "JobID,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks"

func sstat(ctx context.Context, c *slurmcmd.Command) error {
	found, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	values := map[string][]string{"allusers": {""}, "format": {usualStat}}
	var jobs []string
	for _, f := range found {
		switch f.Option.Long {
		case "jobs":
			operands = append(operands, strings.Split(f.Value, ",")...)
		case "helpformat":
			return c.Write(acct.HelpFormat())
		case "format":
			values["format"] = []string{f.Value}
		default:
			values[f.Option.Long] = append(values[f.Option.Long], f.Value)
		}
	}
	for _, word := range operands {
		job, _, _ := strings.Cut(word, ".")
		jobs = append(jobs, job)
	}
	if len(jobs) == 0 {
		return &ui.UsageError{Problem: "no job given", Advice: "write sstat -j JOB"}
	}
	values["jobs"] = jobs
	q, style, err := acct.SlurmQuestion(func(long string) []string { return values[long] }, c.Now(), c.Environ)
	if err != nil {
		return err
	}
	clock := c.Clock()
	style.Slurm = &acct.Slurm{
		Time: func(t time.Time) string { return clock.Format(t, "") }, Steps: true, Single: true,
		Select: func(j *greylagv1.Job) bool { return j.State == greylagv1.JobState_JOB_STATE_RUNNING },
		Wanted: func(_, step string) bool { return step != "" },
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	out := c.Stdout
	var text bytes.Buffer
	c.Stdout = &text
	count, err := acct.Print(ctx, c.Process, cl, q, style)
	c.Stdout = out
	switch {
	case err != nil:
		return err
	case count == 0: // without the header
		return &ui.UsageError{Problem: "no steps running for job " + strings.Join(jobs, ","), Advice: "sacct shows ended jobs"}
	}
	return c.Write(text.String())
}

// RunSeff runs seff and returns its exit status.
func RunSeff(ctx context.Context, p *ui.Process) int {
	c := slurmcmd.New(p, SeffProgram())
	return c.Finish(ctx, slurmcmd.Unreachable("seff: error: ", seff(ctx, c)))
}

func seff(ctx context.Context, c *slurmcmd.Command) error {
	_, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	refs, err := ui.Refs(operands)
	if err != nil || len(refs) != 1 {
		return &ui.UsageError{Problem: "one job is needed", Advice: "write seff JOB"}
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	answer, err := cl.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: refs[0]})
	if err != nil || len(answer.Jobs) == 0 {
		if ui.NoAnswer(err) {
			return err
		}
		return slurmcmd.Message("Job not found.")
	}
	rows := slurmcmd.Fold(answer.Jobs[:1], true)
	return c.Write(efficiency(&rows[0], status.Cluster, c.Now()))
}

// efficiency describes how a job used what it had.
func efficiency(j *slurmcmd.Job, clusterName string, now time.Time) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		b.WriteString(ui.Printable(name+": "+fmt.Sprintf(format, args...)) + "\n")
	}
	line("Job ID", "%d", j.Id)
	if j.ArrayId != 0 {
		line("Array Job ID", "%s", j.ID())
	}
	line("Cluster", "%s", clusterName)
	line("User/Group", "%s/%s", j.User, slurmcmd.GroupName(j.Gid))
	state := j.State.String()
	if j.State.Final() {
		state = fmt.Sprintf("%s (exit code %d)", state, j.ExitCode)
	}
	line("State", "%s", state)
	if !j.HasNodes() {
		b.WriteString("Efficiency not available for jobs in the " + j.State.String() + " state.\n")
		return b.String()
	}
	cpus, wall := ui.CPUCount(j.Job), ui.Elapsed(j.Job, now).Truncate(time.Second)
	if len(j.Nodes) > 1 {
		line("Nodes", "%d", len(j.Nodes))
		line("Cores per node", "%d", cpus/int64(len(j.Nodes)))
	} else {
		line("Cores", "%d", cpus)
	}
	var used time.Duration
	var peak, given int64
	for _, t := range j.Tasks {
		used, peak = used+t.CpuTime.AsDuration(), peak+t.MemoryPeak
	}
	for _, n := range j.Nodes {
		given += n.Memory
	}
	used += j.Members.GetLeft().GetCpuTime().AsDuration()
	total := wall * time.Duration(cpus)
	if ms, resized := ui.CPUMillis(j.Job, j.Started.AsTime().Add(wall)); resized {
		total = time.Duration(ms) * time.Millisecond
	}
	line("CPU Utilized", "%s", slurmcmd.LongLength(used))
	line("CPU Efficiency", "%s of %s core-walltime", percent(int64(used), int64(total)), slurmcmd.LongLength(total))
	line("Job Wall-clock time", "%s", slurmcmd.LongLength(wall))
	line("Memory Utilized", "%s", sizeText(peak))
	line("Memory Efficiency", "%s of %s", percent(peak, given), sizeText(given))
	if slices.ContainsFunc(j.Nodes, func(n *greylagv1.NodeAllocation) bool { return len(n.Gpus) > 0 }) {
		line("GPU Utilization", "%s%%", ui.BusyPercent(ui.GPUUseOf(j.Tasks)))
	}
	if !j.State.Final() {
		b.WriteString("The job has not ended: its values still change.\n")
	}
	return b.String()
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(whole))
}

// sizeText writes memory with two digits: 1.50 GB.
func sizeText(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for ; f >= float64(cluster.KiB) && i < len(units)-1; i++ {
		f /= float64(cluster.KiB)
	}
	return fmt.Sprintf("%.2f %s", f, units[i])
}
