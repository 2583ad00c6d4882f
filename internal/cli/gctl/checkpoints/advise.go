package checkpoints

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

const adviseLong = `Says how often a job should save its work. Each save takes time, and a failure
repeats the work since the last one. The failure rate is that of this cluster in
the last 28 days, averaged with a published rate of 3.8 failures per 1,000
node-days that counts as 1,000 node-days of observation.

Inside a job, and for a job that is named, the nodes are those of the job, and
its present interval is compared. Give the time for which the program stops to
save: with asynchronous saves that is the copy to memory only. Otherwise it is
the time from the last checkpoint signal to its commit, which is at least as
long, or a minute if none was measured.`

// advice is the output of advise.
type advice struct {
	Nodes       int64   `json:"nodes"`
	Failures    int64   `json:"failures"`
	NodeHours   int64   `json:"node_hours"`
	Rate        float64 `json:"failures_per_1000_node_days"`
	MTBF        int64   `json:"mtbf_seconds"`
	Interval    int64   `json:"interval_seconds"`
	Loss        float64 `json:"loss"`
	Present     int64   `json:"present_interval_seconds,omitempty"`
	PresentLoss float64 `json:"present_loss,omitempty"`
	Write       float64 `json:"write_seconds"`
	Restart     float64 `json:"restart_seconds"`
	Measured    bool    `json:"write_measured,omitempty"`
	given       bool    // Rate was given as an option
}

func (t commands) advise() *cobra.Command {
	nodes, rate, costs := int64(0), 0.0, checkpoint.Costs{}
	var save *pflag.Flag
	c := &cobra.Command{
		Use: "advise [JOB]", Short: "Say how often a job should save its work", Long: adviseLong, Args: cobra.MaximumNArgs(1), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			if nodes < 0 || costs.Save <= 0 || costs.Restart < 0 || !(rate >= 0 && rate <= maxRate) {
				return &ui.UsageError{
					Problem: fmt.Sprintf("--nodes %d, --checkpoint-write %s, --restart-time %s or --failure-rate %g is out of range", nodes, costs.Save, costs.Restart, rate),
					Advice:  "for example gctl checkpoint advise --nodes 64 --checkpoint-write 10s",
				}
			}
			a, err := t.adviceFor(ctx, c, args, nodes, rate, costs, save.Changed)
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(a)
			}
			return t.Facts(fmt.Sprintf("checkpoints of a job of %s", words.Count(a.Nodes, "node")), a.facts())
		}),
	}
	c.Flags().Int64VarP(&nodes, "nodes", "N", 0, "number of nodes, instead of those of a job")
	c.Flags().DurationVar(&costs.Save, "checkpoint-write", time.Minute, "how long a save stops the program")
	c.Flags().DurationVar(&costs.Restart, "restart-time", 10*time.Minute, "from a failure until the program works again")
	save = c.Flags().Lookup("checkpoint-write")
	c.Flags().Float64Var(&rate, "failure-rate", 0, "failures per 1,000 node-days; 0: the rate of this cluster")
	return c
}

// maxRate limits the failure rate of the options.
const maxRate = 1e6

// adviceFor asks for the failure rate of the cluster, and for the job if no number of nodes is given. A given failure
// rate replaces that of the cluster. The measured time of the job's last checkpoint replaces costs.Save unless that was
// given.
func (t commands) adviceFor(ctx context.Context, c ui.Cluster, args []string, nodes int64, given float64, costs checkpoint.Costs, saveGiven bool) (*advice, error) {
	present, measured := time.Duration(0), false
	if nodes == 0 && len(args) == 0 && t.Variable("GREYLAG_JOB_ID") == "" {
		return nil, &ui.UsageError{Problem: "no job and no number of nodes given, and this is not inside a job", Advice: "run gctl checkpoint advise JOB, or gctl checkpoint advise --nodes N"}
	}
	if nodes == 0 || len(args) > 0 {
		job, err := t.job(ctx, c, args)
		if err != nil {
			return nil, err
		}
		if nodes == 0 {
			nodes = max(int64(len(job.Nodes)), int64(job.Request.GetNodes()), 1)
		}
		present = presentInterval(job)
		if measured = job.CheckpointWriteTime != nil && !saveGiven; measured {
			costs.Save = max(job.CheckpointWriteTime.AsDuration().Round(time.Second), time.Second)
		}
	}
	info, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: t.Read()})
	if err != nil {
		return nil, err
	}
	rate := cluster.FailureRate{Failures: info.FailureRate.GetFailures(), NodeHours: info.FailureRate.GetNodeHours()}
	thousandths := rate.Thousandths()
	if given > 0 {
		thousandths = max(1, int64(given*1000))
	}
	best := checkpoint.Advise(nodes, thousandths, costs)
	a := &advice{
		Nodes: nodes, Failures: rate.Failures, NodeHours: rate.NodeHours, Rate: float64(thousandths) / 1000, MTBF: seconds(best.MTBF),
		Interval: seconds(best.Every), Loss: best.Loss, Write: costs.Save.Seconds(), Restart: costs.Restart.Seconds(), Measured: measured, given: given > 0,
	}
	if present > 0 {
		a.Present, a.PresentLoss = seconds(present), best.LossAt(present, costs)
	}
	return a, nil
}

func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// presentInterval returns the mean interval between the checkpoints of the last attempt with at least two; 0 without
// one.
func presentInterval(job *greylagv1.Job) time.Duration {
	for _, last := range slices.Backward(job.Checkpoints) {
		var times []time.Time
		for _, k := range job.Checkpoints {
			if k.Attempt == last.Attempt {
				times = append(times, k.Committed.AsTime())
			}
		}
		if n := len(times); n > 1 {
			return times[n-1].Sub(times[0]) / time.Duration(n-1)
		}
	}
	return 0
}

// facts describes the advice.
func (a *advice) facts() [][2]string {
	elapsed := func(seconds int64) string { return cluster.FormatElapsed(time.Duration(seconds) * time.Second) }
	facts := [][2]string{
		{"recommended", fmt.Sprintf("every %s: %.1f %% of the job's time lost", elapsed(a.Interval), 100*a.Loss)},
	}
	if a.Present > 0 {
		facts = append(facts, [2]string{"current", fmt.Sprintf("every %s: %.1f %% of the job's time lost", elapsed(a.Present), 100*a.PresentLoss)})
	}
	save, restart := cluster.FormatElapsed(toDuration(a.Write)), cluster.FormatElapsed(toDuration(a.Restart))
	costs := [][2]string{{"assumed", fmt.Sprintf("save %s, restart %s", save, restart)}}
	if a.Measured {
		costs = [][2]string{{"measured", "save " + save}, {"assumed", "restart " + restart}}
	}
	facts = append(facts,
		[2]string{"MTBF", elapsed(a.MTBF) + " between failures of any of its nodes"},
		[2]string{"failure rate", a.rateText()},
	)
	return append(facts, costs...)
}

func toDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// fewNodeDays is the observation below which the published rate weighs more than 90 %.
const fewNodeDays = 100

// rateText describes the failure rate.
func (a *advice) rateText() string {
	if a.given {
		return fmt.Sprintf("%.1f per 1,000 node-days, as given", a.Rate)
	}
	days := a.NodeHours / 24
	text := fmt.Sprintf("%.1f per 1,000 node-days; observed: %s in %d node-days in 28 days", a.Rate, words.Count(a.Failures, "failure"), days)
	if days < fewNodeDays {
		text += fmt.Sprintf("; mainly the published rate, since fewer than %d node-days were observed", fewNodeDays)
	}
	return text
}
