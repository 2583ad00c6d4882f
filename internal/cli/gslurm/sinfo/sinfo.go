// Package sinfo shows partitions and nodes under Slurm's name: with sinfo's options and columns.
//
// It decides which nodes share a line: those that agree in all fields of the format that describe one
// node, as in Slurm.
package sinfo

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// The formats of sinfo: without options, with -l, -s, -N, -Nl, -R and -Rl.
const (
	usualFormat      = "%#P %.5a %.10l %.6D %.6t %N"
	longFormat       = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %.11i %N"
	summaryFormat    = "%#P %.5a %.10l %.16F %N"
	nodeFormat       = "%#N %.6D %#.P %6t"
	nodeLongFormat   = "%#N %.6D %#.P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
	reasonFormat     = "%20E %9u %19H %N"
	reasonLongFormat = "%20E %12U %19H %6t %N"
)

// Program is the description of sinfo.
func Program() slurmcmd.Program {
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string, aliases ...string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Aliases: aliases, Help: help}, Effect: effect, Note: note}
	}
	const same, differs, nothing, refused = slurmcmd.Same, slurmcmd.Differs, slurmcmd.Nothing, slurmcmd.Refused
	const one = "there is one cluster"
	return slurmcmd.Program{
		Name: "sinfo", Usage: "[OPTIONS]", Summary: "Shows partitions and nodes.",
		Options: []slurmcmd.Option{
			row("Format", 'O', "FIELDS", same, "", "columns: NodeHost:30,StateLong"),
			row("Node", 'N', "", same, "", "one line for each node"),
			row("all", 'a', "", nothing, "no partition is hidden", ""),
			row("clusters", 'M', "NAMES", differs, "this cluster or all; prints `CLUSTER: NAME` above the table, as Slurm does", "this cluster, or all", "cluster"),
			row("dead", 'd', "", same, "", "only nodes that do not respond"),
			row("exact", 'e', "", same, "", "nodes with other CPUs or memory have their own line"),
			row("federation", 0, "", nothing, one, ""),
			row("format", 'o', "FORMAT", same, "", `columns: "%P %.6D %t %N"`),
			row("future", 'F', "", nothing, "there are no future nodes", ""),
			row("hide", 0, "", nothing, "no partition is hidden", ""),
			row("iterate", 'i', "SECONDS", same, "", "repeat every SECONDS"),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list", Help: "print JSON"}, Effect: differs, Note: "the fields that Greylag knows, in the schema of data_parser v0.0.42"},
			row("list-reasons", 'R', "", same, "", "why nodes are drained or down"),
			row("local", 0, "", nothing, one, ""),
			row("long", 'l', "", same, "", "more columns"),
			row("noconvert", 0, "", nothing, "sizes are exact", ""),
			row("nodes", 'n', "NODES", same, "", "these nodes"),
			row("noheader", 'h', "", same, "", "no header line"),
			row("partition", 'p', "PARTITIONS", same, "", "these partitions"),
			row("reservation", 'T', "", same, "", "reservations"),
			row("responding", 'r', "", same, "", "only nodes that respond"),
			row("sort", 'S', "KEYS", same, "", "letters of -o; a minus reverses"),
			row("states", 't', "STATES", same, "", "nodes in these states: idle, mix, alloc, drain, down, resv", "state"),
			row("summarize", 's', "", same, "", "one line for each partition"),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "--json prints the same data"},
		},
		Notes: []string{"The load (`%O`) and the free memory (`%e`) of a node are not known: `N/A`.", "`SINFO_FORMAT` and `SLURM_TIME_FORMAT` are read.", letters(), names()},
	}
}

// listing is the request on the command line, and what the cluster answered.
type listing struct {
	format, extended, sort    string
	byNode, exact, long, json bool
	summary, reasons          bool
	noHeader, dead, alive     bool
	reservations              bool
	partitions, nodes         []string
	states                    []string
	clusters, cluster         string
	every                     time.Duration
	clock                     slurmcmd.Clock
	policy                    cluster.Policy
}

// command is one run of sinfo.
type command struct{ *slurmcmd.Command }

// Run runs sinfo and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, slurmcmd.Unreachable("slurm_load_partitions: ", c.run(ctx)))
}

func (c command) run(ctx context.Context) error {
	found, done, err := c.ParseOptions("select nodes with -n, partitions with -p")
	if err != nil || done {
		return err
	}
	l, err := c.listing(found)
	if err != nil {
		return err
	}
	columns, err := c.columns(l)
	if err != nil {
		return err
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return slurmcmd.Repeat(ctx, l.every, func() error { return c.print(ctx, cl, l, columns) })
}

// listing reads the options.
func (c command) listing(found []getopt.Found) (*listing, error) {
	l := &listing{sort: c.Variable("SINFO_SORT"), clock: c.Clock()}
	flags := map[string]*bool{
		"Node": &l.byNode, "exact": &l.exact, "long": &l.long, "json": &l.json, "summarize": &l.summary, "list-reasons": &l.reasons,
		"noheader": &l.noHeader, "dead": &l.dead, "responding": &l.alive, "reservation": &l.reservations,
	}
	for _, f := range found {
		if flag := flags[f.Option.Long]; flag != nil {
			*flag = true
		}
		switch f.Option.Long {
		case "format":
			l.format, l.extended = f.Value, ""
		case "Format":
			l.extended, l.format = f.Value, ""
		case "sort":
			l.sort = f.Value
		case "partition":
			l.partitions = append(l.partitions, strings.Split(f.Value, ",")...)
		case "nodes":
			names, err := hostlist.Expand(f.Value)
			if err != nil {
				return nil, &ui.UsageError{Problem: "invalid node list: " + f.Value}
			}
			l.nodes = append(l.nodes, names...)
		case "states":
			if !strings.EqualFold(f.Value, "all") {
				l.states = append(l.states, strings.FieldsFunc(strings.ToLower(f.Value), func(r rune) bool { return r == ',' || r == '&' })...)
			}
		case "clusters":
			l.clusters = f.Value
		case "iterate":
			n, err := strconv.ParseUint(f.Value, 10, 16)
			if err != nil || n == 0 {
				return nil, &ui.UsageError{Problem: fmt.Sprintf("--iterate: not a number of seconds: %q", f.Value)}
			}
			l.every = time.Duration(n) * time.Second
		}
	}
	for _, s := range l.states {
		if !slices.Contains(stateWords, s) {
			return nil, &ui.UsageError{Problem: "Bad state string: " + s, Advice: "states are " + strings.Join(stateWords[:9], ", ")}
		}
	}
	return l, nil
}

// stateWords are the states that -t takes; those after the first nine are other names, or states in
// which no node here is ever.
var stateWords = []string{
	"idle", "mixed", "allocated", "drained", "draining", "down", "reserved", "drain", "unknown", "mix", "alloc", "drng", "resv", "resume", "comp", "completing", "maint", "fail",
	"failing", "future", "planned", "powered_down", "powering_up", "powering_down", "power_down", "power_up", "reboot", "no_respond", "unk", "err", "error", "perfctrs", "block", "npc", "cloud",
}

// columns returns those of the requested format.
func (c command) columns(l *listing) ([]slurmcmd.Column, error) {
	format := l.format
	switch {
	case l.json || format != "" || l.extended != "":
	case l.reasons && l.long:
		format = reasonLongFormat
	case l.reasons:
		format = reasonFormat
	case l.byNode && l.long:
		format = nodeLongFormat
	case l.byNode:
		format = nodeFormat
	case l.summary:
		format = summaryFormat
	case l.long:
		format = longFormat
	case c.Variable("SINFO_FORMAT") != "":
		format = c.Variable("SINFO_FORMAT")
	default:
		format = usualFormat
	}
	var columns []slurmcmd.Column
	var err error
	switch {
	case l.extended != "":
		columns, err = slurmcmd.ParseLongFormat(l.extended)
	case format != "":
		columns, err = slurmcmd.ParseFormat(format)
	}
	for _, col := range columns {
		if err == nil && fieldFor(col) == nil {
			err = &ui.UsageError{Problem: "Invalid node format specification: " + cmp.Or(col.Name, string(col.Letter)), Advice: "docs/from-slurm.md lists the fields"}
		}
	}
	return columns, err
}

// print fetches partitions and nodes, and prints them.
func (c command) print(ctx context.Context, cl ui.Cluster, l *listing, columns []slurmcmd.Column) error {
	if l.clusters != "" || l.json {
		status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
		if err != nil {
			return err
		}
		if l.cluster = status.Cluster; l.clusters != "" {
			if err := slurmcmd.Ours(l.clusters, l.cluster); err != nil {
				return err
			}
		}
	}
	if l.reservations {
		return c.printReservations(ctx, cl, l)
	}
	policy, err := slurmcmd.Policy(ctx, cl)
	if err != nil {
		return err
	}
	l.policy, l.cluster = policy, cmp.Or(l.cluster, policy.Cluster)
	answer, err := cl.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{})
	if err != nil {
		return err
	}
	if l.json {
		for _, name := range []string{"partitionname", "statelong", "gres", "features", "reason"} {
			columns = append(columns, slurmcmd.Column{Name: name})
		}
		return c.printJSON(l, l.rows(answer.Nodes, columns))
	}
	return c.printRows(l, columns, l.rows(answer.Nodes, columns))
}

func (c command) printRows(l *listing, columns []slurmcmd.Column, rows []*row) error {
	fields := make([]*field, len(columns))
	cells := make([][]string, len(rows))
	for i := range columns {
		fields[i] = fieldFor(columns[i])
		columns[i].Width = max(columns[i].Width, fitted(&columns[i], max(leastFit, len(fields[i].title))))
		for k, r := range rows {
			text := fields[i].write(l, r)
			cells[k] = append(cells[k], text)
			columns[i].Width = max(columns[i].Width, fitted(&columns[i], ui.Columns([]byte(text))))
		}
	}
	out := bufio.NewWriter(c.Stdout)
	if l.clusters != "" && !l.noHeader {
		fmt.Fprintf(out, "CLUSTER: %s\n", l.cluster)
	}
	if (l.long || l.every > 0) && !l.noHeader {
		out.WriteString(c.Now().Format("Mon Jan _2 15:04:05 2006") + "\n")
	}
	var line []byte
	if !l.noHeader {
		for i := range columns {
			line = columns[i].Append(line, fields[i].title)
		}
		out.Write(append(line, '\n')) // an error shows at Flush
	}
	for _, texts := range cells {
		line = line[:0]
		for i, text := range texts {
			line = columns[i].Append(line, text)
		}
		out.Write(append(line, '\n'))
	}
	return out.Flush()
}

// leastFit is the least width of a column that fits its values.
const leastFit = 9

// fitted returns the width for a value, of a column that fits its values.
func fitted(c *slurmcmd.Column, width int) int {
	if c.Fit {
		return width
	}
	return 0
}

// printReservations prints the reservations of -T.
func (c command) printReservations(ctx context.Context, cl ui.Cluster, l *listing) error {
	answer, err := cl.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Reservations: true})
	if err != nil {
		return err
	}
	if len(answer.Reservations) == 0 {
		return c.Write("No reservations in the system\n")
	}
	var b strings.Builder
	if !l.noHeader {
		fmt.Fprintf(&b, "%-12s %8s %19s %19s %11s  %s\n", "RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	for _, r := range answer.Reservations {
		state := "INACTIVE"
		if r.State == greylagv1.ReservationState_RESERVATION_STATE_ACTIVE {
			state = "ACTIVE"
		}
		start, end := ui.TimeOf(r.Start), ui.TimeOf(r.End)
		fmt.Fprintf(&b, "%-12s %8s %19s %19s %11s  %s\n", ui.Printable(r.Name), state, l.clock.Format(start, "N/A"), l.clock.Format(end, "N/A"), slurmcmd.LongLength(end.Sub(start)), ui.Printable(r.NodeList))
	}
	return c.Write(b.String())
}
