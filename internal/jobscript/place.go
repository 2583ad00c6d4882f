package jobscript

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// parsePartitions reads "a" and "a,b,c": the first, and the others.
func parsePartitions(word string) (first string, others []string, err error) {
	if err := checkText(word); err != nil {
		return "", nil, err
	}
	names := strings.Split(word, ",")
	for i, n := range names {
		switch {
		case n == "":
			return "", nil, advise(fmt.Sprintf("a partition without a name in %q", word), "separate names with commas, such as gpu,long")
		case slices.Contains(names[:i], n):
			return "", nil, advise(fmt.Sprintf("partition %q is named twice", n), "")
		}
	}
	if len(names) == 1 {
		return names[0], nil, nil
	}
	return names[0], names[1:], nil
}

// parseLicences reads "matlab", "matlab:2,ansys@server:1" and sbatch's old "matlab*2".
func parseLicences(word string) ([]cluster.Licence, error) {
	const advice = "write names with counts, joined by commas, such as matlab:2,ansys"
	if strings.ContainsAny(word, "|;") {
		return nil, advise(fmt.Sprintf("alternative licences are not supported: %q", word), "separate licences with commas: all are required")
	}
	var all []cluster.Licence
	for _, term := range strings.Split(word, ",") {
		name, count, counted := strings.Cut(strings.Replace(term, "*", ":", 1), ":")
		l := cluster.Licence{Name: name, Count: 1}
		var err error
		if counted {
			l.Count, err = parseCount(count, 1)
		}
		if err != nil || name == "" || !isWord(name, "@") {
			return nil, advise(fmt.Sprintf("not a licence: %q", term), advice)
		}
		if slices.ContainsFunc(all, func(o cluster.Licence) bool { return o.Name == name }) {
			return nil, advise(fmt.Sprintf("licence %q is named twice", name), "")
		}
		all = append(all, l)
	}
	return all, nil
}

// parseConnect reads "leaf" (never without) and "leaf@10" (ten minutes' wait at most).
func parseConnect(word string) (cluster.Connect, time.Duration, error) {
	name, limit, limited := strings.Cut(word, "@")
	c, known := cluster.ParseConnect(name)
	if !known {
		return 0, 0, advise(fmt.Sprintf("unknown connection %q", name), "write any, nvlink, nvlink-node or leaf")
	}
	if !limited {
		return c, cluster.SwitchAlways, nil
	}
	wait, err := parseWait(limit)
	return c, wait, err
}

// parseSwitches reads sbatch's "2" and "2@60", and "2@unlimited", which never starts
// without.
func parseSwitches(word string) (int32, time.Duration, error) {
	number, limit, limited := strings.Cut(word, "@")
	n, err := parseCount(number, 1)
	if err != nil || !limited {
		return n, cluster.SwitchDefault, err
	}
	wait, err := parseWait(limit)
	return n, wait, err
}

// parseWait reads a time as --time does; 0 is no wait, "unlimited" one without end.
func parseWait(word string) (time.Duration, error) {
	if strings.EqualFold(word, "unlimited") || strings.EqualFold(word, "infinite") {
		return cluster.SwitchAlways, nil
	}
	return cluster.ParseLimit(word)
}
