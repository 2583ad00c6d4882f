package gctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/jobupdate"
	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
)

func (t commands) hold() *cobra.Command {
	return t.simple("hold", "Hold pending jobs", "held")
}

func (t commands) release() *cobra.Command {
	return t.simple("release", "Release held jobs", "released")
}

func (t commands) requeue() *cobra.Command {
	held := false
	c := t.simple("requeue", "Requeue running jobs; resubmit jobs that have ended", "requeued")
	c.Flags().BoolVar(&held, "hold", false, "hold the jobs from then on, until gctl release")
	plain, hold := c.RunE, t.simple("requeue-hold", "", "requeued and held").RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if held {
			return hold(c, args)
		}
		return plain(c, args)
	}
	return c
}

// simple is a command with one action on jobs.
func (t commands) simple(verb, short, done string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " JOB...", Short: short, GroupID: tool.GroupJobs, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			refs, err := ui.Refs(args)
			if err != nil {
				return err
			}
			if verb == "release" {
				if err := t.tellFree(ctx, c, refs); err != nil {
					return err
				}
			}
			return t.send(ctx, c, done, &greylagv1.UpdateJobsRequest{Filter: &greylagv1.Filter{Jobs: refs}, Action: wire.Enum[greylagv1.JobAction](verb)})
		}),
	}
}

// tellFree notes which of the jobs to be released are not held: no failure, but perhaps not
// intended.
func (t commands) tellFree(ctx context.Context, c ui.Cluster, refs []string) error {
	stream, err := c.Jobs().StreamJobs(ctx, &greylagv1.ListJobsRequest{Filter: &greylagv1.Filter{Jobs: refs, States: []greylagv1.JobState{greylagv1.JobState_JOB_STATE_PENDING}}})
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		for _, j := range stream.Msg().Jobs {
			if j.Hold == greylagv1.Hold_HOLD_UNSPECIFIED {
				t.Note("job %s was not held", j.Ref)
			}
		}
	}
	return stream.Err()
}

func (t commands) send(ctx context.Context, c ui.Cluster, done string, request *greylagv1.UpdateJobsRequest) error {
	request.RequestId = client.NewRequestID()
	answer, err := c.Jobs().UpdateJobs(ctx, request)
	if err != nil {
		return err
	}
	return t.Outcomes(answer.Outcomes, ui.OutcomeStyle{JSON: t.JSON, Verbose: true, Verb: done})
}

const updateLong = `Changes a pending job, or the time limit, name, nice value, comment and array
limit of a running one. Fields:

  timelimit=TIME    minutes, h:m:s, d-h:m:s or UNLIMITED; timelimit+=TIME, timelimit-=TIME
  partition=NAME    qos=NAME        account=NAME    name=NAME
  nice=N            comment=TEXT    arraytaskthrottle=N (0: no limit)
  starttime=TIME    deadline=TIME   as for gsubmit --begin; 0: none
  dependency=LIST   as for gsubmit --dependency; nothing: none
  reservation=NAME  numnodes=N      gpuspernode=N   gpus=N (in all)
  minmemorynode=SIZE minmemorycpu=SIZE minmemorygpu=SIZE
  reqnodelist=NODES features=LIST   nothing: any
  admincomment=TEXT up to 16384 bytes, no other fields; empty removes it

Lower nice values start first; only operators may set negative ones. A job
that moves to another partition, QOS, account or reservation, or changes its
size, is checked against nodes and limits as at submission, and its lien is
replaced. Only operators may set admincomment, also on the last 65536 ended jobs.

scontrol syntax also works: gctl update JobId=123 TimeLimit=2:00:00`

func (t commands) update() *cobra.Command {
	c := &cobra.Command{
		Use: "update job JOB NAME=VALUE...", Short: "Change jobs", Long: updateLong, GroupID: tool.GroupJobs, Args: cobra.MinimumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request, err := t.updateOf(args)
			if err != nil {
				return err
			}
			return t.send(ctx, c, "changed", request)
		}),
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { // gsubmit's names
		return &ui.UsageError{Problem: options.Problem(err), Advice: "write changes as NAME=VALUE: gctl update 123 timelimit=2:00:00"}
	})
	return c
}

// updateOf reads "job 123 timelimit=60" and "JobId=123 TimeLimit=60".
func (t commands) updateOf(words []string) (*greylagv1.UpdateJobsRequest, error) {
	if err := nodeUpdate(words); err != nil {
		return nil, err
	}
	return jobupdate.Read(words, t.Now())
}

func (t commands) logs() *cobra.Command {
	request := &greylagv1.StreamLogsRequest{}
	c := &cobra.Command{
		Use: "logs JOB", Short: "Print a job's output, from any host", GroupID: tool.GroupInspect, Args: cobra.ExactArgs(1),
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
	}
	c.RunE = t.On(func(ctx context.Context, cluster ui.Cluster, args []string) error {
		for _, few := range []string{"tail", "bytes"} {
			if n, err := c.Flags().GetInt64(few); err == nil && n <= 0 && c.Flags().Changed(few) {
				return &ui.UsageError{Problem: fmt.Sprintf("--%s %d: want 1 or more", few, n), Advice: "omit it for the whole output"}
			}
		}
		request.Job = args[0]
		return t.stream(ctx, cluster, request)
	})
	c.Flags().BoolVarP(&request.Follow, "follow", "f", false, "follow until the job ends; wait for its start")
	c.Flags().BoolVarP(&request.Error, "error", "e", false, "the error output")
	c.Flags().Int32Var(&request.Rank, "rank", 0, "rank of the job's node")
	c.Flags().Int64VarP(&request.TailLines, "tail", "n", 0, "only the last N lines [all]")
	c.Flags().Int64VarP(&request.Tail, "bytes", "c", 0, "only the last N bytes [all]")
	c.MarkFlagsMutuallyExclusive("tail", "bytes")
	return c
}

func (t commands) script() *cobra.Command {
	return &cobra.Command{
		Use: "script JOB", Short: "Print a job's batch script", GroupID: tool.GroupInspect, Args: cobra.ExactArgs(1),
		ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			answer, err := c.Jobs().GetScript(ctx, &greylagv1.GetScriptRequest{Job: args[0]})
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(struct {
					Script      string   `json:"script"`
					Environment []string `json:"environment"`
				}{string(answer.Script), answer.Environment})
			}
			_, err = t.Stdout.Write(answer.Script)
			return err
		}),
	}
}
