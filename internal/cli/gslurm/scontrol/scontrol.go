// Package scontrol shows and changes jobs and nodes under Slurm's name: with scontrol's words, output
// and messages.
//
// It decides how jobs, nodes and partitions are written as scontrol writes them. Whether a change is
// allowed is the cluster's decision.
package scontrol

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// Program is the description of scontrol.
func Program() slurmcmd.Program {
	row := func(long string, short byte, value string, effect slurmcmd.Effect, note, help string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Value: value, Help: help}, Effect: effect, Note: note}
	}
	const same, differs, nothing, refused = slurmcmd.Same, slurmcmd.Differs, slurmcmd.Nothing, slurmcmd.Refused
	p := slurmcmd.Program{
		Name: "scontrol", Usage: "[OPTIONS] COMMAND", Summary: "Shows and changes jobs and nodes.",
		Options: []slurmcmd.Option{
			row("all", 'a', "", nothing, "no partition is hidden", ""),
			row("clusters", 'M', "NAMES", differs, "this cluster, or all", "this cluster, or all"),
			{Option: getopt.Option{Long: "details", Short: 'd', Help: "show allocated resources of each node"}, Effect: same},
			row("federation", 'F', "", nothing, "there is one cluster", ""),
			row("future", 0, "", nothing, "there are no future nodes", ""),
			row("hide", 0, "", nothing, "no partition is hidden", ""),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list", Help: "print jobs, nodes and partitions as JSON"}, Effect: differs, Note: "the fields that Greylag knows, in the schema of data_parser v0.0.42"},
			row("local", 0, "", nothing, "there is one cluster", ""),
			row("oneliner", 'o', "", same, "", "one line for each record"),
			row("quiet", 'Q', "", same, "", "print no messages"),
			row("sibling", 0, "", nothing, "there is one cluster", ""),
			row("uid", 'u', "USER", refused, "run it as that user", ""),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "--json prints the same data"},
		},
		Notes: []string{
			"With `-o`, blanks within a value are printed as `\\x20`, so that each word holds `=`.",
			"Ended jobs are shown for `MinJobAge`, 300 s; `sacct` shows them later.",
			slurmcmd.OwnFields,
		},
	}
	for _, v := range verbs() {
		p.Commands = append(p.Commands, slurmcmd.Subcommand{Words: v.words, Effect: v.effect, Note: v.note})
	}
	return p
}

// verb is one command of scontrol.
type verb struct {
	name, words string
	effect      slurmcmd.Effect
	note        string // of a refused one what to do instead
	run         func(c command, ctx context.Context, args []string) error
}

func verbs() []verb {
	refused := func(name, instead string) verb {
		return verb{name: name, words: name, effect: slurmcmd.Refused, note: instead}
	}
	const policy = "change the policy with gctl apply"
	same, differs := slurmcmd.Same, slurmcmd.Differs
	return []verb{
		{"show", "show ENTITY [NAME]", differs, "job, step, node, partition, reservation, licenses, config, hostnames, hostlist", command.show},
		{"hold", "hold JOB...", same, "", action("hold")},
		{"uhold", "uhold JOB...", same, "", action("hold")},
		{"release", "release JOB...", same, "", action("release")},
		{"requeue", "requeue JOB...", same, "", action("requeue")},
		{"requeuehold", "requeuehold JOB...", differs, "no `State=SpecialExit` and no `Incomplete`", action("requeue-hold")},
		{"update", "update JobId=... or NodeName=...", differs, "jobs, and State and Reason of nodes", command.update},
		{"reboot", "reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES", differs, "ALL is refused: name the nodes; nextstate=DOWN leaves the nodes drained, not DOWN", command.reboot},
		{"cancel_reboot", "cancel_reboot NODES", same, "", command.cancelReboot},
		{"ping", "ping", same, "", command.ping},
		{"wait_job", "wait_job JOB", same, "", command.waitJob},
		{"write", "write batch_script JOB [FILE]", same, "", command.write},
		{"version", "version", same, "", func(c command, _ context.Context, _ []string) error { return c.PrintVersion() }},
		refused("suspend", "jobs are not suspended: cancel or requeue the job"), refused("resume", "jobs are not suspended"),
		refused("top", "an operator changes the order with scontrol update Nice"), refused("notify", "messages cannot be sent to a job"),
		refused("token", "gauthd issues tokens: docs/api.md"), refused("reconfigure", "gctl apply changes the policy at once"),
		refused("create", policy), refused("delete", policy),
		refused("power", "nodes are not powered by the cluster"), refused("takeover", "gctl cluster transfer changes the leader"),
		refused("setdebug", "set the log level of gctld"), refused("setdebugflags", "set the log level of gctld"), refused("shutdown", "stop gctld with systemctl"),
		refused("schedloglevel", "set the log level of gctld"), refused("completing", "write squeue -t CG"), refused("listpids", "run ps on the node"),
		refused("getent", "run getent on the node"), refused("errnumstr", "errors are sentences"),
		refused("fsdampeningfactor", policy), refused("checkpoint", "jobs save their work themselves"), refused("pidinfo", "run ps on the node"),
	}
}

// command is one run of scontrol.
type command struct {
	*slurmcmd.Command
	detail   bool
	line     bool
	quiet    bool
	json     bool
	clusters string
}

// Run runs scontrol and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{Command: slurmcmd.New(p, Program())}
	return c.Finish(ctx, c.run(ctx))
}

func (c command) run(ctx context.Context) error {
	c.Args = splitDetails(c.Args)
	found, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	for _, f := range found {
		switch f.Option.Long {
		case "details":
			c.detail = true
		case "oneliner":
			c.line = true
		case "quiet":
			c.quiet = true
		case "json":
			c.json = true
		case "clusters":
			c.clusters = f.Value
		}
	}
	if len(operands) == 0 {
		return &ui.UsageError{Problem: "no command given", Advice: "write scontrol show job JOB; there is no interactive mode"}
	}
	v, err := find(operands[0])
	if err != nil {
		return err
	}
	if v.run == nil {
		return &ui.UsageError{Problem: v.name + " is not supported", Advice: v.note}
	}
	if c.json && v.name != "show" {
		return &ui.UsageError{Problem: "--json is not supported for " + v.name, Advice: "it is for show job, node, partition and licenses"}
	}
	return v.run(c, ctx, operands[1:])
}

// splitDetails writes -dd as two options.
func splitDetails(args []string) []string {
	var all []string
	for _, word := range args {
		if word == "-dd" || word == "-ddd" {
			word = "-d"
		}
		all = append(all, word)
	}
	return all
}

// find returns the command that a word or a prefix of it names.
func find(word string) (verb, error) {
	var names []string
	for _, v := range verbs() {
		if v.name == word || len(word) > 2 && strings.HasPrefix(v.name, strings.ToLower(word)) {
			return v, nil
		}
		names = append(names, v.name)
	}
	advice := "commands are show, hold, release, requeue, update, ping, wait_job and write"
	if near := getopt.Closest(word, names); near != "" {
		advice = "did you mean " + near + "?"
	}
	return verb{}, &ui.UsageError{Problem: "invalid keyword: " + word, Advice: advice}
}

// dial returns the cluster, once -M is checked.
func (c command) dial(ctx context.Context) (ui.Cluster, error) {
	_, cluster, err := c.Client()
	if err != nil || c.clusters == "" {
		return cluster, err
	}
	name, err := clusterName(ctx, cluster)
	if err == nil {
		err = slurmcmd.Ours(c.clusters, name)
	}
	if err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// record is one job, node or partition: lines of KEY=VALUE.
type record [][]string

// pairs returns a line of KEY=VALUE from names and values in turn.
func pairs(words ...string) []string {
	var line []string
	for i := 0; i < len(words); i += 2 {
		line = append(line, words[i]+"="+words[i+1])
	}
	return line
}

// writeRecords prints records: several lines each, or one.
func (c command) writeRecords(records []record) error {
	var b strings.Builder
	for _, r := range records {
		if c.line {
			var words []string
			for _, line := range r {
				for _, word := range line {
					words = append(words, strings.ReplaceAll(ui.Printable(word), " ", `\x20`))
				}
			}
			b.WriteString(strings.Join(words, " ") + "\n")
			continue
		}
		for i, line := range r {
			if i > 0 {
				b.WriteString("   ")
			}
			b.WriteString(ui.Printable(strings.Join(line, " ")) + "\n")
		}
		b.WriteString("\n")
	}
	return c.Write(b.String())
}

// entity is something that show prints.
type entity struct {
	names string
	run   func(c command, ctx context.Context, args []string) error
	note  string // why it is refused
	json  bool
}

func entities() []entity {
	return []entity{
		{names: "jobs jobid", run: command.showJobs, json: true}, {names: "nodes", run: command.showNodes, json: true}, {names: "partitions", run: command.showPartitions, json: true},
		{names: "reservations", run: command.showReservations}, {names: "licenses", run: command.showLicenses, json: true}, {names: "config", run: command.showConfig},
		{names: "hostnames", run: command.showHostnames}, {names: "hostlist", run: command.showHostlist}, {names: "hostlistsorted", run: command.showSortedHostlist},
		{names: "steps", run: command.showSteps}, {names: "topology", note: "gctl topology show prints the switches"}, {names: "topoconf", note: "gctl topology export prints the file"},
		{names: "assoc_mgr", note: "sacctmgr show assoc prints the limits"}, {names: "burstbuffer", note: "there are no burst buffers"}, {names: "federation", note: "there is one cluster"},
		{names: "daemons", note: "systemctl status gctld gnoded gauthd shows them"}, {names: "aliases", note: "node names are host names"}, {names: "bbstat dwstat", note: "there are no burst buffers"},
	}
}

func (c command) show(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return &ui.UsageError{Problem: "show needs an entity", Advice: "write scontrol show job, node, partition, reservation, config or hostnames"}
	}
	name, value, assigned := strings.Cut(args[0], "=")
	args = args[1:]
	if assigned { // JobId=12
		args = slices.Insert(args, 0, value)
		name = strings.TrimSuffix(strings.ToLower(name), "name")
	}
	word := strings.ToLower(name)
	for _, e := range entities() {
		for _, known := range strings.Fields(e.names) {
			if len(word) < 3 || !strings.HasPrefix(known, word) {
				continue
			}
			if e.run == nil {
				return &ui.UsageError{Problem: "show " + name + " is not supported", Advice: e.note}
			}
			if c.json && !e.json {
				return &ui.UsageError{Problem: "--json is not supported for show " + name, Advice: "it is for jobs, nodes, partitions and licenses; -o prints one record per line"}
			}
			return e.run(c, ctx, args)
		}
	}
	return &ui.UsageError{Problem: fmt.Sprintf("invalid entity: %s for keyword: show", name), Advice: "write scontrol show job, node, partition, reservation, config or hostnames"}
}
