package checkpoints

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/checkpoint"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

const adviseLong = `Says how often a job should save its work. Each save takes time, and a failure
repeats the work since the last one. The rate of failures is that of this
cluster in the last 28 days; until it has run for 1,000 node-days, a published
rate of 3.8 failures in 1,000 node-days weighs in.

Inside a job, and for a job that is named, the nodes are those of the job, and
its present interval is compared. Give the time for which the program stops to
save: with asynchronous saves that is the copy to memory only.`

// advice is the output of advise.
type advice struct {
	Nodes       int64   `json:"nodes"`
	Failures    int64   `json:"failures"`
	NodeHours   int64   `json:"node_hours"`
	Rate        float64 `json:"failures_per_1000_node_days"`
	MTBF        int64   `json:"mtbf"` // all times in seconds
	Interval    int64   `json:"interval"`
	Loss        float64 `json:"loss"`
	Present     int64   `json:"present_interval,omitempty"`
	PresentLoss float64 `json:"present_loss,omitempty"`
	SaveTime    int64   `json:"save_time"`
	RestartTime int64   `json:"restart_time"`
}

func (t commands) advise() *cobra.Command {
	nodes, costs := int64(0), checkpoint.Costs{}
	c := &cobra.Command{
		Use: "advise [JOB]", Short: "Say how often a job should save its work", Long: adviseLong, Args: cobra.MaximumNArgs(1), ValidArgsFunction: t.CompleteArgs(ui.JobNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			if nodes < 0 || costs.Save <= 0 || costs.Restart < 0 {
				return &ui.UsageError{Problem: "the number of nodes and the times must be positive", Advice: "for example gctl checkpoint advise --nodes 64 --save-time 10s"}
			}
			a, err := t.adviceFor(ctx, c, args, nodes, costs)
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
	c.Flags().DurationVar(&costs.Save, "save-time", time.Minute, "how long the program stops to save")
	c.Flags().DurationVar(&costs.Restart, "restart-time", 10*time.Minute, "from a failure until the program runs on")
	return c
}

// adviceFor asks for the failure rate of the cluster, and for the job if no number of nodes is given.
func (t commands) adviceFor(ctx context.Context, c ui.Cluster, args []string, nodes int64, costs checkpoint.Costs) (*advice, error) {
	present := time.Duration(0)
	if nodes == 0 || len(args) > 0 {
		job, err := t.job(ctx, c, args)
		if err != nil {
			return nil, err
		}
		if nodes == 0 {
			nodes = max(int64(len(job.Nodes)), int64(job.Request.GetNodes()), 1)
		}
		present = presentInterval(job)
	}
	info, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: t.Read()})
	if err != nil {
		return nil, err
	}
	rate := cluster.FailureRate{Failures: info.FailureRate.GetFailures(), NodeHours: info.FailureRate.GetNodeHours()}
	best := checkpoint.Advise(nodes, rate.Thousandths(), costs)
	a := &advice{
		Nodes: nodes, Failures: rate.Failures, NodeHours: rate.NodeHours, Rate: float64(rate.Thousandths()) / 1000, MTBF: seconds(best.MTBF),
		Interval: seconds(best.Every), Loss: best.Loss, SaveTime: seconds(costs.Save), RestartTime: seconds(costs.Restart),
	}
	if present > 0 {
		a.Present, a.PresentLoss = seconds(present), best.LossAt(present, costs)
	}
	return a, nil
}

func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// presentInterval returns the mean interval between the checkpoints of the last attempt that has two; 0 without one.
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
		{"best every", fmt.Sprintf("%s, which costs %.1f %% of the job's time", elapsed(a.Interval), 100*a.Loss)},
	}
	if a.Present > 0 {
		facts = append(facts, [2]string{"now every", fmt.Sprintf("%s, which costs %.1f %%", elapsed(a.Present), 100*a.PresentLoss)})
	}
	return append(facts,
		[2]string{"failures", fmt.Sprintf("one of its nodes fails every %s on average", elapsed(a.MTBF))},
		[2]string{"failure rate", fmt.Sprintf("%.1f in 1,000 node-days; in the last 28 days %s in %d node-days", a.Rate, words.Count(a.Failures, "failure"), a.NodeHours/24)},
		[2]string{"costs", fmt.Sprintf("the program stops %s to save, and %s after a failure", elapsed(a.SaveTime), elapsed(a.RestartTime))},
	)
}
