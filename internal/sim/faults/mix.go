package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrMix is wrapped by the error of an invalid mix.
var ErrMix = errors.New("faults")

// Mix is the frequencies of faults. Times are means between two faults of a kind, 0 for never;
// parts are of 1.
type Mix struct {
	NodeMTBF  time.Duration // losses of one node
	Repair    time.Duration // how long a lost node or a failed GPU is away
	Late      float64       // part of the lost nodes whose tasks run on and are reported when the node is back
	GPUMTBF   time.Duration // of one GPU
	Restart   time.Duration // of one node daemon, which registers and reports again
	Leader    time.Duration // changes of leader: the state is rebuilt from a snapshot and the log
	Clock     time.Duration // steps of the leader's clock, at most 5 s off
	Admin     time.Duration // actions of administrators
	Fail      float64       // part of the attempts that fail by themselves
	Cancel    float64       // part of the jobs that their users cancel, hold or change
	Preempt   float64       // part of the jobs in a QOS that may preempt the others
	Elastic   float64       // part of the jobs of whole nodes that are elastic
	Lost      float64       // part of the nodes' reports that are lost
	Duplicate float64       // part of the reports and requests that are delivered again later
}

// defaultRepair is the repair time of a mix with faults that sets none.
const defaultRepair = 4 * time.Hour

// key is one word of a mix.
type key struct {
	name string
	time func(*Mix) *time.Duration
	part func(*Mix) *float64
}

var keys = []key{
	{name: "node-mtbf", time: func(m *Mix) *time.Duration { return &m.NodeMTBF }},
	{name: "repair", time: func(m *Mix) *time.Duration { return &m.Repair }},
	{name: "late-report", part: func(m *Mix) *float64 { return &m.Late }},
	{name: "gpu-mtbf", time: func(m *Mix) *time.Duration { return &m.GPUMTBF }},
	{name: "daemon-restart", time: func(m *Mix) *time.Duration { return &m.Restart }},
	{name: "leader-change", time: func(m *Mix) *time.Duration { return &m.Leader }},
	{name: "clock-step", time: func(m *Mix) *time.Duration { return &m.Clock }},
	{name: "admin", time: func(m *Mix) *time.Duration { return &m.Admin }},
	{name: "fail", part: func(m *Mix) *float64 { return &m.Fail }},
	{name: "cancel", part: func(m *Mix) *float64 { return &m.Cancel }},
	{name: "preempt", part: func(m *Mix) *float64 { return &m.Preempt }},
	{name: "elastic", part: func(m *Mix) *float64 { return &m.Elastic }},
	{name: "lost-report", part: func(m *Mix) *float64 { return &m.Lost }},
	{name: "duplicate", part: func(m *Mix) *float64 { return &m.Duplicate }},
}

// Parse reads a mix: words such as node-mtbf=30d or fail=0.05 or fail=5%, separated by commas or
// lines; # begins a comment. It returns all faults of the text at once, with their lines if file,
// the name of the text, is not "".
func Parse(file, text string) (Mix, error) {
	m := Mix{Repair: defaultRepair}
	number := 0
	var wrong []error
	fault := func(format string, args ...any) {
		if file != "" {
			format = fmt.Sprintf("%s:%d: ", strings.ReplaceAll(file, "%", "%%"), number) + format
		}
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{ErrMix}, args...)...))
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.SplitSeq(line, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			name, value, _ := strings.Cut(word, "=")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			at := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
			switch {
			case at < 0:
				fault("%q is not one of %s", name, words())
			case seen[name]:
				fault("%s is given twice", name)
			case !keys[at].set(&m, value):
				fault("%s=%s: want %s", name, value, keys[at].wants())
			}
			seen[name] = true
		}
	}
	return m, errors.Join(wrong...)
}

func words() string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

func (k key) wants() string {
	if k.time != nil {
		return "a duration of at least 1s, such as 90s, 4h or 30d"
	}
	return "a part from 0 to 1, such as 0.05 or 5%"
}

func (k key) set(m *Mix, value string) bool {
	if k.time != nil {
		d, ok := length(value)
		*k.time(m) = d
		return ok
	}
	number, percent := strings.CutSuffix(value, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	*k.part(m) = x
	return err == nil && x >= 0 && x <= 1
}

// length reads a time such as 90s, 1h30m or 7d: a second to a hundred years.
func length(text string) (time.Duration, bool) {
	unit := time.Duration(1)
	if number, days := strings.CutSuffix(text, "d"); days {
		text, unit = number+"h", 24
	}
	d, err := time.ParseDuration(text)
	return d * unit, err == nil && d >= time.Second && d <= 100*365*24*time.Hour/unit
}

// String returns the mix as Parse reads it, without zeros.
func (m Mix) String() string {
	var all []string
	for _, k := range keys {
		switch {
		case k.time != nil && *k.time(&m) != 0:
			all = append(all, k.name+"="+cmp.Or(whole(*k.time(&m)), k.time(&m).String()))
		case k.part != nil && *k.part(&m) != 0:
			all = append(all, k.name+"="+strconv.FormatFloat(*k.part(&m), 'g', -1, 64))
		}
	}
	return strings.Join(all, ",")
}

// whole returns a time of whole days; "" for others.
func whole(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day != 0 {
		return ""
	}
	return strconv.FormatInt(int64(d/day), 10) + "d"
}
