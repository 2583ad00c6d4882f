package scontrol

import (
	"context"
	"strconv"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
)

// loadSteps begins the message when no controller answers a question about steps.
const loadSteps = "slurm_get_job_steps error: "

// showSteps prints the active steps: all, those of jobs, or some.
func (c command) showSteps(ctx context.Context, args []string) error {
	filter := &greylagv1.Filter{}
	var ids []slurmcmd.StepID
	for _, word := range args {
		more, err := slurmcmd.ParseStepIDs(word)
		if err != nil {
			return err
		}
		for _, id := range more {
			filter.Jobs = append(filter.Jobs, id.Job)
		}
		ids = append(ids, more...)
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadSteps, err)
	}
	defer cl.Close()
	jobs, err := slurmcmd.FetchJobs(ctx, cl, filter, c.Now(), slurmcmd.Whole)
	if err != nil {
		return slurmcmd.Unreachable(loadSteps, err)
	}
	steps := slurmcmd.SelectSteps(jobs, ids)
	switch {
	case len(jobs) == 0 && len(args) > 0:
		return slurmcmd.Message(loadSteps + "Invalid job id specified")
	case len(steps) == 0 && len(args) > 0:
		return slurmcmd.Message("Job step " + ui.Printable(args[0]) + " not found")
	case len(steps) == 0:
		return c.Write("No job steps in the system\n")
	}
	var records []record
	for i := range steps {
		records = append(records, c.stepRecord(&steps[i]))
	}
	return c.writeRecords(records)
}

// stepRecord writes a step as scontrol show step does.
func (c command) stepRecord(s *slurmcmd.Step) record {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return record{
		pairs("StepId", s.FullID(), "UserId", number(int64(s.Job.Uid)), "StartTime", c.Clock().Format(s.Started, "Unknown"), "TimeLimit", "UNLIMITED"),
		pairs("State", "RUNNING", "Partition", s.Job.PartitionText(), "NodeList", slurmcmd.Hosts(s.Nodes)),
		pairs("Nodes", number(int64(len(s.Nodes))), "CPUs", number(s.CPUs), "Tasks", number(s.Tasks), "Name", s.Name, "Network", slurmcmd.Null),
		pairs("TRES", s.TRES()),
		pairs("ResvPorts", slurmcmd.Null),
		pairs("CPUFreqReq", "Default", "Dist", "Block"),
		pairs("SrunHost:Pid", "N/A:0"),
	}
}
