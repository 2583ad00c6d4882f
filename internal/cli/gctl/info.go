package gctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/options"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) info() *cobra.Command {
	var partitions, nodes []string
	c := &cobra.Command{
		Use: "info", Short: "Show partitions with free nodes and GPUs", Args: cobra.NoArgs, GroupID: tool.GroupInspect,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			for _, list := range nodes {
				if _, err := hostlist.Expand(list); err != nil {
					return badNodes(list)
				}
			}
			answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: t.Read(), Partitions: partitions, Nodes: nodes})
			if err != nil {
				return err
			}
			t.TellStale(answer.AsOf)
			if t.JSON {
				return t.WriteJSON(infoOf(answer))
			}
			t.noteRepairs(answer)
			t.noteFaults(ctx, c, answer)
			return t.WriteTable(infoTable(answer))
		}),
	}
	c.Flags().StringSliceVarP(&partitions, "partition", "p", nil, "only these partitions, separated by commas")
	c.Flags().StringArrayVarP(&nodes, "nodes", "n", nil, "only these nodes, such as gpu[001-004]")
	t.AddStaleFlag(c)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { // sinfo's options
		return &ui.UsageError{Problem: options.Problem(err), Advice: "gctl nodes lists one node per line, gctl show partition NAME shows one partition"}
	})
	return c
}

// noteRepairs names the nodes that an operator should look after.
func (t commands) noteRepairs(answer *greylagv1.GetInfoResponse) {
	for _, x := range []struct{ what, nodes, commands string }{
		{"reset required", answer.ResetNodes, "gctl drain %s --reason 'GPU reset', then nvidia-smi -r on the node"}, {"reboot required", answer.RebootNodes, "gctl reboot %s"},
		{"faulty, but not drained, as too many nodes were", answer.UndrainedNodes, "gctl show node %s"}, {"nodes that fail often", answer.FailingNodes, "gctl show node %s"},
	} {
		if x.nodes != "" {
			t.Note("%s: %s (%s)", x.what, x.nodes, fmt.Sprintf(x.commands, x.nodes))
		}
	}
}

// mostFaults is the number of different faults that gctl info lists.
const mostFaults = 8

// noteFaults names the faults that nodes of the answer report, and the nodes.
func (t commands) noteFaults(ctx context.Context, c ui.Cluster, answer *greylagv1.GetInfoResponse) {
	listed := map[string]bool{}
	var names []string
	for _, part := range answer.Partitions {
		for _, g := range part.Groups {
			if (g.State == greylagv1.NodeState_NODE_STATE_DRAINED || g.State == greylagv1.NodeState_NODE_STATE_DRAINING) && !listed[g.NodeList] {
				listed[g.NodeList] = true
				names = append(names, g.NodeList)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	nodes, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: names, Read: t.Read()})
	if err != nil {
		return // the table is complete without
	}
	faults := faultsOf(nodes.Nodes)
	for _, f := range faults[:min(len(faults), mostFaults)] {
		t.Note("%s: %s (gctl show node %s)", f.nodes, f.fault, f.nodes)
	}
	if len(faults) > mostFaults {
		t.Note("%d more faults: gctl nodes", len(faults)-mostFaults)
	}
}

func infoTable(answer *greylagv1.GetInfoResponse) ui.Table {
	table := ui.Table{
		Head:  []string{"PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "GPUS", "USED", "CPUS", "USED", "NODELIST"},
		Right: "lllrllrrrl", Wide: []int{5, 0},
	}
	for _, part := range answer.Partitions {
		name, avail := part.Name, "up"
		if part.Default {
			name += "*"
		}
		if part.Down {
			avail = "down"
		}
		limit := cluster.FormatLimit(part.MaxTime.AsDuration())
		if limit == "UNLIMITED" {
			limit = "infinite"
		}
		if len(part.Groups) == 0 {
			table.Rows = append(table.Rows, []string{name, avail, limit, "0", "n/a", "", "0", "0", "0", ""})
		}
		for _, g := range part.Groups {
			table.Rows = append(table.Rows, []string{
				name, avail, limit, number(g.Nodes), strings.ToLower(wire.Word(g.State)), orNone(inAll(g.Gpus, g.Nodes)), number(g.GpusUsed),
				number(g.CpusTotal), number(g.CpusUsed), g.NodeList,
			})
		}
	}
	return table
}

// inAll returns the total GPUs of n nodes with GPUs such as "h100:4,a100:1" each.
func inAll(shape string, nodes int32) string {
	words := strings.Split(shape, ",")
	for i, word := range words {
		at := strings.LastIndexByte(word, ':') + 1
		if n, err := strconv.Atoi(word[at:]); err == nil {
			words[i] = word[:at] + strconv.Itoa(n*int(nodes))
		}
	}
	return strings.Join(words, ",")
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (t commands) show() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Show details of a job, node, partition, reservation, licence or the policy", GroupID: tool.GroupInspect,
		Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	show.AddCommand(
		&cobra.Command{
			Use: "job JOB...", Short: "Show jobs, active or finished", Args: cobra.MinimumNArgs(1),
			ValidArgsFunction: t.CompleteArgs(ui.JobNames), RunE: t.On(t.showJobs),
		},
		&cobra.Command{
			Use: "node [NODES]", Aliases: []string{"nodes"}, Short: "Show nodes", Args: cobra.ArbitraryArgs,
			ValidArgsFunction: t.CompleteArgs(ui.NodeNames), RunE: t.On(t.showNodes),
		},
		&cobra.Command{
			Use: "partition [NAME]", Aliases: []string{"partitions"}, Short: "Show partitions", Args: cobra.MaximumNArgs(1), RunE: t.On(t.showPartition),
		},
		&cobra.Command{
			Use: "reservation [NAME]", Aliases: []string{"reservations", "res"}, Short: "Show reservations with times, nodes, users and jobs",
			Args: cobra.MaximumNArgs(1), RunE: t.On(t.showReservations),
		},
		&cobra.Command{
			Use: "licences [NAME]", Aliases: []string{"licence", "licenses", "license", "lic"}, Short: "Show licences: total, used and requested",
			Args: cobra.MaximumNArgs(1), RunE: t.On(t.showLicences),
		},
		&cobra.Command{
			Use: "policy", Short: "Show the policy, in the form that gctl apply reads", Args: cobra.NoArgs, RunE: t.On(t.showPolicy),
		},
	)
	t.AddStaleFlag(show)
	return show
}

func (t commands) showPartition(ctx context.Context, c ui.Cluster, args []string) error {
	answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: t.Read()})
	if err != nil {
		return err
	}
	t.TellStale(answer.AsOf)
	var chosen []*greylagv1.PartitionInfo
	for _, part := range answer.Partitions {
		if len(args) == 0 || part.Name == args[0] {
			chosen = append(chosen, part)
		}
	}
	if len(chosen) == 0 {
		t.Complain(fmt.Sprintf("no partition %q", args[0]), "gctl info lists the partitions")
		return ui.Exit(ui.NotFound)
	}
	answer.Partitions = chosen
	if t.JSON {
		return t.WriteJSON(infoOf(answer))
	}
	for _, part := range chosen {
		var all, gpus, used int32
		var lists []string
		for _, g := range part.Groups {
			all, gpus, used = all+g.Nodes, gpus+g.GpusTotal, used+g.GpusUsed
			lists = append(lists, fmt.Sprintf("%s %s", strings.ToLower(wire.Word(g.State)), g.NodeList))
		}
		if err := t.Facts("partition "+part.Name, [][2]string{
			{"default", yes(part.Default)}, {"down", yes(part.Down)},
			{"time limit", cluster.FormatLimit(part.MaxTime.AsDuration())},
			{"nodes", number(all)}, {"GPUs", fmt.Sprintf("%d, %d used", gpus, used)}, {"states", strings.Join(lists, "; ")},
		}); err != nil {
			return err
		}
	}
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (t commands) showPolicy(ctx context.Context, c ui.Cluster, _ []string) error {
	answer, err := c.Cluster().GetPolicy(ctx, &greylagv1.GetPolicyRequest{Read: t.Read()})
	if err != nil {
		return err
	}
	t.TellStale(answer.AsOf)
	if t.JSON {
		return t.WriteJSON(struct {
			Version uint64 `json:"version"`
			TOML    string `json:"toml"`
		}{answer.Version, answer.Toml})
	}
	_, err = fmt.Fprintf(t.Stdout, "# version %d\n%s", answer.Version, answer.Toml)
	return err
}
