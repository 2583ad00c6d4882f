package reliability

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrModel is wrapped by the error of an invalid model.
var ErrModel = errors.New("model")

// Model is a cluster, its jobs and its failures. Probabilities and shares are fractions of 1. Times are fixed
// unless their comment says otherwise; repairs vary by ± 50 %.
type Model struct {
	Days      time.Duration // simulated time
	Nodes     int
	GPUs      int // per node
	LeafNodes int // nodes below one leaf switch
	RackNodes int // nodes with one power supply

	Rate       float64 // failures of a node in 1,000 days
	Often      float64 // part of the nodes that fail often
	OftenTimes float64 // how many times as often

	GPUOnly  float64 // part of the failures that hit one GPU, not its node
	Leaf     float64 // that hit a leaf switch
	Rack     float64 // that hit the power of a rack
	LeafDown time.Duration

	// How a failure is noticed: by an exit of the program, by silence of the node, by no progress; else by an
	// event of the driver.
	Exit, Silent, Hang              float64
	EventAfter, ExitAfter, HangsFor time.Duration
	PeersAfter                      time.Duration // at most: programs exit when another node is silent or has no network
	CheckAfter                      time.Duration // at most: checks find what the driver did not report

	// Repair: part of the failures and its time. The rest takes 5 min.
	Repair15m, Repair4h, Repair3d float64
	RepairTimes                   float64       // factor of all these times
	Flap                          float64       // part of the failures that end by themselves within FlapFor
	FlapFor                       time.Duration // at most
	Operator                      time.Duration // until an operator resumes a node or releases a job
	Announced                     time.Duration // from the drain to the start of maintenance

	Damaged float64 // part of the checkpoints that cannot be used

	Gang     int           // nodes of the large job; 0: none
	Interval time.Duration // between its checkpoints
	Block    time.Duration // that a checkpoint stops it
	Launch   time.Duration // at most: a node starts a task
	Verify   time.Duration // of its part of a checkpoint, before the start
	Load     time.Duration // the program prepares itself

	Spare        int     // nodes without a job, if no node has failed
	Excess       int     // nodes that jobs request beyond those that exist; needs Spare = 0
	Urgent       float64 // part of the other jobs that may preempt others
	GangPreempts float64 // 1: the large job may preempt others
	Elastic      float64 // part of the other jobs of whole nodes that are elastic, with up to 4 extra nodes

	// Instead of random failures:
	LossEvery time.Duration // a node of the large job fails
	LeafAt    time.Duration // the first leaf switch fails once
}

const day = 24 * time.Hour

// Default returns the model of docs/reliability.md.
func Default() Model {
	return Model{
		Days: 30 * day, Nodes: 200, GPUs: 8, LeafNodes: 32, RackNodes: 8,
		Rate: 6.5, Often: 0.02, OftenTimes: 20,
		GPUOnly: 0.07, Leaf: 0.025, Rack: 0.005, LeafDown: 10 * time.Minute,
		Exit: 0.2, Silent: 0.15, Hang: 0.05, EventAfter: 2 * time.Second, ExitAfter: 5 * time.Second, HangsFor: 10 * time.Minute,
		PeersAfter: time.Minute, CheckAfter: time.Minute,
		Repair15m: 0.35, Repair4h: 0.15, Repair3d: 0.10, RepairTimes: 1, Flap: 0.1, FlapFor: time.Minute,
		Operator: time.Hour, Announced: 30 * time.Minute,
		Damaged: 1.0 / 2000,
		Gang:    64, Interval: 30 * time.Minute, Block: 10 * time.Second,
		Launch: 20 * time.Second, Verify: 20 * time.Second, Load: 2 * time.Minute,
		Spare: 10,
	}
}

// key is one word of a model: a number, a part or a time.
type key struct {
	name      string
	number    func(*Model) *float64
	count     func(*Model) *int
	time      func(*Model) *time.Duration
	estimated bool // no source gives it
}

var keys = []key{
	{name: "days", time: func(m *Model) *time.Duration { return &m.Days }},
	{name: "nodes", count: func(m *Model) *int { return &m.Nodes }},
	{name: "leaf-nodes", count: func(m *Model) *int { return &m.LeafNodes }},
	{name: "rack-nodes", count: func(m *Model) *int { return &m.RackNodes }},
	{name: "gang", count: func(m *Model) *int { return &m.Gang }},
	{name: "spare", count: func(m *Model) *int { return &m.Spare }},
	{name: "excess", count: func(m *Model) *int { return &m.Excess }},
	{name: "rate", number: func(m *Model) *float64 { return &m.Rate }},
	{name: "interval", time: func(m *Model) *time.Duration { return &m.Interval }},
	{name: "block", time: func(m *Model) *time.Duration { return &m.Block }},
	{name: "urgent", number: func(m *Model) *float64 { return &m.Urgent }},
	{name: "gang-preempts", number: func(m *Model) *float64 { return &m.GangPreempts }},
	{name: "elastic", number: func(m *Model) *float64 { return &m.Elastic }},
	{name: "loss-every", time: func(m *Model) *time.Duration { return &m.LossEvery }},
	{name: "leaf-at", time: func(m *Model) *time.Duration { return &m.LeafAt }},
	{name: "often", estimated: true, number: func(m *Model) *float64 { return &m.Often }},
	{name: "often-times", estimated: true, number: func(m *Model) *float64 { return &m.OftenTimes }},
	{name: "gpu-only", estimated: true, number: func(m *Model) *float64 { return &m.GPUOnly }},
	{name: "leaf", estimated: true, number: func(m *Model) *float64 { return &m.Leaf }},
	{name: "rack", estimated: true, number: func(m *Model) *float64 { return &m.Rack }},
	{name: "leaf-down", estimated: true, time: func(m *Model) *time.Duration { return &m.LeafDown }},
	{name: "exit", estimated: true, number: func(m *Model) *float64 { return &m.Exit }},
	{name: "silent", estimated: true, number: func(m *Model) *float64 { return &m.Silent }},
	{name: "hang", estimated: true, number: func(m *Model) *float64 { return &m.Hang }},
	{name: "event-after", estimated: true, time: func(m *Model) *time.Duration { return &m.EventAfter }},
	{name: "exit-after", estimated: true, time: func(m *Model) *time.Duration { return &m.ExitAfter }},
	{name: "hangs-for", estimated: true, time: func(m *Model) *time.Duration { return &m.HangsFor }},
	{name: "peers-after", estimated: true, time: func(m *Model) *time.Duration { return &m.PeersAfter }},
	{name: "check-after", estimated: true, time: func(m *Model) *time.Duration { return &m.CheckAfter }},
	{name: "repair-15m", estimated: true, number: func(m *Model) *float64 { return &m.Repair15m }},
	{name: "repair-4h", estimated: true, number: func(m *Model) *float64 { return &m.Repair4h }},
	{name: "repair-3d", estimated: true, number: func(m *Model) *float64 { return &m.Repair3d }},
	{name: "repair-times", estimated: true, number: func(m *Model) *float64 { return &m.RepairTimes }},
	{name: "flap", estimated: true, number: func(m *Model) *float64 { return &m.Flap }},
	{name: "operator", estimated: true, time: func(m *Model) *time.Duration { return &m.Operator }},
	{name: "announced", estimated: true, time: func(m *Model) *time.Duration { return &m.Announced }},
	{name: "damaged", estimated: true, number: func(m *Model) *float64 { return &m.Damaged }},
	{name: "launch", estimated: true, time: func(m *Model) *time.Duration { return &m.Launch }},
	{name: "verify", estimated: true, time: func(m *Model) *time.Duration { return &m.Verify }},
	{name: "load", estimated: true, time: func(m *Model) *time.Duration { return &m.Load }},
}

// Words lists the words of a model.
func Words() string {
	var names []string
	for i := range keys {
		names = append(names, keys[i].name)
	}
	return strings.Join(names, ", ")
}

// Set changes a model by words such as rate=21 or load=5m, separated by commas.
func (m *Model) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		at := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if at < 0 {
			return fmt.Errorf("%w: %q is not one of %s", ErrModel, name, Words())
		}
		if !keys[at].set(m, value) {
			return fmt.Errorf("%w: %s=%s: want %s", ErrModel, name, value, keys[at].values())
		}
	}
	return m.check()
}

// values describes the values of a parameter.
func (k *key) values() string {
	switch {
	case k.time != nil:
		return "a time from 0s to 36500d, such as 90s, 4h or 30d"
	case k.count != nil:
		return "a whole number of at least 0"
	}
	return "a number from 0 to 1e6, or a percentage such as 5%"
}

func (k *key) set(m *Model, value string) bool {
	var err error
	switch {
	case k.time != nil:
		unit := time.Duration(1)
		if days, is := strings.CutSuffix(value, "d"); is {
			value, unit = days+"h", 24
		}
		var d time.Duration
		d, err = time.ParseDuration(value)
		*k.time(m) = d * unit
		return err == nil && d >= 0 && d <= 100*365*day/unit
	case k.count != nil:
		*k.count(m), err = strconv.Atoi(value)
		return err == nil && *k.count(m) >= 0
	}
	number, percent := strings.CutSuffix(value, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	*k.number(m) = x
	return err == nil && x >= 0 && x < 1e6
}

// check refuses a model that cannot be simulated.
func (m *Model) check() error {
	switch {
	case m.Nodes < 1 || m.Nodes > 10_000 || m.LeafNodes < 1 || m.RackNodes < 1:
		return fmt.Errorf("%w: nodes=%d, leaf-nodes=%d, rack-nodes=%d: want 1 to 10000 nodes, and at least 1 of the others",
			ErrModel, m.Nodes, m.LeafNodes, m.RackNodes)
	case m.Gang > m.Nodes || m.Gang+m.Spare > m.Nodes:
		return fmt.Errorf("%w: gang=%d and spare=%d exceed nodes=%d", ErrModel, m.Gang, m.Spare, m.Nodes)
	case m.Interval < time.Minute || m.Days < time.Hour:
		return fmt.Errorf("%w: interval=%s, days=%s: want at least 1m and 1h", ErrModel, m.Interval, m.Days)
	}
	for _, s := range []struct {
		names string
		sum   float64
	}{
		{"gpu-only + leaf + rack", m.GPUOnly + m.Leaf + m.Rack},
		{"exit + silent + hang", m.Exit + m.Silent + m.Hang},
		{"repair-15m + repair-4h + repair-3d", m.Repair15m + m.Repair4h + m.Repair3d},
	} {
		if s.sum > 1 {
			return fmt.Errorf("%w: %s = %.3g: want at most 1", ErrModel, s.names, s.sum)
		}
	}
	return nil
}

// String returns the words in which a model differs from the default one.
func (m *Model) String() string {
	var words []string
	def := Default()
	for i := range keys {
		k := &keys[i]
		if text := k.text(m); text != k.text(&def) {
			words = append(words, k.name+"="+text)
		}
	}
	return strings.Join(words, ",")
}

func (k *key) text(m *Model) string {
	switch {
	case k.time != nil && *k.time(m)%day == 0:
		return strconv.FormatInt(int64(*k.time(m)/day), 10) + "d"
	case k.time != nil:
		return k.time(m).String()
	case k.count != nil:
		return strconv.Itoa(*k.count(m))
	}
	return strconv.FormatFloat(*k.number(m), 'g', -1, 64)
}

// Doubled is a model with one estimated parameter doubled.
type Doubled struct {
	Name     string
	From, To string
	Model    Model
}

// DoubleEach returns the model once for each parameter that no source gives, with that one doubled.
func (m *Model) DoubleEach() (list []Doubled) {
	for i := range keys {
		k, d := &keys[i], *m
		switch {
		case !k.estimated:
			continue
		case k.time != nil:
			*k.time(&d) *= 2
		case k.number != nil:
			*k.number(&d) *= 2
		}
		list = append(list, Doubled{k.name, k.text(m), k.text(&d), d})
	}
	slices.SortStableFunc(list, func(a, b Doubled) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
