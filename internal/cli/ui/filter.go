package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/cluster"
)

// FilterOptions are the options that select jobs, the same for gqueue and gcancel.
func FilterOptions() []getopt.Option {
	const group = "Job selection"
	return []getopt.Option{
		{Long: "jobs", Short: 'j', Aliases: []string{"job"}, Value: "IDS", Group: group, Help: "these: 123,124_5,125_[2-5]"},
		{Long: "user", Short: 'u', Aliases: []string{"users"}, Value: "USERS", Group: group, Help: "of these users"},
		{Long: "me", Group: group, Help: "your own"},
		{Long: "name", Short: 'n', Aliases: []string{"jobname", "names"}, Value: "NAMES", Group: group, Help: "with these names"},
		{Long: "states", Short: 't', Aliases: []string{"state"}, Value: "STATES", Group: group, Help: "in these states: PENDING,R,...; all includes finished ones"},
		{Long: "partition", Short: 'p', Aliases: []string{"partitions"}, Value: "PARTITIONS", Group: group, Help: "in these partitions"},
		{Long: "account", Short: 'A', Aliases: []string{"accounts"}, Value: "ACCOUNTS", Group: group, Help: "of these accounts"},
		{Long: "qos", Short: 'q', Value: "QOS", Group: group, Help: "of these priority classes"},
		{Long: "nodelist", Short: 'w', Aliases: []string{"nodes"}, Value: "NODES", Group: group, Help: "that run on these nodes: gpu[001-004]"},
	}
}

// ReadFilter reads the options that select jobs; it ignores the others.
func ReadFilter(found []getopt.Found) (*greylagv1.Filter, error) {
	f := &greylagv1.Filter{}
	for _, one := range found {
		var err error
		switch one.Option.Long {
		case "jobs":
			f.Jobs, err = AppendRefs(f.Jobs, one.Value)
		case "user":
			f.Users, err = appendNames(f.Users, one)
		case "me":
			f.Mine = true
		case "name":
			f.Names, err = appendNames(f.Names, one)
		case "states":
			err = addStates(f, one.Value)
		case "partition":
			f.Partitions, err = appendNames(f.Partitions, one)
		case "account":
			f.Accounts, err = appendNames(f.Accounts, one)
		case "qos":
			f.Qos, err = appendNames(f.Qos, one)
		case "nodelist":
			var names []string
			if names, err = hostlist.Expand(one.Value); err != nil || len(names) == 0 {
				err = &UsageError{fmt.Sprintf("%s: not a list of nodes: %q", one.As, one.Value), "use a host list such as gpu[001-004],login1"}
			}
			f.Nodes = append(f.Nodes, names...)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func appendNames(names []string, one getopt.Found) ([]string, error) {
	more := strings.FieldsFunc(one.Value, func(r rune) bool { return r == ',' })
	if len(more) == 0 {
		return nil, &UsageError{one.As + " is empty", "write " + one.As + " " + one.Option.Value}
	}
	return append(names, more...), nil
}

// addStates adds names and codes of states, joined by commas, to a filter.
func addStates(f *greylagv1.Filter, value string) error {
	for _, word := range strings.Split(value, ",") {
		if strings.EqualFold(word, "all") {
			f.AllStates = true
			continue
		}
		state, err := cluster.ParseJobState(word)
		if err != nil {
			var names []string
			for s := cluster.Pending; s <= cluster.OutOfMemory; s++ {
				names = append(names, s.String())
			}
			advice := "the states are " + strings.Join(names, ", ") + " and all"
			if near := getopt.Closest(strings.ToUpper(word), names); near != "" {
				advice = "did you mean " + near + "?"
			}
			return &UsageError{fmt.Sprintf("unknown state %q", word), advice}
		}
		f.States = append(f.States, greylagv1.JobState(state))
	}
	if f.AllStates {
		f.States = nil
	}
	return nil
}

// mostRefs bounds the elements that one command names.
const mostRefs = 100_000

// AppendRefs reads job IDs: "123", "123_4", "123_[2-5,9]", joined by commas.
func AppendRefs(refs []string, value string) ([]string, error) {
	bad := func(word string) error {
		return &UsageError{fmt.Sprintf("not a job ID: %q", word), "write 123, an element such as 123_4, or several: 123_[2-5]"}
	}
	words, err := ids(value)
	if err != nil || len(words) == 0 {
		return nil, bad(value)
	}
	for _, word := range words {
		head, indices, several := strings.Cut(word, "_[")
		if !several {
			if _, err := cluster.ParseJobRef(word); err != nil {
				return nil, bad(word)
			}
			refs = append(refs, word)
			continue
		}
		indices, _, _ = strings.Cut(strings.TrimSuffix(indices, "]"), "%") // as gqueue prints them
		numbers, err := elements(indices)
		if _, e := cluster.ParseJobRef(head); e != nil || err != nil || len(numbers)+len(refs) > mostRefs {
			return nil, bad(word)
		}
		for _, n := range numbers {
			refs = append(refs, head+"_"+strconv.Itoa(n))
		}
	}
	return refs, nil
}

// ids splits at the commas outside brackets.
func ids(value string) ([]string, error) {
	var words []string
	depth, start := 0, 0
	for i, c := range value {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			words = append(words, value[start:i])
			start = i + 1
		}
		if depth < 0 || depth > 1 {
			return nil, strconv.ErrSyntax
		}
	}
	if depth != 0 {
		return nil, strconv.ErrSyntax
	}
	words = append(words, value[start:])
	return slices.DeleteFunc(words, func(w string) bool { return w == "" }), nil
}

// elements reads "2-5,9" and "0-8:4".
func elements(list string) ([]int, error) {
	ranges, err := jobscript.ParseIndices(list)
	var all []int
	for _, r := range ranges {
		if (r.To-r.From)/r.Step+uint64(len(all)) >= mostRefs {
			return nil, strconv.ErrRange
		}
		for n := r.From; n <= r.To; n += r.Step {
			all = append(all, int(n))
		}
	}
	return all, err
}

// Refs reads job IDs as gcancel does: "123", "123_4", "123_[2-5]", joined by commas or in several
// words.
func Refs(words []string) ([]string, error) {
	var refs []string
	for _, word := range words {
		more, err := AppendRefs(refs, word)
		if err != nil {
			return nil, err
		}
		refs = more
	}
	return refs, nil
}
