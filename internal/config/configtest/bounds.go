package configtest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

var (
	fromTo  = regexp.MustCompile("^`([^`]+)` to `([^`]+)`")
	atLeast = regexp.MustCompile("^at least `([^`]+)`")
)

// checkRange loads the bounds of a range, which must be accepted, and their neighbours outside it,
// which must be refused.
func (p *Page) checkRange(k key, limits string) []string {
	low, high := "", ""
	if m := fromTo.FindStringSubmatch(limits); m != nil {
		low, high = m[1], m[2]
	} else if m := atLeast.FindStringSubmatch(limits); m != nil {
		low = m[1]
	}
	var problems []string
	try := func(value string, accepted bool) {
		faults := p.Load(p.file(k, value))
		refused := strings.Contains(faults, leaf(k.path)+": ")
		if refused == accepted {
			problems = append(problems, fmt.Sprintf("%s is accepted: %v, want %v; %s", value, !refused, accepted, faults))
		}
	}
	for _, bound := range []struct {
		value string
		step  int64
	}{{low, -1}, {high, 1}} {
		if bound.value == "" {
			continue
		}
		outside, err := neighbour(k.kind, bound.value, bound.step)
		if err != nil {
			return []string{err.Error()}
		}
		try(bound.value, true)
		try(outside, false)
	}
	return problems
}

// leaf returns the last part of a path, which a fault names too.
func leaf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// file returns a file that sets one key.
func (p *Page) file(k key, value string) string {
	table, name := "", k.path
	if i := strings.LastIndexByte(k.path, '.'); i >= 0 {
		table, name = k.path[:i], k.path[i+1:]
	}
	text := ""
	switch {
	case k.list != "":
		text = "[[" + k.list + "]]\n"
		for line := range strings.Lines(p.Elements[k.list]) {
			if !strings.HasPrefix(line, name+" ") {
				text += line
			}
		}
	case table != "":
		text = "[" + table + "]\n"
	}
	return text + name + " = " + value + "\n"
}

// neighbour returns the value right below or above a bound.
func neighbour(kind, bound string, step int64) (string, error) {
	text := strings.Trim(bound, `"`)
	kind, _, _ = strings.Cut(kind, " or ")
	switch kind {
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		return strconv.FormatInt(n+step, 10), err
	case "duration":
		d, err := parseDuration(text)
		return strconv.Quote((d + time.Duration(step)).String()), err
	case "size":
		b, err := cluster.ParseBytes(text, 1)
		return strconv.Quote(strconv.FormatInt(int64(b)+step, 10) + "B"), err
	}
	return "", fmt.Errorf("a range of the type %s is not checked", kind)
}

// parseDuration reads a duration, in days or in Go's form.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
