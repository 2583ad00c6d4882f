package accounts

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) shares() *cobra.Command {
	request := &greylagv1.ListSharesRequest{}
	var accounts []string
	var long, onlyUsers bool
	var form tool.TableForm
	c := &cobra.Command{
		Use: "shares [ACCOUNT...]", Short: "Show shares and usage", GroupID: tool.GroupAccounts,
		Long: `Prints the columns of sshare for every account and user: raw shares, shares
normalized among siblings (classic: over the tree), usage in billing seconds,
effective usage, and the fair-share factor of each user; --long adds
normalized usage and LevelFS, the ratio of shares to usage among siblings,
which ranks them. Usage decays with the half-life; running jobs count as they
run.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.Accounts = append(args, accounts...)
			answer, err := c.Accounts().ListShares(ctx, request)
			if err != nil {
				return err
			}
			for _, name := range request.Accounts {
				if !slices.ContainsFunc(answer.Shares, func(x *greylagv1.Share) bool { return x.Account == name }) {
					t.Complain(fmt.Sprintf("no account %q", name), "gctl account list shows the accounts")
					return ui.Exit(ui.Failed)
				}
			}
			if request.User != "" && !slices.ContainsFunc(answer.Shares, func(x *greylagv1.Share) bool { return x.User == request.User }) {
				t.Warn(fmt.Sprintf("user %q is not in these accounts: see gctl account list --users", request.User))
			}
			answer.Shares = slices.DeleteFunc(answer.Shares, func(x *greylagv1.Share) bool { return onlyUsers && x.User == "" })
			if t.JSON {
				return t.WriteJSON(sharesOf(answer))
			}
			table := shareTable(answer, long)
			return t.WriteTableAs(table, form)
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "only this user")
	c.Flags().BoolVarP(&long, "long", "l", false, "with NormUsage and LevelFS, wider than 80 columns")
	c.Flags().StringSliceVarP(&accounts, "accounts", "A", nil, "only these `ACCOUNTS` and their descendants")
	c.Flags().BoolVarP(&onlyUsers, "Users", "U", false, "only users, without account lines")
	c.Flags().BoolP("all", "a", false, "")
	tool.Must(c.Flags().MarkHidden("all")) // all are shown; sshare needs an option for that
	form.AddFlags(c)
	return c
}

func shareTable(a *greylagv1.ListSharesResponse, long bool) ui.Table {
	table := ui.Table{
		Head:  []string{"Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare"},
		Right: "llrrrrrrr", Wide: []int{0, 1},
	}
	if long {
		table.Head = append(slices.Insert(table.Head, 5, "NormUsage"), "LevelFS")
	}
	for _, x := range a.Shares {
		factor, level := "", ""
		if x.User != "" || a.Classic {
			factor = six(x.FairShare)
		}
		if !a.Classic && x.Depth > 0 && x.Shares != cluster.SharesOfParent {
			level = six(x.LevelFs)
		}
		row := []string{
			strings.Repeat(" ", int(x.Depth)) + x.Account, userText(x.User, x.Partition), sharesText(x.Shares), six(x.NormShares),
			strconv.FormatInt(x.Usage/1000, 10), six(x.EffectiveUsage), factor,
		}
		if long {
			row = append(slices.Insert(row, 5, six(x.NormUsage)), level)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// six formats a factor as sshare does.
func six(f float64) string {
	if math.IsInf(f, 1) {
		return "inf"
	}
	return strconv.FormatFloat(f, 'f', 6, 64)
}

func (t commands) priority() *cobra.Command {
	request := &greylagv1.ListPrioritiesRequest{}
	c := &cobra.Command{
		Use: "priority [JOB...]", Short: "Show the priority factors of pending jobs", GroupID: tool.GroupAccounts,
		Long: "Prints the pending jobs in queue order with the contribution of each factor to their\npriority: age, fair share, size, partition, QOS, and nice, which is subtracted. Jobs of\na higher tier come first whatever their priority. Jobs of an account over a soft budget\nare in the lowest tier.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			for _, arg := range args {
				ref, err := cluster.ParseJobRef(arg)
				if err != nil {
					return &ui.UsageError{Problem: err.Error(), Advice: "gqueue lists the jobs"}
				}
				request.Jobs = append(request.Jobs, uint64(ref.ID))
			}
			answer, err := c.Accounts().ListPriorities(ctx, request)
			if err != nil {
				return err
			}
			for _, id := range request.Jobs {
				if !slices.ContainsFunc(answer.Jobs, func(x *greylagv1.Priority) bool {
					return x.Job == id || strings.HasPrefix(x.Ref, fmt.Sprintf("%d_", id))
				}) {
					t.Complain(fmt.Sprintf("job %d is not pending", id), "gqueue lists active jobs, gctl show job shows finished ones")
					return ui.Exit(ui.Failed)
				}
			}
			if t.JSON {
				return t.WriteJSON(prioritiesOf(answer))
			}
			if err := t.WriteTable(priorityTable(answer.Jobs)); err != nil {
				return err
			}
			for _, name := range overBudget(answer.Jobs) {
				t.Note("account %s is over its budget: its jobs are in the lowest tier", name)
			}
			return nil
		}),
	}
	c.Flags().StringVarP(&request.User, "user", "u", "", "only this user's jobs")
	c.Flags().StringVarP(&request.Account, "account", "A", "", "only this account's jobs")
	return c
}

// overBudget names the accounts whose jobs are in the lowest tier for that reason.
func overBudget(jobs []*greylagv1.Priority) (names []string) {
	for _, j := range jobs {
		if j.OverBudget != "" && !slices.Contains(names, j.OverBudget) {
			names = append(names, j.OverBudget)
		}
	}
	return names
}

func priorityTable(jobs []*greylagv1.Priority) ui.Table {
	table := ui.Table{
		Head:  []string{"JOBID", "USER", "ACCOUNT", "TIER", "PRIORITY", "AGE", "FAIRSHARE", "JOBSIZE", "PARTITION", "QOS", "NICE"},
		Right: "lllrrrrrrrr", Wide: []int{2, 1},
	}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	for _, j := range jobs {
		table.Rows = append(table.Rows, []string{
			j.Ref, j.User, j.Account, n(int64(j.Tier)), n(j.Priority), n(j.Age), n(j.FairShare), n(j.JobSize), n(j.PartitionPart), n(j.QosPart), n(j.Nice),
		})
	}
	return table
}
