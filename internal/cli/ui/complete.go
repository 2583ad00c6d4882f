package ui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/wire"
)

// The scripts that gctl completion prints ask a program for completions by calling it with this
// word first. The protocol is cobra's: one candidate a line, a tab, a description; then ":" and a
// directive.
const (
	completeWord       = "__complete"
	completeWordNoDesc = "__completeNoDesc"
	directiveFiles     = 0 // the shell completes file names
	directiveNoFiles   = 4
)

// completionPatience bounds how long a key press may wait for the cluster.
const completionPatience = 700 * time.Millisecond

// Completion describes how the words of one command are completed.
type Completion struct {
	Table    []getopt.Option
	Order    getopt.Order
	Operands func(ctx context.Context, c Cluster) []string // nil: files
}

// Completing reports whether a shell asks for completions.
func (p *Process) Completing() bool {
	return len(p.Args) > 0 && (p.Args[0] == completeWord || p.Args[0] == completeWordNoDesc)
}

// Complete prints candidates for the last word. What cannot be found in time is left out without a
// message: it would garble the prompt.
func (p *Process) Complete(ctx context.Context, c Completion) error {
	words := p.Args[1:]
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	if operandsBegun(c, words) {
		return p.candidates(nil, directiveFiles)
	}
	if option, prefix, value := valueOf(c.Table, words, last); option != nil {
		if !fromCluster(option.Long) {
			return p.candidates(nil, directiveFiles)
		}
		return p.candidates(withPrefix(prefix, Suggest(ctx, p, values(option.Long)), value), directiveNoFiles)
	}
	if strings.HasPrefix(last, "-") {
		var all []string
		for _, o := range c.Table {
			if o.Help != "" && strings.HasPrefix("--"+o.Long, last) {
				all = append(all, "--"+o.Long+"\t"+o.Help)
			}
		}
		return p.candidates(all, directiveNoFiles)
	}
	if c.Operands == nil {
		return p.candidates(nil, directiveFiles)
	}
	return p.candidates(withPrefix("", Suggest(ctx, p, c.Operands), last), directiveNoFiles)
}

// operandsBegun reports whether the words already contain the script, so that its arguments follow.
func operandsBegun(c Completion, words []string) bool {
	if c.Order != getopt.First {
		return slices.Contains(words, "--")
	}
	_, operands, err := getopt.Parse(c.Table, words, c.Order)
	return err == nil && len(operands) > 0
}

// valueOf returns the option whose value the last word is, what precedes the value in the word, and
// the value so far.
func valueOf(table []getopt.Option, words []string, last string) (o *getopt.Option, prefix, value string) {
	if name, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(name, "--") {
		return getopt.Lookup(table, name[2:]), name + "=", value
	}
	if len(words) == 0 {
		return nil, "", ""
	}
	before := words[len(words)-1]
	_, _, err := getopt.Parse(table, []string{before}, getopt.Anywhere)
	if err == nil || !strings.HasPrefix(before, "-") {
		return nil, "", ""
	}
	found, _, err := getopt.Parse(table, []string{before, "x"}, getopt.Anywhere)
	if err != nil || len(found) == 0 {
		return nil, "", ""
	}
	return found[len(found)-1].Option, "", last
}

func fromCluster(option string) bool {
	return slices.Contains([]string{"partition", "nodelist", "exclude", "jobs", "dependency"}, option)
}

// Suggest finds values in the cluster; none when it does not answer at once.
func Suggest(ctx context.Context, p *Process, ask func(context.Context, Cluster) []string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	quiet := *p
	quiet.Stderr = io.Discard // it would garble the prompt
	_, c, err := quiet.Client()
	if err != nil {
		return nil
	}
	defer c.Close()
	return ask(ctx, c)
}

// values returns the source of an option's values.
func values(option string) func(context.Context, Cluster) []string {
	switch option {
	case "partition":
		return partitionNames
	case "nodelist", "exclude":
		return NodeNames
	}
	return JobNames
}

func withPrefix(prefix string, values []string, begun string) []string {
	var all []string
	for _, v := range values {
		if strings.HasPrefix(v, begun) {
			all = append(all, prefix+v)
		}
	}
	return all
}

func partitionNames(ctx context.Context, c Cluster) []string {
	answer, err := c.Cluster().GetInfo(ctx, &greylagv1.GetInfoRequest{Read: &greylagv1.Read{Stale: true}})
	if err != nil {
		return nil
	}
	var names []string
	for _, part := range answer.Partitions {
		names = append(names, part.Name)
	}
	return names
}

// mostNames is the largest number of IDs in a completion.
const mostNames = 200

// JobNames returns the caller's own active jobs, for completion: ID, tab, name.
func JobNames(ctx context.Context, c Cluster) []string {
	answer, err := c.Jobs().ListJobs(ctx, &greylagv1.ListJobsRequest{
		Filter: &greylagv1.Filter{Mine: true}, PageSize: mostNames, Brief: true, Read: &greylagv1.Read{Stale: true},
	})
	if err != nil {
		return nil
	}
	var names []string
	for _, j := range answer.Jobs {
		names = append(names, fmt.Sprintf("%s\t%s %s", j.Ref, wire.Word(j.State), Printable(j.Name)))
	}
	return names
}

// NodeNames returns the cluster's nodes, for completion: name, tab, state.
func NodeNames(ctx context.Context, c Cluster) []string {
	answer, err := c.Cluster().ListNodes(ctx, &greylagv1.ListNodesRequest{Read: &greylagv1.Read{Stale: true}})
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range answer.Nodes {
		names = append(names, n.Name+"\t"+wire.Word(n.State))
	}
	return names
}

func (p *Process) candidates(values []string, directive int) error {
	for _, v := range values {
		if p.Args[0] == completeWordNoDesc {
			v, _, _ = strings.Cut(v, "\t")
		}
		if _, err := fmt.Fprintln(p.Stdout, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(p.Stdout, ":%d\n", directive)
	return err
}
