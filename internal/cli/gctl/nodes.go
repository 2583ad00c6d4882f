package gctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t commands) nodesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "nodes [NODES]", Short: "List nodes, one per line", GroupID: tool.GroupInspect, Args: cobra.ArbitraryArgs,
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			answer, err := t.askNodes(ctx, c, args)
			if err != nil || t.JSON {
				return err
			}
			return t.WriteTable(nodeTable(answer))
		}),
	}
	t.AddStaleFlag(c)
	return c
}

// askNodes fetches nodes, and prints them as JSON if requested.
func (t commands) askNodes(ctx context.Context, c ui.Cluster, args []string) ([]*greylagv1.Node, error) {
	for _, arg := range args {
		if _, err := hostlist.Expand(arg); err != nil {
			return nil, badNodes(arg)
		}
	}
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: args, Read: t.Read()})
	if err != nil {
		return nil, err
	}
	t.TellStale(answer.AsOf)
	if len(answer.Nodes) == 0 && len(args) > 0 {
		t.Complain("no node "+strings.Join(args, ","), "gctl nodes lists the nodes")
		return nil, ui.Exit(ui.NotFound)
	}
	if t.JSON {
		return nil, t.WriteJSON(nodesOf(answer.Nodes))
	}
	return answer.Nodes, nil
}

func badNodes(text string) error {
	return &ui.UsageError{Problem: fmt.Sprintf("not a list of nodes: %q", text), Advice: "use a host list such as gpu[001-004],login1"}
}

func nodeTable(all []*greylagv1.Node) ui.Table {
	table := ui.Table{
		Head:  []string{"NODE", "STATE", "CPUS", "USED", "MEMORY", "USED", "GPUS", "USED", "JOBS", "REASON"},
		Right: "llrrrrlrrl", Wide: []int{6, 0},
	}
	for _, n := range all {
		table.Rows = append(table.Rows, []string{
			n.Name, strings.ToLower(standing(n)), number(n.Cpus), number(n.CpusUsed), gib(n.Memory), gib(n.MemoryUsed),
			orNone(gpuCounts(n.Gpus)), number(int32(len(n.GpusUsed))), number(n.Jobs), whyNot(n),
		})
	}
	return table
}

// standing returns the node's state, with "drained" where the state is only silent, and "reserved"
// where it is only idle.
func standing(n *greylagv1.Node) string {
	if len(n.Reservations) > 0 && n.State == greylagv1.NodeState_NODE_STATE_IDLE {
		return "RESERVED"
	}
	word := wire.Word(n.State)
	if n.Drain && !strings.HasPrefix(word, "DRAIN") {
		word += "+DRAIN"
	}
	if n.Reboot != nil {
		word += "+REBOOT_" + map[bool]string{false: "REQUESTED", true: "ISSUED"}[n.Reboot.Issued]
	}
	return word
}

// gib formats a node's memory in a column's few characters.
func gib(n int64) string { return fmt.Sprintf("%dG", n>>30) }

// gpuCounts returns such as "h100:8", types in the order of the devices.
func gpuCounts(gpus []*greylagv1.GPU) string {
	var order []string
	counts := make(map[string]int)
	for _, g := range gpus {
		if counts[g.Type] == 0 {
			order = append(order, g.Type)
		}
		counts[g.Type]++
	}
	for i, kind := range order {
		order[i] = fmt.Sprintf("%s:%d", kind, counts[kind])
	}
	return strings.Join(order, ",")
}

// whyNot returns why a node accepts no jobs, or else what it reports about its health.
func whyNot(n *greylagv1.Node) string {
	switch {
	case n.Fault != "":
		return n.Fault
	case n.Reason != "":
		return n.Reason
	case n.Reboot != nil:
		return "reboots when idle"
	case len(n.Conditions) > 0:
		return conditionText(n, n.Conditions[0])
	}
	return ""
}

// conditionText describes a condition of a node: message (reboot required: gctl reboot NODE).
func conditionText(n *greylagv1.Node, c *greylagv1.Condition) string {
	if c.Repair == greylagv1.Repair_REPAIR_REBOOT && n.Reboot == nil {
		return c.Message + " (reboot required: gctl reboot " + n.Name + ")"
	}
	return c.Message + repairText(c.Repair)
}

func repairText(r greylagv1.Repair) string {
	if r == greylagv1.Repair_REPAIR_UNSPECIFIED {
		return ""
	}
	return " (" + wire.Word(r) + " required)"
}

// conditionFacts returns a line for each condition of a node.
func conditionFacts(n *greylagv1.Node) (facts [][2]string) {
	for _, c := range n.Conditions {
		effect := ""
		switch c.Effect {
		case greylagv1.ConditionEffect_CONDITION_EFFECT_DRAINS:
			if effect = "drains: "; n.DrainSuppressed {
				effect = "not drained, too many nodes were or it was resumed: "
			}
		case greylagv1.ConditionEffect_CONDITION_EFFECT_DEGRADES:
			effect = "no jobs of several nodes: "
		}
		facts = append(facts, [2]string{"condition", effect + conditionText(n, c)})
	}
	return facts
}

// failureFacts returns a line for each failure of a node in the last 28 days, and one that says what follows.
func (t commands) failureFacts(n *greylagv1.Node) (facts [][2]string) {
	for _, f := range n.Failures {
		facts = append(facts, [2]string{"failed", t.FormatTime(f.Time) + ", " + f.Cause})
	}
	if len(n.Failures) > 0 {
		text := fmt.Sprintf("%d.%d times the rate of the cluster", n.FailureScore/10, n.FailureScore%10)
		if n.FailsOften {
			text += "; jobs that request more than 8 nodes start here only if they cannot start as early elsewhere"
		}
		facts = append(facts, [2]string{"failure rate", text})
	}
	return facts
}

func (t commands) showNodes(ctx context.Context, c ui.Cluster, args []string) error {
	all, err := t.askNodes(ctx, c, args)
	if err != nil {
		return err
	}
	for _, n := range all {
		if err := t.Facts("node "+n.Name, t.nodeFacts(n)); err != nil {
			return err
		}
	}
	return nil
}

// gresText lists the generic resources of a node with their use: nvme:2 (1 used).
func gresText(n *greylagv1.Node) string {
	words := ui.GresWords(n.Gres)
	for i, g := range n.Gres {
		words[i] += fmt.Sprintf(" (%d used)", ui.GresUsed(n, g.Name))
	}
	return strings.Join(words, ", ")
}

func (t commands) nodeFacts(n *greylagv1.Node) [][2]string {
	facts := [][2]string{
		{"state", standing(n)}, {sinceWord(n), t.FormatTime(n.Since)}, {"fault", n.Fault}, {"fault since", t.FormatTime(n.FaultSince)}, {"drain reason", n.Reason}, {"drained by", n.ReasonBy}, {"drained since", t.FormatTime(n.ReasonSince)}, {"reboot", t.rebootText(n.Reboot)}, {"fence", t.fenceText(n)},
		{"partitions", strings.Join(n.Partitions, ", ")}, {"reserved by", strings.Join(n.Reservations, ", ")}, {"jobs", number(n.Jobs)},
		{"CPUs", fmt.Sprintf("%d, %d used", n.Cpus, n.CpusUsed)},
		{"memory", fmt.Sprintf("%s, %s used", cluster.Bytes(n.Memory)/cluster.MiB*cluster.MiB, cluster.Bytes(n.MemoryUsed))},
		{"gres", gresText(n)}, {"features", strings.Join(n.Features, ", ")}, {"region", n.Region}, {"address", n.Address}, {"runtime", n.Runtime}, {"version", n.Version}, {"registered", t.FormatTime(n.Registered)},
	}
	facts = append(facts, conditionFacts(n)...)
	facts = append(facts, t.failureFacts(n)...)
	used := make(map[int32]bool)
	for _, i := range n.GpusUsed {
		used[i] = true
	}
	for _, g := range n.Gpus {
		state := "free"
		switch {
		case g.Fault != "":
			state = "bad: " + g.Fault
		case used[g.Index]:
			state = "used" + sharedText(n, g.Index)
		}
		if g.Degraded != "" && g.Fault == "" {
			state += ", degraded: " + g.Degraded
		}
		state += repairText(g.Repair)
		if g.Domain != "" {
			state += ", NVLink domain " + g.Domain
		}
		state += parentText(g)
		facts = append(facts, [2]string{fmt.Sprintf("GPU %d", g.Index), fmt.Sprintf("%s, %s, %s, %s", g.Type, cluster.Bytes(g.Memory), g.Uuid, state)})
	}
	return facts
}

// parentText names the GPU that a MIG instance is a part of, with its share in it; "" for a whole GPU.
func parentText(g *greylagv1.GPU) string {
	if g.ParentType == "" {
		return ""
	}
	return fmt.Sprintf(", %d/%d of the %s /dev/nvidia%d", g.Share, cluster.MIGShares, g.ParentType, g.Minor)
}

// rebootText describes the request to reboot a node; "" for none.
func (t commands) rebootText(r *greylagv1.NodeReboot) string {
	if r == nil {
		return ""
	}
	text := "requested by " + r.By + " at " + t.FormatTime(r.Since)
	switch {
	case r.Issued:
		text = "issued; " + text
	case r.WhenIdle:
		text += ", at the first moment without jobs"
	default:
		text += ", when its jobs have ended"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.StayDrained {
		text += "; stays drained afterwards"
	}
	return text
}

// fenceText describes the wait of jobs for proof that a node is off; "" for none.
func (t commands) fenceText(n *greylagv1.Node) string {
	f := n.Fence
	if f == nil {
		return ""
	}
	text := fmt.Sprintf("not fenced since %s: tasks of %s may still be running", t.FormatTime(f.Since), ui.Count(int64(f.Jobs), "job"))
	if f.Tries > 0 {
		text += fmt.Sprintf("; fence.program failed %s, last at %s: %s; it runs again at %s", ui.Count(int64(f.Tries), "time"), t.FormatTime(f.Tried), f.Failure, t.FormatTime(f.Next))
	}
	return text + "; if the node is off: gctl node fenced " + n.Name
}

func (t commands) drain() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "drain NODES --reason TEXT", Short: "Drain nodes: start no new jobs there", GroupID: tool.GroupNodes, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.change(ctx, c, &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_DRAIN, Reason: reason}, args)
		}),
	}
	c.Flags().StringVarP(&reason, "reason", "r", "", "reason shown to users")
	tool.Must(c.MarkFlagRequired("reason"))
	return c
}

func (t commands) resume() *cobra.Command {
	return &cobra.Command{
		Use: "resume NODES", Short: "Return drained nodes to service", GroupID: tool.GroupNodes, Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.change(ctx, c, &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_RESUME}, args)
		}),
	}
}

func (t commands) node() *cobra.Command {
	node := &cobra.Command{
		Use: "node", Short: "Remove retired nodes, and confirm that nodes are off", GroupID: tool.GroupNodes, Args: tool.RequireSubcommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	force := false
	remove := &cobra.Command{
		Use: "remove NODES", Short: "Remove retired nodes", Args: cobra.MinimumNArgs(1),
		Long: `Removes nodes with their drain reasons, and revokes their certificates: such a
host can return only with gctl join and a new token. A node with jobs is
refused. If a node does not respond, its jobs may still run: they are treated
as lost after node_timeout, or immediately with --force; then they are
requeued or end as NODE_FAIL.`,
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.change(ctx, c, &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_REMOVE, Force: force}, args)
		}),
	}
	remove.Flags().BoolVar(&force, "force", false, "remove unresponsive nodes even if they have jobs")
	node.AddCommand(remove, t.fenced())
	return node
}

func (t commands) fenced() *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use: "fenced NODES", Short: "Confirm that nodes are off, so that their jobs run elsewhere", Args: cobra.MinimumNArgs(1),
		Long: `Confirms that nodes are off, or can reach neither the storage nor the network
of their jobs. A node that does not respond is DOWN at once, and jobs whose last
attempts ran there wait for it no longer. If the node still runs, two attempts
of a job run at the same time: check its power first.`,
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			return t.change(ctx, c, &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_FENCED, Reason: reason}, args)
		}),
	}
	c.Flags().StringVarP(&reason, "reason", "r", "", "reason in the audit journal")
	return c
}

// change drains, resumes or removes nodes.
func (t commands) change(ctx context.Context, c ui.Cluster, request *greylagv1.UpdateNodesRequest, args []string) error {
	var names []string
	for _, arg := range args {
		more, err := hostlist.Expand(arg)
		if err != nil {
			return badNodes(arg)
		}
		names = append(names, more...)
	}
	if len(names) == 0 {
		return &ui.UsageError{Problem: errNothing.Error(), Advice: "write gctl " + wire.Word(request.Action) + " NODES"}
	}
	request.RequestId, request.Names = client.NewRequestID(), names
	removed := t.toRemove(ctx, c, request)
	answer, err := c.Cluster().UpdateNodes(ctx, request)
	if err != nil {
		return err
	}
	var alive []string
	for _, n := range removed {
		if n.Reason != "" {
			t.Note("%s was drained (%s): its removal ends the drain", n.Name, ui.Printable(n.Reason))
		}
		if wire.Word(n.State) != cluster.NodeUnknown.String() && wire.Word(n.State) != cluster.NodeDown.String() {
			alive = append(alive, n.Name)
		}
	}
	if len(alive) > 0 {
		t.Warn(hostlist.Compress(alive) + " is still up and is refused from now on: stop gnoded there; to use the host again, create a token with gctl cluster token --node and run gctl join there")
	}
	if t.JSON {
		return t.WriteJSON(struct {
			Names []string `json:"names"`
			Index uint64   `json:"index"`
		}{answer.Names, answer.Index})
	}
	if request.Action == greylagv1.NodeAction_NODE_ACTION_RESUME {
		return t.tellResumed(ctx, c, answer.Names, names)
	}
	if len(answer.Names) == 0 {
		t.Note("nothing changed")
		return nil
	}
	if request.Action == greylagv1.NodeAction_NODE_ACTION_DRAIN {
		return t.tellDrained(ctx, c, answer.Names)
	}
	_, err = fmt.Fprintf(t.Stdout, "%s %s\n", map[string]string{
		"remove": "removed", "reboot": "reboot requested:", "reboot-when-idle": "reboot when idle requested:", "cancel-reboot": "reboot cancelled:", "fenced": "confirmed as off:",
	}[wire.Word(request.Action)], hostlist.Compress(answer.Names))
	return err
}

// toRemove returns what is known about nodes to be removed; nothing if the cluster does not answer.
func (t commands) toRemove(ctx context.Context, c ui.Cluster, request *greylagv1.UpdateNodesRequest) []*greylagv1.Node {
	if request.Action != greylagv1.NodeAction_NODE_ACTION_REMOVE {
		return nil
	}
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: request.Names})
	if err != nil {
		return nil
	}
	return answer.Nodes
}

// tellResumed names the resumed nodes, and those of all that still take no jobs, with the reason.
func (t commands) tellResumed(ctx context.Context, c ui.Cluster, resumed, all []string) error {
	if len(resumed) > 0 {
		if _, err := fmt.Fprintf(t.Stdout, "resumed %s\n", hostlist.Compress(resumed)); err != nil {
			return err
		}
	} else {
		t.Note("nothing changed: not drained: %s", hostlist.Compress(all))
	}
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: all})
	if err != nil {
		return nil //nolint:nilerr // the nodes are resumed
	}
	for _, f := range faultsOf(answer.Nodes) {
		t.Note("%s still %s no jobs: %s (clears when the node stops reporting it: gctl show node %s)", f.nodes, verb(f.n, "takes", "take"), f.fault, f.nodes)
	}
	var silent []string
	for _, n := range answer.Nodes {
		if n.State == greylagv1.NodeState_NODE_STATE_UNKNOWN || n.State == greylagv1.NodeState_NODE_STATE_DOWN {
			silent = append(silent, n.Name)
		}
	}
	if len(silent) > 0 {
		list := hostlist.Compress(silent)
		t.Note("%s still %s no jobs: not responding (run systemctl status gnoded there)", list, verb(len(silent), "takes", "take"))
	}
	return nil
}

// verb returns the form of a verb for n subjects.
func verb(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// nodeFault is a fault that nodes report.
type nodeFault struct {
	fault, nodes string
	n            int
}

// faultsOf groups nodes by the fault that they report, the most frequent one first.
func faultsOf(all []*greylagv1.Node) []nodeFault {
	names := map[string][]string{}
	for _, n := range all {
		if n.Fault != "" {
			names[n.Fault] = append(names[n.Fault], n.Name)
		}
	}
	var faults []nodeFault
	for _, fault := range slices.Sorted(maps.Keys(names)) {
		faults = append(faults, nodeFault{ui.Printable(fault), hostlist.Compress(names[fault]), len(names[fault])})
	}
	slices.SortStableFunc(faults, func(a, b nodeFault) int { return cmp.Compare(b.n, a.n) })
	return faults
}

// tellDrained names the drained nodes with running jobs. If that is unknown, it calls the nodes
// drained: no new work is placed on them.
func (t commands) tellDrained(ctx context.Context, c ui.Cluster, names []string) error {
	busy := make(map[string]bool)
	if answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Names: names}); err == nil {
		for _, n := range answer.Nodes {
			busy[n.Name] = n.Jobs > 0
		}
	}
	done := map[bool][]string{}
	for _, name := range names {
		done[busy[name]] = append(done[busy[name]], name)
	}
	for _, running := range []bool{false, true} {
		if len(done[running]) == 0 {
			continue
		}
		word := map[bool]string{false: "drained", true: "draining"}[running]
		if _, err := fmt.Fprintf(t.Stdout, "%s %s\n", word, hostlist.Compress(done[running])); err != nil {
			return err
		}
	}
	return nil
}

// errNothing is returned for arguments that select nothing.
var errNothing = errors.New("no names given")

// sharedText says how many jobs share a GPU; "" if none does.
func sharedText(n *greylagv1.Node, index int32) string {
	for _, g := range n.SharedGpus {
		if g.Index != index {
			continue
		}
		how := ""
		if g.Mps {
			how = ", under MPS"
		}
		return fmt.Sprintf(" by %s of one user (at most %d%s)", ui.Count(int64(g.Jobs), "job"), g.MaxJobs, how)
	}
	return ""
}

// sinceWord names what Since is of a node: the start of its state while it accepts no new work; else its jobs change its
// state, and it is the time from which the node responds.
func sinceWord(n *greylagv1.Node) string {
	switch n.State {
	case greylagv1.NodeState_NODE_STATE_IDLE, greylagv1.NodeState_NODE_STATE_MIXED, greylagv1.NodeState_NODE_STATE_ALLOCATED:
		return "responding since"
	}
	return "since"
}
