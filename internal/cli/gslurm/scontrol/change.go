package scontrol

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/jobupdate"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// updateFailed begins the message when no controller answers a change.
const updateFailed = "slurm_update error: "

// action returns a command with one action on jobs.
func action(word string) func(c command, ctx context.Context, args []string) error {
	return func(c command, ctx context.Context, args []string) error {
		filter := &greylagv1.Filter{}
		for _, word := range args {
			name, value, assigned := strings.Cut(word, "=")
			switch {
			case assigned && (strings.EqualFold(name, "jobname") || strings.EqualFold(name, "name")):
				filter.Names, filter.Mine = append(filter.Names, value), true
				continue
			case assigned:
				word = value
			}
			refs, err := ui.AppendRefs(filter.Jobs, word)
			if err != nil {
				return &ui.UsageError{Problem: "Invalid job id specified: " + word}
			}
			filter.Jobs = refs
		}
		if len(filter.Jobs)+len(filter.Names) == 0 {
			return &ui.UsageError{Problem: "too few arguments", Advice: "write scontrol " + word + " JOB"}
		}
		return c.change(ctx, &greylagv1.UpdateJobsRequest{Filter: filter, Action: wire.Enum[greylagv1.JobAction](word)})
	}
}

// change changes jobs, and prints what failed.
func (c command) change(ctx context.Context, request *greylagv1.UpdateJobsRequest) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(updateFailed, err)
	}
	defer cl.Close()
	request.RequestId = client.NewRequestID()
	answer, err := cl.Jobs().UpdateJobs(ctx, request)
	if err != nil {
		return slurmcmd.Unreachable(updateFailed, err)
	}
	failed := false
	for _, o := range answer.Outcomes {
		if o.Error == "" {
			continue
		}
		failed = true
		problem := ui.OutcomeProblem(o)
		switch o.Code {
		case greylagv1.ErrorCode_ERROR_CODE_NOT_FOUND:
			problem = "job " + o.Ref + ": Invalid job id specified"
		case greylagv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED:
			problem = "job " + o.Ref + ": Access/permission denied"
		}
		fmt.Fprintf(c.Stderr, "scontrol: error: %s\n", ui.Printable(problem))
	}
	if failed {
		return ui.Exit(ui.Failed)
	}
	return nil
}

// update reads "JobId=12 TimeLimit=60" and "NodeName=n1 State=DRAIN Reason=...".
func (c command) update(ctx context.Context, args []string) error {
	first, value := "", ""
	if len(args) > 0 {
		first, value, _ = strings.Cut(args[0], "=")
	}
	switch first = strings.ToLower(first); first {
	case "nodename", "node":
		return c.updateNodes(ctx, value, args[1:])
	case "partitionname", "partition", "reservationname", "reservation":
		return &ui.UsageError{Problem: "update changes jobs and nodes", Advice: "change partitions and reservations in the policy with gctl apply"}
	}
	request, err := jobupdate.Read(args, c.Now())
	if err != nil {
		return err
	}
	return c.change(ctx, request)
}

// updateNodes drains or resumes nodes.
func (c command) updateNodes(ctx context.Context, list string, args []string) error {
	names, err := hostlist.Expand(list)
	if err != nil || len(names) == 0 {
		return &ui.UsageError{Problem: "invalid node list: " + list}
	}
	request := &greylagv1.UpdateNodesRequest{RequestId: client.NewRequestID(), Names: names}
	for _, word := range args {
		name, value, _ := strings.Cut(word, "=")
		switch strings.ToLower(name) {
		case "state":
			switch strings.ToUpper(value) {
			case "DRAIN", "DOWN", "FAIL":
				request.Action = greylagv1.NodeAction_NODE_ACTION_DRAIN
			case "RESUME", "UNDRAIN", "IDLE":
				request.Action = greylagv1.NodeAction_NODE_ACTION_RESUME
			default:
				return &ui.UsageError{Problem: "Invalid input: " + word, Advice: "the states are DRAIN and RESUME"}
			}
		case "reason":
			request.Reason = value
		default:
			return &ui.UsageError{Problem: name + " of a node cannot be changed", Advice: "nodes describe themselves: change gnoded.toml"}
		}
	}
	switch {
	case request.Action == greylagv1.NodeAction_NODE_ACTION_UNSPECIFIED:
		return &ui.UsageError{Problem: "no state given", Advice: "write State=DRAIN Reason=TEXT, or State=RESUME"}
	case request.Action == greylagv1.NodeAction_NODE_ACTION_DRAIN && request.Reason == "":
		return &ui.UsageError{Problem: "You must specify a reason when DOWNING or DRAINING a node. Request denied", Advice: "add Reason=TEXT"}
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(updateFailed, err)
	}
	defer cl.Close()
	_, err = cl.Cluster().UpdateNodes(ctx, request)
	return slurmcmd.Unreachable(updateFailed, err)
}

// ping prints which controllers answer.
func (c command) ping(ctx context.Context, _ []string) error {
	cl, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if ui.NoAnswer(err) {
		if err := c.Write("Slurmctld(primary) is DOWN\n"); err != nil {
			return err
		}
		return ui.Exit(ui.Failed)
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, m := range status.Members {
		role, up := "primary", "UP"
		if !m.Leader {
			role = fmt.Sprintf("backup%d", i)
		}
		if !m.Leader && m.LastContact.AsDuration() > downAfter {
			up = "DOWN"
		}
		fmt.Fprintf(&b, "Slurmctld(%s) at %s is %s\n", role, cmp.Or(m.Name, m.Id), up)
	}
	return c.Write(b.String())
}

// downAfter is how long a controller may be silent.
const downAfter = 5e9

// waitJob waits until the nodes of a job are ready.
func (c command) waitJob(ctx context.Context, args []string) error {
	refs, err := ui.Refs(args)
	if err != nil || len(refs) != 1 {
		return &ui.UsageError{Problem: "wait_job needs one job", Advice: "write scontrol wait_job JOB"}
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	defer cl.Close()
	answer, err := cl.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: refs[0]})
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	ready, ended := waited(answer.Jobs)
	if !ready && !ended {
		err = cl.Watch(ctx, &greylagv1.WatchJobsRequest{Filter: &greylagv1.Filter{Jobs: refs}, UntilEnded: true}, func(m *greylagv1.WatchJobsResponse) error {
			if ready, ended = waited(m.Jobs); ready || ended {
				return errReady
			}
			return nil
		})
	}
	switch {
	case ready:
		return c.Write("Job " + refs[0] + " nodes are ready\n")
	case err != nil && !ended:
		return slurmcmd.Unreachable(loadJobs, err)
	}
	return &ui.UsageError{Problem: "job " + refs[0] + " has ended"}
}

const errReady = slurmcmd.Message("ready")

func waited(jobs []*greylagv1.Job) (ready, ended bool) {
	for _, j := range jobs {
		state, err := cluster.ParseJobState(wire.Word(j.State))
		ready = ready || err == nil && state == cluster.Running
		ended = ended || err == nil && state.Final()
	}
	return ready, ended
}

// write writes the batch script of a job to a file: slurm-JOB.sh, or standard output for a dash.
func (c command) write(ctx context.Context, args []string) error {
	if len(args) < 2 || !strings.HasPrefix("batch_script", args[0]) {
		return &ui.UsageError{Problem: "write needs batch_script and a job", Advice: "write scontrol write batch_script JOB [FILE]"}
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	defer cl.Close()
	answer, err := cl.Jobs().GetScript(ctx, &greylagv1.GetScriptRequest{Job: args[1]})
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	file := "slurm-" + args[1] + ".sh"
	if len(args) > 2 {
		file = args[2]
	}
	if file == "-" {
		return c.Write(string(answer.Script))
	}
	if err := os.WriteFile(file, answer.Script, 0o600); err != nil {
		return err
	}
	return c.Write(fmt.Sprintf("batch script for job %s written to %s\n", args[1], file))
}
