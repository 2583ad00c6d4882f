package gctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/topologyimport"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) topology() *cobra.Command {
	all := &cobra.Command{
		Use: "topology", Short: "Import, show and check the network topology", GroupID: tool.GroupCluster, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	conf := false
	show := &cobra.Command{
		Use: "show", Short: "Print the tree of switches, and NVLink blocks", Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error { return t.showTopology(ctx, c, conf) }),
	}
	show.Flags().BoolVar(&conf, "conf", false, "print it in topology.conf format")
	all.AddCommand(t.importTopology(), show, &cobra.Command{
		Use: "check", Short: "Compare the topology with what nodes report",
		Long: "Compares the topology with what nodes report: nodes without a switch, unknown\nnodes, NVLink domains that the switches divide, and blocks that differ from their\ndomains. The exit status is 1 if there are any differences.",
		Args: cobra.NoArgs, RunE: t.On(t.checkTopology),
	}, &cobra.Command{
		Use: "remove", Short: "Remove the topology: all nodes are attached to one switch", Args: cobra.NoArgs,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			return t.setTopology(ctx, c, &greylagv1.SetTopologyRequest{RequestId: client.NewRequestID()})
		}),
	})
	return all
}

func (t commands) importTopology() *cobra.Command {
	discovered := ""
	request := &greylagv1.SetTopologyRequest{}
	c := &cobra.Command{
		Use: "import FILE", Short: "Replace the topology from a file",
		Long: "Replaces the topology from a file: Slurm's topology.conf, topology.yaml (by the\nsuffix .yaml), a table of nodes and their switches from the top down (.csv), or the\noutput of ibnetdiscover. Every error is printed with its line. With --dry-run nothing\nchanges, and the result is printed in topology.conf format.",
		Args: cobra.MaximumNArgs(1),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			read, path := topologyimport.Read, discovered
			switch {
			case (len(args) == 1) == (discovered != ""):
				return &ui.UsageError{Problem: "one file is required", Advice: "write gctl topology import FILE, or gctl topology import --ibnetdiscover FILE"}
			case discovered != "":
				read = topologyimport.ReadIBNetDiscover
			default:
				path = args[0]
			}
			made, err := t.readTopology(path, read)
			if err != nil {
				return err
			}
			if err := t.warnOf(ctx, c, made); err != nil {
				return err
			}
			for _, s := range made.Switches {
				request.Switches = append(request.Switches, switchProto(s))
			}
			if request.DryRun && !t.JSON {
				if _, err := io.WriteString(t.Stdout, topologyimport.Write(made.Switches)); err != nil {
					return err
				}
			}
			request.RequestId = client.NewRequestID()
			return t.setTopology(ctx, c, request)
		}),
	}
	c.Flags().StringVar(&discovered, "ibnetdiscover", "", "a file with the output of ibnetdiscover")
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only print the result")
	c.Flags().Uint64Var(&request.ExpectVersion, "expect", 0, "refuse if the current version differs")
	return c
}

// readTopology reads a file, and prints its errors.
func (t commands) readTopology(path string, read func(string, []byte) (topologyimport.Topology, error)) (topologyimport.Topology, error) {
	text, err := topologyText(path)
	if err != nil {
		return topologyimport.Topology{}, err
	}
	made, err := read(path, text)
	var faults strict.Faults
	if errors.As(err, &faults) {
		for _, fault := range faults {
			t.Complain(fault.String(), "")
		}
		return made, ui.Exit(ui.Usage)
	}
	return made, err
}

func topologyText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, ui.Unread(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, topologyimport.MaxSize+1))
	if err != nil {
		return nil, ui.Unread(err)
	}
	if len(text) > topologyimport.MaxSize {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("%s is longer than %d MiB", path, topologyimport.MaxSize>>20), Advice: "check that it is the right file"}
	}
	return text, nil
}

// checkTopologyFile is gctl config check for a topology file.
func checkTopologyFile(path string) error {
	text, err := topologyText(path)
	if err != nil {
		return err
	}
	_, err = topologyimport.Read(path, text)
	return err
}

// warnOf prints warnings about a file, and its unknown nodes, line by line.
func (t commands) warnOf(ctx context.Context, c ui.Cluster, made topologyimport.Topology) error {
	for _, w := range made.Warnings {
		t.Warn(w.String())
	}
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{})
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(answer.Nodes))
	for _, n := range answer.Nodes {
		known[n.Name] = true
	}
	strange := map[int][]string{}
	for n, line := range made.Lines {
		if !known[n] {
			strange[line] = append(strange[line], n)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(strange)) {
		t.Warn(fmt.Sprintf("%s:%d: unknown nodes: %s", made.Name, line, hostlist.Compress(strange[line])))
	}
	return nil
}

func switchProto(s cluster.Switch) *greylagv1.Switch {
	p := &greylagv1.Switch{Name: s.Name, Children: s.Children, Speed: s.Speed, Block: s.Block}
	if len(s.Nodes) > 0 {
		p.Nodes = []string{hostlist.Compress(s.Nodes)}
	}
	return p
}

func (t commands) setTopology(ctx context.Context, c ui.Cluster, request *greylagv1.SetTopologyRequest) error {
	answer, err := c.Cluster().SetTopology(ctx, request)
	if err != nil {
		return err
	}
	if t.JSON {
		return t.WriteJSON(struct {
			Version       uint64             `json:"version"`
			DryRun        bool               `json:"dry_run"`
			Disagreements []disagreementJSON `json:"disagreements"`
		}{answer.Version, request.DryRun, disagreementsOf(answer.Disagreements)})
	}
	for _, d := range answer.Disagreements {
		if d.Kind != greylagv1.DisagreementKind_DISAGREEMENT_KIND_UNKNOWN { // with line numbers, if known
			t.Warn(d.Nodes + ": " + d.Text)
		}
	}
	if request.DryRun {
		t.Note("dry run: nothing changed")
		return nil
	}
	t.Note("applied: version %d", answer.Version)
	return nil
}

func (t commands) checkTopology(ctx context.Context, c ui.Cluster, _ []string) error {
	answer, err := c.Cluster().GetTopology(ctx, &greylagv1.GetTopologyRequest{})
	if err != nil {
		return err
	}
	switch {
	case t.JSON:
		if err := t.WriteJSON(struct {
			Disagreements []disagreementJSON `json:"disagreements"`
		}{disagreementsOf(answer.Disagreements)}); err != nil {
			return err
		}
	case answer.Version == 0 || len(answer.Switches) == 0:
		t.Note("no topology: all nodes count as attached to one switch")
	case len(answer.Disagreements) == 0:
		return t.Printed(nil, "the topology matches the nodes")
	}
	for _, d := range answer.Disagreements {
		if t.JSON {
			break
		}
		if _, err := fmt.Fprintf(t.Stdout, "%s %s: %s\n", wire.Word(d.Kind), d.Nodes, d.Text); err != nil {
			return err
		}
	}
	if len(answer.Disagreements) > 0 {
		return ui.Exit(ui.Failed)
	}
	return nil
}

type topologyJSON struct {
	Version       uint64             `json:"version"`
	Since         *time.Time         `json:"since,omitempty"`
	By            string             `json:"by,omitempty"`
	Switches      []switchJSON       `json:"switches"`
	Disagreements []disagreementJSON `json:"disagreements"`
}

type switchJSON struct {
	Name     string   `json:"name"`
	Nodes    string   `json:"nodes,omitempty"`
	Children []string `json:"children,omitempty"`
	Speed    int64    `json:"speed,omitempty"`
	Block    bool     `json:"block,omitempty"`
}

type disagreementJSON struct {
	Kind  string `json:"kind"`
	Nodes string `json:"nodes"`
	Text  string `json:"text"`
}

func disagreementsOf(list []*greylagv1.Disagreement) []disagreementJSON {
	all := []disagreementJSON{}
	for _, d := range list {
		all = append(all, disagreementJSON{wire.Word(d.Kind), d.Nodes, d.Text})
	}
	return all
}

func topologyOf(answer *greylagv1.GetTopologyResponse) topologyJSON {
	out := topologyJSON{
		Version: answer.Version, Since: tool.Timestamp(answer.Since), By: answer.By, Switches: []switchJSON{},
		Disagreements: disagreementsOf(answer.Disagreements),
	}
	for _, s := range answer.Switches {
		out.Switches = append(out.Switches, switchJSON{s.Name, strings.Join(s.Nodes, ","), s.Children, s.Speed, s.Block})
	}
	return out
}
