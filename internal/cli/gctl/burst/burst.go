// Package burst implements gctl burst: leased cloud nodes.
//
// It decides how leases, prices and spend are printed. The cluster decides what is leased and ended.
package burst

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/burstcheck"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// commands holds the subcommands of one run of gctl.
type commands struct{ *tool.Tool }

const long = `Shows and manages leased cloud nodes. The policy says when nodes are leased
([burst] in gctl show policy); jobs opt in with gsubmit --burst. docs/burst.md
explains the decision.`

// Command returns gctl burst.
func Command(t *tool.Tool) *cobra.Command {
	x := commands{t}
	c := &cobra.Command{
		Use: "burst", Short: "Show and manage leased cloud nodes", Long: long, GroupID: tool.GroupNodes, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(x.list(), x.show(), x.offers(), x.budget(), x.plan(), x.end(), burstcheck.Command(t))
	return c
}

const listLong = `Lists the leases of cloud nodes that have not ended, and with --ended also the
newest 1,000 that have. COST is the actual cost of an ended lease, and the amount
committed for any other. Users see the leases of their own jobs, operators all.`

func (t commands) list() *cobra.Command {
	request := &greylagv1.ListLeasesRequest{}
	c := &cobra.Command{
		Use: "list", Short: "List leases of cloud nodes", Long: listLong, Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			request.Read = t.Read()
			answer, err := c.Cluster().ListLeases(ctx, request)
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(t.leases(answer))
			}
			if len(answer.Leases) == 0 {
				t.Note("no cloud nodes are leased%s", off(answer.Enabled))
				return nil
			}
			table := ui.Table{Head: []string{"LEASE", "NODE", "STATE", "SINCE", "JOB", "ACCOUNT", "OFFER", "MARKET", "COST", "REASON"}, Right: "rlllrlllrl", Prose: true}
			for _, l := range answer.Leases {
				table.Rows = append(table.Rows, []string{
					strconv.FormatUint(l.Id, 10), l.Node, wire.Word(l.State), t.FormatTime(l.Since), dash(l.Job), dash(l.Account), l.Offer, l.Market,
					cluster.FormatMoney(l.Reserved+l.Cost) + " " + answer.Currency, l.Why,
				})
			}
			return t.WriteTable(table)
		}),
	}
	c.Flags().BoolVar(&request.Ended, "ended", false, "list ended leases too")
	t.AddStaleFlag(c)
	return c
}

// disabled says that the policy leases no nodes.
const disabled = "cloud burst is disabled in the policy (burst.enabled = false)"

// off is the end of a note while cloud burst is disabled.
func off(enabled bool) string {
	if enabled {
		return ""
	}
	return ": " + disabled
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (t commands) show() *cobra.Command {
	c := &cobra.Command{
		Use: "show LEASE", Short: "Show a lease of a cloud node", Args: cobra.ExactArgs(1),
		Long: "Shows a lease. LEASE is its number or the name of its node.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			id, err := leaseID(args[0])
			if err != nil {
				return err
			}
			answer, err := c.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{Read: t.Read(), Ended: true})
			if err != nil {
				return err
			}
			for _, l := range answer.Leases {
				if l.Id != id {
					continue
				}
				if t.JSON {
					return t.WriteJSON(leaseJSON(l))
				}
				return t.print(l, answer.Currency)
			}
			t.Complain(fmt.Sprintf("no lease %d", id), "list them with gctl burst list --ended")
			return ui.Exit(ui.NotFound)
		}),
	}
	t.AddStaleFlag(c)
	return c
}

// leaseID reads the number of a lease, or the name of its node.
func leaseID(word string) (uint64, error) {
	text := word
	if cluster.IsLeased(word) {
		text = word[len(cluster.LeasedPrefix):]
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, &ui.UsageError{Problem: fmt.Sprintf("invalid lease %q", word), Advice: "pass a number or a node name of gctl burst list"}
	}
	return id, nil
}

// print writes a lease.
func (t commands) print(l *greylagv1.Lease, currency string) error {
	hour := func(price int64) string { return cluster.FormatMoney(price) + " " + currency + " an hour" }
	rows := [][2]string{
		{"Lease", strconv.FormatUint(l.Id, 10)}, {"Node", l.Node}, {"State", wire.Word(l.State) + " since " + t.FormatTime(l.Since)},
		{"Job", l.Job}, {"Account", l.Account}, {"Offer", l.Offer + " (" + l.Market + ") in " + l.Region},
		{"Maximum price", hour(l.MaxPrice)}, {"Price", hour(l.Price)},
		{"Committed", cluster.FormatMoney(l.Reserved) + " " + currency}, {"Cost", cluster.FormatMoney(l.Cost) + " " + currency},
		{"Instance", l.Instance}, {"Address", l.Address},
		{"Created", t.FormatTime(l.Created)}, {"Launched", t.FormatTime(l.Launched)}, {"Joined", t.FormatTime(l.Joined)},
		{"Expires", t.FormatTime(l.Expires)}, {"Reclaim at", t.FormatTime(l.Reclaim)}, {"Ended", t.FormatTime(l.Ended)}, {"Reason", l.Why}, {"Console", l.Console},
	}
	if l.Price == 0 {
		rows[7][1] = ""
	}
	if l.State != greylagv1.LeaseState_LEASE_STATE_GONE {
		rows[9][1] = ""
	}
	for _, r := range rows {
		if r[1] != "" {
			if _, err := fmt.Fprintf(t.Stdout, "%-14s %s\n", r[0]+":", ui.Printable(r[1])); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t commands) offers() *cobra.Command {
	c := &cobra.Command{
		Use: "offers", Short: "List the offers of the cloud", Args: cobra.NoArgs,
		Long: "Lists the offers of the cloud, with the age of each price. Prices older than 6\nhours are ignored. NOT USED shows until when an offer is not used, or \"never\",\nand why.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{Read: t.Read()})
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(t.leases(answer))
			}
			if len(answer.Offers) == 0 {
				t.Note("no offers known%s", missing(answer.Provider))
				return nil
			}
			table := ui.Table{Head: []string{"OFFER", "MARKET", "REGION", "GPUS", "CPUS", "MEMORY", "PRICE/H", "AGE", "BOOT", "NOT USED"}, Right: "lllrrrrrrl", Prose: true}
			for _, o := range answer.Offers {
				gpus := "0"
				if o.Gpus > 0 {
					gpus = fmt.Sprintf("%d %s", o.Gpus, o.GpuType)
				}
				paused := ""
				if o.Paused != nil {
					paused = t.FormatTime(o.Paused) + ": " + o.PauseReason
				}
				if o.Fault != "" {
					table.Rows = append(table.Rows, []string{o.Name, o.Market, o.Region, "-", "-", "-", "-", t.age(o.Priced), "-", "never: " + o.Fault})
					continue
				}
				table.Rows = append(table.Rows, []string{
					o.Name, o.Market, o.Region, gpus, strconv.Itoa(int(o.Cpus)), ui.SizeText(cluster.Bytes(o.Memory)),
					cluster.FormatMoney(o.Price) + " " + answer.Currency, t.age(o.Priced), cluster.FormatElapsed(o.Boot.AsDuration()), paused,
				})
			}
			return t.WriteTable(table)
		}),
	}
	t.AddStaleFlag(c)
	return c
}

// missing is the end of a note without offers.
func missing(provider bool) string {
	if provider {
		return ": see the log of gctld on the leader"
	}
	return ": gctld.toml has no burst.program"
}

// age writes how old a price is.
func (t commands) age(at *timestamppb.Timestamp) string {
	if at == nil {
		return "-"
	}
	return cluster.FormatElapsed(t.Now().Sub(at.AsTime()).Truncate(time.Second))
}

func (t commands) budget() *cobra.Command {
	c := &cobra.Command{
		Use: "budget", Short: "Show what leases cost this month", Args: cobra.NoArgs,
		Long: "Shows the burst budgets of this month (UTC): what ended leases cost, what is\ncommitted for the others, and the limit. No lease starts that could exceed a\nlimit. Requires role operator.",
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{Read: t.Read()})
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(t.leases(answer))
			}
			table := ui.Table{Head: []string{"ACCOUNT", "SPENT", "COMMITTED", "LIMIT"}, Right: "lrrr"}
			for _, s := range answer.Spend {
				account, limit := s.Account, "none"
				if account == "" {
					account = "(cluster)"
				}
				if s.Limited {
					limit = cluster.FormatMoney(s.Limit) + " " + answer.Currency
				}
				table.Rows = append(table.Rows, []string{account, cluster.FormatMoney(s.Spent) + " " + answer.Currency, cluster.FormatMoney(s.Committed) + " " + answer.Currency, limit})
			}
			return t.WriteTable(table)
		}),
	}
	t.AddStaleFlag(c)
	return c
}

const planLong = `Shows for which pending jobs nodes would be leased now, with the reasons, even
while cloud burst is disabled in the policy: a site can watch the decisions
before it spends anything. COST is the worst-case cost. Nodes are leased for the
first row with LEASE "yes"; then everything is decided again. Requires role
operator.`

func (t commands) plan() *cobra.Command {
	c := &cobra.Command{
		Use: "plan", Short: "Show what would be leased now, and why", Long: planLong, Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			answer, err := c.Cluster().PlanBurst(ctx, &greylagv1.PlanBurstRequest{})
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(t.choices(answer))
			}
			if !answer.Enabled {
				t.Note("%s: nothing is leased", disabled)
			}
			if len(answer.Choices) == 0 {
				t.Note("no pending job may run on cloud nodes")
				return nil
			}
			table := ui.Table{Head: []string{"JOB", "USER", "START", "SAVES", "NODES", "OFFER", "VALUE", "COST", "LEASE", "REASON"}, Right: "rllrrlrrll", Prose: true}
			for _, x := range answer.Choices {
				offer, lease := x.Offer, "no"
				if offer != "" {
					offer += " (" + x.Market + ")"
				}
				if x.Lease {
					lease = "yes"
				}
				table.Rows = append(table.Rows, []string{
					x.Job, x.User, dash(t.FormatTime(x.Planned)), cluster.FormatElapsed(x.Saved.AsDuration()), strconv.Itoa(int(x.Nodes)), dash(offer),
					cluster.FormatMoney(x.Value) + " " + answer.Currency, cluster.FormatMoney(x.Cost) + " " + answer.Currency, lease, x.Why,
				})
			}
			return t.WriteTable(table)
		}),
	}
	return c
}

func (t commands) end() *cobra.Command {
	request := &greylagv1.EndLeasesRequest{}
	c := &cobra.Command{
		Use: "end LEASE...", Short: "End leases: their nodes drain", Args: cobra.MinimumNArgs(1),
		Long: `Drains the nodes of leases: they take no new jobs, and the instances are
terminated when running jobs have ended. With --now the instances are
terminated at once: running jobs end as NODE_FAIL, and are requeued unless they
have --no-requeue.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request.RequestId, request.Leases = client.NewRequestID(), nil
			for _, word := range args {
				id, err := leaseID(word)
				if err != nil {
					return err
				}
				request.Leases = append(request.Leases, id)
			}
			answer, err := c.Cluster().EndLeases(ctx, request)
			if err != nil {
				return err
			}
			if t.JSON {
				return t.WriteJSON(struct {
					Leases []uint64 `json:"leases"`
				}{answer.Leases})
			}
			for _, id := range request.Leases {
				text := "has ended or is already ending"
				if slices.Contains(answer.Leases, id) {
					text = "ends when its jobs have ended"
					if request.Now {
						text = "ends now"
					}
				}
				if _, err := fmt.Fprintf(t.Stdout, "lease %d %s\n", id, text); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().BoolVar(&request.Now, "now", false, "terminate the instances now; running jobs end")
	c.Flags().StringVarP(&request.Reason, "reason", "r", "", "reason for the audit journal")
	return c
}
