// Package sacctmgr shows accounts, users, associations, QOS, clusters and resources under Slurm's name.
//
// It decides how the accounts of the cluster are written in sacctmgr's columns. It changes only the admin
// comment of jobs: gctl account changes accounts.
package sacctmgr

import (
	"context"
	"fmt"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// Program is the description of sacctmgr.
func Program() slurmcmd.Program {
	row := func(long string, short byte, effect slurmcmd.Effect, note, help string) slurmcmd.Option {
		return slurmcmd.Option{Option: getopt.Option{Long: long, Short: short, Help: help}, Effect: effect, Note: note}
	}
	const same, nothing, refused = slurmcmd.Same, slurmcmd.Nothing, slurmcmd.Refused
	p := slurmcmd.Program{
		Name: "sacctmgr", Usage: "[OPTIONS] show ENTITY [where NAME=VALUE ...] [format=FIELDS]", Summary: "Shows accounts, users, associations, QOS, clusters and resources.",
		Options: []slurmcmd.Option{
			row("associations", 's', same, "", "show associations with users and accounts"),
			row("immediate", 'i', nothing, "there is no confirmation prompt", ""),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "-P prints fields separated by bars; gctl account list --json prints JSON"},
			row("noheader", 'n', same, "", "no header line"),
			row("oneliner", 'o', nothing, "each record is a line", ""),
			row("parsable", 'p', same, "", "fields separated by |, with one at the end"),
			row("parsable2", 'P', same, "", "fields separated by |"),
			row("quiet", 'Q', nothing, "it prints no messages", ""),
			row("readonly", 'r', same, "", "reject commands that change data"),
			row("verbose", 'v', nothing, "it only prints more", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "-P prints fields separated by bars"},
		},
	}
	for _, e := range entities() {
		p.Commands = append(p.Commands, slurmcmd.Subcommand{Words: "show " + strings.Fields(e.names)[0], Effect: e.effect(), Note: e.note})
	}
	p.Notes = []string{"`sacctmgr update job where jobid=JOB set AdminComment=TEXT` (the command that jobstats runs) sets AdminComment, up to 16 KiB, on an active job or one of the last 65,536 ended jobs. An empty text removes it. Requires role operator. `sacctmgr modify job` and `scontrol update JobId=JOB AdminComment=TEXT` do the same."}
	p.Commands = append(p.Commands, slurmcmd.Subcommand{Words: "update job", Effect: slurmcmd.Differs, Note: "only AdminComment; also as `modify job`"})
	for _, v := range refusedVerbs {
		p.Commands = append(p.Commands, slurmcmd.Subcommand{Words: v[0], Effect: refused, Note: v[1]})
	}
	return p
}

// refusedVerbs are the commands that change something, and what to use instead.
var refusedVerbs = [][2]string{
	{"add", "gctl account add"}, {"create", "gctl account add"}, {"modify", "gctl account modify; the policy holds QOS"}, {"update", "gctl account modify"},
	{"delete", "gctl account delete"}, {"dump", "gctl account export"}, {"load", "gctl account load"}, {"archive", "ended jobs are archived always"}, {"clear", "there are no statistics"},
	{"reconfigure", "gctl apply changes the policy at once"}, {"shutdown", "stop gctld with systemctl"}, {"ping", "scontrol ping"}, {"remove", "gctl account delete"},
}

// entity is what show prints.
type entity struct {
	names  string
	fields []slurmcmd.Field
	usual  string // fields without format
	assoc  string // fields with withassoc
	rows   func(d *data, associations bool) []map[string]string
	note   string // without rows: what to use instead
}

func (e *entity) effect() slurmcmd.Effect {
	if e.rows == nil {
		return slurmcmd.Refused
	}
	return slurmcmd.Same
}

// data is what the cluster answered.
type data struct {
	*greylagv1.ListAccountsResponse
	policy cluster.Policy
	status *greylagv1.GetStatusResponse
}

// command is one run of sacctmgr.
type command struct{ *slurmcmd.Command }

// Run runs sacctmgr and returns its exit status.
func Run(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, Program())}
	return c.Finish(ctx, slurmcmd.Unreachable("sacctmgr: error: ", c.run(ctx)))
}

// request is the command line.
type request struct {
	entity       *entity
	associations bool
	conditions   map[string][]string
	format       string
}

func (c command) run(ctx context.Context) error {
	found, operands, done, err := c.Parse()
	if err != nil || done {
		return err
	}
	if isJobUpdate(operands) {
		if slices.ContainsFunc(found, func(f getopt.Found) bool { return f.Option.Long == "readonly" }) {
			return &ui.UsageError{Problem: "--readonly does not allow update"}
		}
		return c.updateJobs(ctx, operands[2:])
	}
	r, err := read(operands)
	if err != nil {
		return err
	}
	style := slurmcmd.ReportStyle{}
	for _, f := range found {
		switch f.Option.Long {
		case "noheader":
			style.NoHeader = true
		case "parsable":
			style.Parsable, style.End = true, true
		case "parsable2":
			style.Parsable = true
		case "associations":
			r.associations = true
		}
	}
	report := slurmcmd.Report{Fields: r.entity.fields}
	format := r.format
	switch {
	case format != "":
	case r.associations && r.entity.assoc != "":
		format = r.entity.assoc
	default:
		format = r.entity.usual
	}
	if err := report.Choose(format); err != nil {
		return err
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	d, err := fetch(ctx, cl)
	if err != nil {
		return err
	}
	for _, row := range r.entity.rows(d, r.associations) {
		if r.matches(row) {
			report.Rows = append(report.Rows, row)
		}
	}
	return report.Print(c.Command, style)
}

func fetch(ctx context.Context, cl ui.Cluster) (*data, error) {
	accounts, err := cl.Accounts().ListAccounts(ctx, &greylagv1.ListAccountsRequest{Users: true})
	if err != nil {
		return nil, err
	}
	policy, err := slurmcmd.Policy(ctx, cl)
	if err != nil {
		return nil, err
	}
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	return &data{accounts, policy, status}, err
}

// read reads "show users withassoc format=account,qos where user=U cluster=C".
func read(words []string) (*request, error) {
	if len(words) < 2 {
		return nil, &ui.UsageError{Problem: "no command given", Advice: "write sacctmgr show users, accounts, associations, qos, clusters or tres; there is no interactive mode"}
	}
	verb := strings.ToLower(words[0])
	if len(verb) < 2 || !strings.HasPrefix("show", verb) && !strings.HasPrefix("list", verb) {
		for _, v := range refusedVerbs {
			if len(verb) > 2 && strings.HasPrefix(v[0], verb) {
				return nil, &ui.UsageError{Problem: verb + " is not supported", Advice: v[1]}
			}
		}
		return nil, &ui.UsageError{Problem: "invalid keyword: " + words[0], Advice: "write sacctmgr show users, accounts, associations, qos, clusters or tres"}
	}
	r := &request{conditions: map[string][]string{}}
	all := entities()
	i := slices.IndexFunc(all, func(e entity) bool {
		return slices.ContainsFunc(strings.Fields(e.names), func(name string) bool {
			return len(words[1]) > 2 && strings.HasPrefix(name, strings.ToLower(words[1]))
		})
	})
	switch {
	case i < 0:
		return nil, &ui.UsageError{Problem: "No valid entity in list command: " + words[1], Advice: "write users, accounts, associations, qos, clusters or tres"}
	case all[i].rows == nil:
		return nil, &ui.UsageError{Problem: "show " + words[1] + " is not supported", Advice: all[i].note}
	}
	r.entity = &all[i]
	for _, word := range words[2:] {
		if err := r.add(word); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// add reads one word after the entity.
func (r *request) add(word string) error {
	name, value, assigned := strings.Cut(word, "=")
	name = strings.ToLower(name)
	switch {
	case !assigned && (name == "where" || name == "and"), name == "withdeleted", name == "wolimits", name == "wopinfo", name == "woplimits", name == "withcoordinator", name == "tree", name == "withrawqoslevel", name == "withsubaccounts":
	case !assigned && strings.HasPrefix(name, "withassoc"):
		r.associations = true
	case !assigned: // a name of the entity
		key := r.entity.fields[0].Keys
		if r.entity.usual == assocUsual {
			key = "user"
		}
		key = strings.Fields(key)[0]
		r.conditions[key] = append(r.conditions[key], strings.Split(word, ",")...)
	case strings.HasPrefix(name, "format"):
		r.format = value
	default:
		i := slices.IndexFunc(r.entity.fields, func(f slurmcmd.Field) bool {
			return slices.ContainsFunc(strings.Fields(f.Keys), func(key string) bool { return strings.HasPrefix(key, strings.TrimSuffix(name, "s")) })
		})
		if i < 0 {
			return &ui.UsageError{Problem: "Unknown condition: " + word, Advice: "write conditions such as user=NAME account=NAME"}
		}
		key := strings.Fields(r.entity.fields[i].Keys)[0]
		r.conditions[key] = append(r.conditions[key], strings.Split(value, ",")...)
	}
	return nil
}

// matches reports whether a row meets all conditions.
func (r *request) matches(row map[string]string) bool {
	for key, values := range r.conditions {
		if !slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, row[key]) || v == "" }) {
			return false
		}
	}
	return true
}

// limitOf returns one of the limits of an account or a user, such as "GrpTRES=gpu=64".
func limitOf(limits []string, name string) string {
	for _, l := range limits {
		if key, value, ok := strings.Cut(l, "="); ok && strings.EqualFold(key, name) {
			return strings.ReplaceAll(value, "gpu", "gres/gpu")
		}
	}
	return ""
}

func shareText(n int64) string {
	if n < 0 {
		return "parent"
	}
	return fmt.Sprint(n)
}
