package priority

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// The formats of sprio without options and with -l.
const (
	usualPriority = "%.15i %9r %.10Y %.10A %.10F %.10J %.10P %.10Q"
	longPriority  = "%.15i %9r %.8u %.10Y %.10A %.10F %.10J %.10P %.10Q %.6N"
)

// SprioProgram is the description of sprio.
func SprioProgram() slurmcmd.Program {
	return slurmcmd.Program{
		Name: "sprio", Usage: "[OPTIONS]", Summary: "Shows the priorities of pending jobs and their factors.",
		Options: []slurmcmd.Option{
			row("clusters", 'M', "NAMES", nothing, "there is one cluster", ""),
			row("federation", 0, "", nothing, "there is one cluster", ""),
			row("format", 'o', "FORMAT", same, "", `columns: "%.15i %9r %.10Y"`),
			row("jobs", 'j', "IDS", same, "", "these jobs"),
			{Option: getopt.Option{Long: "json", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "gctl priority --json prints JSON"},
			row("local", 0, "", nothing, "there is one cluster", ""),
			row("long", 'l', "", same, "", "more columns"),
			row("noheader", 'h', "", same, "", "no header line"),
			row("norm", 'n', "", refused, "factors are shown weighted", ""),
			row("partition", 'p', "PARTITIONS", same, "", "in these partitions"),
			row("sibling", 0, "", nothing, "there is one cluster", ""),
			row("sort", 'S', "KEYS", same, "", "letters of -o; a minus reverses"),
			row("user", 'u', "USERS", same, "", "of these users"),
			row("verbose", 'v', "", nothing, "it only prints more", ""),
			row("weights", 'w', "", refused, "gctl show policy has the weights", ""),
			{Option: getopt.Option{Long: "yaml", Value: "PARSER", Absent: "list"}, Effect: refused, Note: "gctl priority --json prints JSON"},
		},
	}
}

// factor is one column of sprio.
type factor struct {
	letter byte
	title  string
	of     func(p *greylagv1.Priority) any
}

func factors() []factor {
	return []factor{
		{'i', "JOBID", func(p *greylagv1.Priority) any { return p.Ref }}, {'r', "PARTITION", func(p *greylagv1.Priority) any { return p.Partition }},
		{'u', "USER", func(p *greylagv1.Priority) any { return p.User }}, {'o', "ACCOUNT", func(p *greylagv1.Priority) any { return p.Account }}, {'n', "QOSNAME", func(p *greylagv1.Priority) any { return p.Qos }},
		{'Y', "PRIORITY", func(p *greylagv1.Priority) any { return p.Priority }}, {'S', "SITE", func(*greylagv1.Priority) any { return int64(0) }},
		{'A', "AGE", func(p *greylagv1.Priority) any { return p.Age }}, {'F', "FAIRSHARE", func(p *greylagv1.Priority) any { return p.FairShare }},
		{'J', "JOBSIZE", func(p *greylagv1.Priority) any { return p.JobSize }}, {'P', "PARTITION", func(p *greylagv1.Priority) any { return p.PartitionPart }},
		{'Q', "QOS", func(p *greylagv1.Priority) any { return p.QosPart }}, {'N', "NICE", func(p *greylagv1.Priority) any { return p.Nice }}, {'B', "ASSOC", func(*greylagv1.Priority) any { return int64(0) }},
		{'T', "TRES", func(*greylagv1.Priority) any { return "" }},
	}
}

func factorOf(letter byte) *factor {
	all := factors()
	i := slices.IndexFunc(all, func(f factor) bool { return f.letter == letter })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// RunSprio runs sprio and returns its exit status.
func RunSprio(ctx context.Context, p *ui.Process) int {
	c := command{slurmcmd.New(p, SprioProgram())}
	return c.Finish(ctx, slurmcmd.Unreachable("sprio: error: ", c.priorities(ctx)))
}

func (c command) priorities(ctx context.Context) error {
	found, done, err := c.ParseOptions("select jobs with -j")
	if err != nil || done {
		return err
	}
	format, header, keys := usualPriority, true, "i"
	var parts, users, jobs []string
	for _, f := range found {
		switch f.Option.Long {
		case "format":
			format = f.Value
		case "long":
			format = longPriority
		case "noheader":
			header = false
		case "sort":
			keys = f.Value
		case "partition":
			parts = append(parts, strings.Split(f.Value, ",")...)
		case "user":
			users = append(users, strings.Split(f.Value, ",")...)
		case "jobs":
			if jobs, err = ui.AppendRefs(jobs, f.Value); err != nil {
				return err
			}
		}
	}
	columns, err := slurmcmd.ParseFormat(format)
	if err != nil {
		return err
	}
	for _, col := range columns {
		if factorOf(col.Letter) == nil {
			return &ui.UsageError{Problem: fmt.Sprintf("Invalid job format specification: %c", col.Letter), Advice: "letters are i r u o n Y S A F J P Q N B T"}
		}
	}
	_, cl, err := c.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	answer, err := cl.Accounts().ListPriorities(ctx, &greylagv1.ListPrioritiesRequest{})
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(answer.Jobs, func(p *greylagv1.Priority) bool {
		array, _, _ := strings.Cut(p.Ref, "_")
		return len(parts) > 0 && !slices.Contains(parts, p.Partition) || len(users) > 0 && !slices.Contains(users, p.User) ||
			len(jobs) > 0 && !slices.Contains(jobs, p.Ref) && !slices.Contains(jobs, array) && !slices.Contains(jobs, strconv.FormatUint(p.Job, 10))
	})
	if len(rows) == 0 && len(jobs) > 0 {
		return slurmcmd.Message("Unable to find jobs matching user/id(s) specified")
	}
	sortPriorities(rows, keys)
	return c.printPriorities(columns, rows, header)
}

func sortPriorities(rows []*greylagv1.Priority, keys string) {
	slices.SortStableFunc(rows, func(a, b *greylagv1.Priority) int {
		for term := range strings.SplitSeq(keys, ",") {
			f := factorOf(append([]byte(strings.TrimLeft(term, "+-")), 0)[0])
			if f == nil {
				continue
			}
			order := strings.Compare(sortText(f.of(a)), sortText(f.of(b)))
			if f.letter == 'i' {
				order = cmp.Compare(a.Job, b.Job)
			}
			if strings.HasPrefix(term, "-") {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return 0
	})
}

// sortText returns a text in the order of its numbers.
func sortText(v any) string {
	if n, ok := v.(int64); ok {
		return fmt.Sprintf("%020d", uint64(n)+1<<63)
	}
	return fmt.Sprintf("%20s", v)
}

func (c command) printPriorities(columns []slurmcmd.Column, rows []*greylagv1.Priority, header bool) error {
	var out []byte
	if header {
		for i := range columns {
			out = columns[i].Append(out, factorOf(columns[i].Letter).title)
		}
		out = append(out, '\n')
	}
	for _, p := range rows {
		for i := range columns {
			out = columns[i].Append(out, fmt.Sprint(factorOf(columns[i].Letter).of(p)))
		}
		out = append(out, '\n')
	}
	return c.Write(string(out))
}
