package gqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// longWidth is the default width of a field of -O, as in squeue.
const longWidth = "20"

// longFields maps squeue's names of fields for -O to the letters with the same meaning; dashes and
// underscores do not matter.
func longFields() map[string]byte {
	known := map[string]byte{
		"account": 'a', "arrayjobid": 'F', "arraytaskid": 'K', "dependency": 'E', "endtime": 'e',
		"excnodes": 'x', "feature": 'f', "jobarrayid": 'i', "jobid": 'A', "minmemory": 'm', "name": 'j', "nice": 'y',
		"nodelist": 'N', "noderange": '=', "nodes": 'N', "numcpus": 'C', "numnodes": 'D', "partition": 'P', "priority": 'p', "prioritylong": 'Q', "qos": 'q', "reason": 'r',
		"reasonlist": 'R', "reqnodes": 'n', "starttime": 'S', "state": 'T', "statecompact": 't', "submittime": 'V',
		"timeleft": 'L', "timelimit": 'l', "timeused": 'M', "tresalloc": '+', "trespernode": 'b', "userid": 'U', "username": 'u', "workdir": 'Z',
	}
	for _, p := range ui.JobProperties() {
		known[strings.ToLower(p.Name)] = p.Letter
	}
	return known
}

// longFormat converts squeue's -O, such as "jobid,name:30,state:.12", to a format for -o.
// O(length).
func longFormat(text string) (string, error) {
	known := longFields()
	names := slices.Sorted(maps.Keys(known))
	var format strings.Builder
	for term := range strings.SplitSeq(text, ",") {
		name, width, _ := strings.Cut(term, ":")
		plain := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(strings.TrimSpace(name)))
		letter, ok := known[plain]
		if !ok {
			advice := "the fields are " + strings.Join(names, ", ")
			if near := getopt.Closest(plain, names); near != "" {
				advice = "did you mean " + near + "?"
			}
			return "", &ui.UsageError{Problem: fmt.Sprintf("unknown field %q in the format %q", name, text), Advice: advice}
		}
		right := strings.HasPrefix(width, ".")
		width = strings.TrimPrefix(width, ".")
		if strings.Trim(width, "0123456789") != "" {
			return "", &ui.UsageError{Problem: fmt.Sprintf("not the width of a field: %q", term), Advice: "write fields such as jobid:10,name:.30,state"}
		}
		if width == "" {
			width = longWidth
		}
		format.WriteByte('%')
		if right {
			format.WriteByte('.')
		}
		format.WriteString(width)
		format.WriteByte(letter)
	}
	return format.String(), nil
}
