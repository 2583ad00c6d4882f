package jobscript

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// parseCount reads a number from least on. What is sensible is for the cluster to say.
func parseCount(word string, least int32) (int32, error) {
	n, err := strconv.ParseInt(word, 10, 32)
	if err != nil || int32(n) < least {
		problem := fmt.Sprintf("not a number from %d on: %q", least, word)
		if word == "" {
			problem = "no number is given"
		}
		return 0, advise(problem, fmt.Sprintf("write one from %d to %d", least, math.MaxInt32))
	}
	return int32(n), nil
}

// parseNodes reads "2" or "1-4" (minimum and maximum); most is 0 for one number.
func parseNodes(word string) (least, most int32, err error) {
	low, high, ranged := strings.Cut(word, "-")
	if least, err = parseCount(low, 1); err != nil || !ranged {
		return least, 0, err
	}
	switch most, err = parseCount(high, 1); {
	case err != nil:
		return 0, 0, advise(fmt.Sprintf("not a number or a range of nodes: %q", word), "write 4, or 1-4 (minimum and maximum)")
	case most < least:
		return 0, 0, advise(fmt.Sprintf("the minimum is larger than the maximum: %q", word), fmt.Sprintf("write --nodes=%d-%d", most, least))
	case most == least:
		most = 0
	}
	return least, most, nil
}

// parseGPUs reads "8", "h100:8", "h100" (one), "h100|a100:8" (either type), "1g.10gb:2" and "mig:2".
func parseGPUs(word string) (types []string, n int32, err error) {
	head, tail, typed := strings.Cut(word, ":")
	if !typed {
		if n, err := parseCount(word, 0); err == nil {
			return nil, n, nil
		}
		head, tail = word, "1"
	}
	n, err = parseCount(tail, 0)
	types = strings.Split(strings.ToLower(head), "|")
	if err != nil || slices.ContainsFunc(types, func(t string) bool { return !isGPUType(t) }) {
		return nil, 0, advise(fmt.Sprintf("not a number of GPUs: %q", word), "write a number, or a type and a number, such as h100:8")
	}
	return types, n, nil
}

// isGPUType reports whether a word can be a type of GPU: it begins with no digit, except for MIG profiles.
func isGPUType(word string) bool {
	if cluster.IsMIGProfile(word) {
		return true
	}
	return word != "" && isWord(word, "") && !unicode.IsDigit(rune(word[0])) && word[0] != '-'
}

// gres is a value of --gres.
type gres struct {
	gpus     int32
	gpuTypes []string
	hasGPUs  bool
	others   []cluster.Gres
}

// parseGRES reads sbatch's "gpu:8", "gpu:h100:8", "gpu" and "gpu:2,nvme:1", and "none".
func parseGRES(word string) (g gres, err error) {
	if word == "none" {
		return g, nil
	}
	for _, term := range strings.Split(word, ",") {
		name, rest, counted := strings.Cut(strings.TrimPrefix(term, "gres/"), ":")
		switch {
		case name == cluster.ResourceGPU && g.hasGPUs:
			return gres{}, advise(fmt.Sprintf("GPUs are named twice: %q", word), "for alternative types use --gpus 'h100|a100:4'")
		case name == cluster.ResourceGPU:
			if g.hasGPUs, g.gpus = true, 1; counted {
				g.gpuTypes, g.gpus, err = parseGPUs(rest)
			}
		default:
			if err := refuseShards(name, term); err != nil {
				return gres{}, err
			}
			var other cluster.Gres
			other, err = parseCounted(name, rest)
			g.others = append(g.others, other)
		}
		if err != nil {
			return gres{}, err
		}
	}
	cluster.SortGres(g.others)
	if why := cluster.GresFault(g.others); why != "" {
		return gres{}, advise(why, "write names with counts, joined by commas, such as gpu:2,nvme:1")
	}
	return g, nil
}

// ParseGRES returns how many GPUs a value of --gres requests on each node, and whether it names GPUs.
func ParseGRES(word string) (gpus int32, named bool, err error) {
	g, err := parseGRES(word)
	return g.gpus, g.hasGPUs, err
}

// parseCounted reads what follows the name of a generic resource: "", "2", "fast" or "fast:2".
func parseCounted(name, rest string) (cluster.Gres, error) {
	g := cluster.Gres{Name: name, Count: 1}
	kind, count, typed := strings.Cut(rest, ":")
	switch {
	case rest == "":
		return g, nil
	case typed:
		g.Type = kind
	default:
		if unicode.IsDigit(rune(rest[0])) || rest[0] == '-' {
			count = rest
			break
		}
		g.Type = rest
		return g, nil
	}
	n, err := parseCount(count, 1)
	if g.Count = int64(n); err != nil {
		return g, advise(fmt.Sprintf("not a count of %s: %q", printable(name), count), "write NAME:N or NAME:TYPE:N, such as nvme:2")
	}
	return g, nil
}

// isWord reports whether text is made of letters, digits, dots, dashes,
// underscores and the extra characters.
func isWord(text, extra string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-"+extra, r))
	})
}

// parseRegions reads regions joined by commas: any will do.
func parseRegions(word string) ([]string, error) {
	regions := strings.Split(word, ",")
	for _, r := range regions {
		if !isWord(r, "") {
			return nil, advise(fmt.Sprintf("not a list of regions: %q", word), "separate regions with commas: eu-north,eu-west")
		}
	}
	return regions, nil
}

// ParseFeatures reads the features that nodes must have, as [cluster.ParseFeatures] does.
func ParseFeatures(word string) ([]string, error) {
	features, err := cluster.ParseFeatures(word)
	switch {
	case errors.Is(err, cluster.ErrFeatureCount):
		return nil, advise(err.Error(), "submit one job for each feature, or name the nodes with --nodelist")
	case err != nil:
		return nil, advise(err.Error(), "write 'a&b' (both), 'a|b' (one of them) or '[a|b]' (one, the same on all nodes); for alternative GPU types use --gpus 'h100|a100:4'")
	}
	return features, nil
}

// ParseHosts reads a host list such as gpu[001-004],login1; an empty one is an error.
func ParseHosts(word string) ([]string, error) {
	names, err := hostlist.Expand(word)
	if err != nil {
		return nil, advise(err.Error(), "use a host list such as gpu[001-004],login1")
	}
	if len(names) == 0 {
		return nil, advise("no node is named", "use a host list such as gpu[001-004],login1")
	}
	return names, nil
}

// checkArray catches what cannot be an array; what it means the cluster reads.
func checkArray(word string) error {
	list, most, limited := strings.Cut(word, "%")
	_, err := ParseIndices(list)
	if n, e := strconv.ParseUint(most, 10, 31); limited && (e != nil || n == 0) {
		err = strconv.ErrSyntax
	}
	if err != nil {
		return advise(fmt.Sprintf("not an array: %q", word), "write indices such as 0-15, 0,6,16-32, 0-15:4, with %4 for at most four at once")
	}
	return nil
}

// Indices are From, From+Step, ... up to and including To.
type Indices struct{ From, To, Step uint64 }

// ParseIndices reads the indices of an array as sbatch writes them: "2-5,9", "0-8:4".
// None is below 0 or above 2^31 - 1. Its errors are strconv's. O(length).
func ParseIndices(list string) ([]Indices, error) {
	var all []Indices
	for term := range strings.SplitSeq(list, ",") {
		span, step, stepped := strings.Cut(term, ":")
		low, high, ranged := strings.Cut(span, "-")
		from, err := strconv.ParseUint(low, 10, 31)
		r := Indices{from, from, 1}
		if err == nil && ranged {
			r.To, err = strconv.ParseUint(high, 10, 31)
		}
		if err == nil && stepped {
			r.Step, err = strconv.ParseUint(step, 10, 31)
		}
		if err != nil || r.To < r.From || r.Step == 0 || stepped && !ranged {
			return nil, strconv.ErrSyntax
		}
		all = append(all, r)
	}
	return all, nil
}

// ParseDepends reads "afterok:1:2_3,afterany:4,after:5+10" and "singleton". Conditions joined by "?"
// are alternatives, as is each job of a condition.
func ParseDepends(word string) ([]cluster.Dependency, error) {
	advice := "write afterok:123, afterany:123:124, afternotok:123, aftercorr:123, after:123, after:123+10 (minutes later) or singleton, joined by commas, or by ? if one is enough"
	separator, anyOf := ",", strings.Contains(word, "?")
	if anyOf {
		separator = "?"
	}
	if anyOf && strings.Contains(word, ",") {
		return nil, advise(fmt.Sprintf("commas and ? cannot be mixed: %q", word), "join all conditions by commas, or all by ?")
	}
	var all []cluster.Dependency
	for _, term := range strings.Split(word, separator) {
		name, ids, given := strings.Cut(term, ":")
		kind := dependencyKind(name)
		switch {
		case kind == 0:
			return nil, advise(fmt.Sprintf("not a dependency: %q", term), advice)
		case kind == cluster.Singleton && !given:
			all = append(all, cluster.Dependency{Kind: kind, Any: anyOf})
			continue
		case kind == cluster.Singleton || !given:
			return nil, advise(fmt.Sprintf("not a dependency: %q", term), advice)
		}
		for _, id := range strings.Split(ids, ":") {
			bare, minutes, late := strings.Cut(id, "+")
			if late && kind != cluster.After {
				return nil, advise(fmt.Sprintf("%s takes no time: %q", kind, id), advice)
			}
			ref, err := cluster.ParseJobRef(bare)
			if err != nil {
				return nil, advise(fmt.Sprintf("not a job ID: %q", id), advice)
			}
			delay, err := parseMinutes(minutes)
			if late && err != nil {
				return nil, advise(fmt.Sprintf("not a number of minutes: %q", minutes), advice)
			}
			all = append(all, cluster.Dependency{Kind: kind, Job: ref, Delay: delay, Any: anyOf})
		}
	}
	return all, nil
}

// parseMinutes reads how long after the start of another job one may start: at most a year.
func parseMinutes(word string) (time.Duration, error) {
	n, err := strconv.ParseUint(word, 10, 31)
	if err == nil && n > 365*24*60 {
		err = strconv.ErrRange
	}
	return time.Duration(n) * time.Minute, err
}

func dependencyKind(name string) cluster.DependencyKind {
	for k := cluster.After; k <= cluster.Singleton; k++ {
		if strings.EqualFold(name, k.String()) {
			return k
		}
	}
	return 0
}

// warnDefault is how long before the time limit sbatch sends a signal when no time is given.
const warnDefault = 60 * time.Second

// parseWarn reads [R:][B:]SIGNAL[@SECONDS], where the time may also be a duration such as 2m; lead is the time without it.
// flags are the letters that may precede the signal. R has no effect: it lets sbatch's job overlap reservations that can
// be delayed.
func parseWarn(word, flags string, lead time.Duration) (cluster.WarnSignal, error) {
	w := cluster.WarnSignal{Before: lead}
	name, seconds, timed := strings.Cut(word, "@")
	given, bare, flagged := strings.Cut(name, ":")
	switch {
	case flagged && strings.Trim(given, flags) == "":
		name, w.BatchOnly = bare, strings.Contains(given, "B")
	case flagged && strings.Trim(given, "RB") == "":
		return w, advise(fmt.Sprintf("unknown prefix %q", given+":"), "only B: is known here: the signal goes to the batch shell alone")
	}
	n, err := ParseSignal(name)
	if err != nil {
		return w, err
	}
	w.Number = n
	if timed {
		before, err := time.ParseDuration(seconds)
		if s, notCount := parseCount(seconds, 0); notCount == nil {
			before, err = time.Duration(s)*time.Second, nil
		}
		if err != nil || before < 0 || before > 1<<16*time.Second {
			return w, advise(fmt.Sprintf("not a time before the limit: %q", seconds), "write seconds, at most 65536, or a duration: USR1@120, USR1@2m")
		}
		w.Before = before.Truncate(time.Second)
	}
	return w, nil
}

// maxSignal is the last real-time signal.
const maxSignal = 64

// ParseSignal reads a signal's number, or its name with or without SIG.
func ParseSignal(word string) (int32, error) {
	if n, err := strconv.ParseUint(word, 10, 31); err == nil && n >= 1 && n <= maxSignal {
		return int32(n), nil
	}
	if n, known := cluster.SignalNumber(word); known {
		return n, nil
	}
	return 0, advise(fmt.Sprintf("unknown signal %q", word), "use a name such as USR1 or TERM, or a number from 1 to 64")
}

func unprintable(r rune) bool { return cluster.UnsafeToDisplay(r) || r == utf8.RuneError }

// checkText refuses names and paths that could not be shown or passed on.
func checkText(word string) error {
	if !utf8.ValidString(word) {
		return advise(fmt.Sprintf("%q is not UTF-8", word), "")
	}
	for _, r := range word {
		if cluster.UnsafeToDisplay(r) {
			return advise(fmt.Sprintf("%q contains the control character %q", word, r), "leave it out")
		}
	}
	return nil
}
