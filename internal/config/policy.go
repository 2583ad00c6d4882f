package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/pkg/cluster"
)

// policy is the cluster's policy as a file. It is not read from any host: gctl apply
// sends it to the controllers, which replicate it.
type policy struct {
	Cluster     string        `toml:"cluster"`
	Admins      []string      `toml:"admins"`    // user names; "root" is uid 0
	Operators   []string      `toml:"operators"` // user names
	DefaultQOS  string        `toml:"default_qos"`
	NodeTimeout time.Duration `toml:"node_timeout"`
	KillWait    time.Duration `toml:"kill_wait"`
	MaxArray    int           `toml:"max_array"`
	MaxJobs     int           `toml:"max_jobs"`
	MaxRestarts int           `toml:"max_restarts"`
	Private     bool          `toml:"private"`
	// Jobs without an account are refused, once there are accounts.
	RequireAccount bool `toml:"require_account"`

	Partitions []partition `toml:"partition"`
	QOS        []qos       `toml:"qos"`

	Scheduling   scheduling    `toml:"scheduling"`
	Topology     nearness      `toml:"topology"`
	FairShare    fairShare     `toml:"fair_share"`
	Credits      creditRules   `toml:"credits"`
	Licences     counts        `toml:"licences" empty:"omit"` // how many there are of each
	Reservations []reservation `toml:"reservation" empty:"omit"`
}

type partition struct {
	Name          string        `toml:"name"`
	Nodes         []string      `toml:"nodes"` // host lists, or "ALL"
	Default       bool          `toml:"default"`
	Down          bool          `toml:"down"`
	MaxTime       time.Duration `toml:"max_time"`     // "0s": no limit
	DefaultTime   time.Duration `toml:"default_time"` // "0s": max_time
	MaxNodes      int           `toml:"max_nodes"`    // 0: no limit
	AllowAccounts []string      `toml:"allow_accounts"`
	Priority      int           `toml:"priority"`
	MemPerCPU     cluster.Bytes `toml:"mem_per_cpu"`
	MemPerGPU     cluster.Bytes `toml:"mem_per_gpu"`
}

type qos struct {
	Name     string        `toml:"name"`
	Tier     int           `toml:"tier"`
	Open     bool          `toml:"open"` // any user may use it; else it must be granted
	Priority int           `toml:"priority"`
	MaxTime  time.Duration `toml:"max_time"`
	// How much more its jobs count as usage, in percent; -100: nothing.
	UsageExtra int       `toml:"usage_extra"`
	Limits     limitList `toml:"limits"`
	// QOS of lower tiers whose jobs may be ended for one of this that cannot start
	// otherwise, and what becomes of a job of this one when that happens to it.
	Preempts    []string `toml:"preempts"`
	PreemptMode string   `toml:"preempt_mode" one:"off,requeue,cancel"`
}

// ReadPolicy reads a policy file's text; name stands for it in faults. What the text
// does not set is as in [cluster.DefaultPolicy]; a list that it sets is set whole.
// The error is Faults: all there are, of the text and of what it says. What is read
// without one is what the state takes.
func ReadPolicy(name string, text []byte) (cluster.Policy, error) {
	doc := newDocument()
	doc.add(name, text)
	standard := cluster.DefaultPolicy()
	p := fileOf(&standard)
	d := decoder{doc: doc}
	d.table("", doc.values, reflect.ValueOf(&p).Elem())
	c := &checker{main: name, doc: doc}
	p.check(c)
	out := p.policy()
	for _, f := range out.Faults() {
		c.fault(f.Key, "%s", f.Problem)
	}
	if faults := inOrder([]string{name}, doc.faults, d.faults, c.faults); len(faults) > 0 {
		return cluster.Policy{}, faults
	}
	return out, nil
}

// PlacePolicy says where in a policy file's text, which ReadPolicy has read, is what
// the faults speak of.
func PlacePolicy(name string, text []byte, list []cluster.PolicyFault) Faults {
	doc := newDocument()
	doc.add(name, text)
	c := &checker{main: name, doc: doc}
	for _, f := range list {
		c.fault(f.Key, "%s", f.Problem)
	}
	return inOrder([]string{name}, c.faults)
}

// check keeps numbers within the types of the policy.
func (p *policy) check(c *checker) {
	const most = math.MaxInt32
	c.between("max_array", p.MaxArray, 0, most)
	c.between("max_jobs", p.MaxJobs, 0, math.MaxInt)
	c.between("max_restarts", p.MaxRestarts, 0, most)
	for i, part := range p.Partitions {
		at := "partition[" + strconv.Itoa(i) + "]"
		c.between(at+".max_nodes", part.MaxNodes, 0, most)
		c.between(at+".priority", part.Priority, -most, most)
		c.nodeLists(at+".nodes", part.Nodes)
	}
	for i, q := range p.QOS {
		at := "qos[" + strconv.Itoa(i) + "]"
		c.between(at+".tier", q.Tier, -most, most)
		c.between(at+".priority", q.Priority, -most, most)
		c.between(at+".usage_extra", q.UsageExtra, -most, most)
	}
	for i, r := range p.Reservations {
		at := "reservation[" + strconv.Itoa(i) + "]"
		c.nodeLists(at+".nodes", r.Nodes)
		switch {
		case r.Start == 0:
			c.fault(at+".start", "is not set")
		case r.End == 0:
			c.fault(at+".end", "is not set")
		case r.End <= r.Start:
			c.fault(at+".end", "is not after the start")
		}
	}
	p.apart(c)
}

func (p *policy) policy() cluster.Policy {
	out := cluster.Policy{
		Cluster: p.Cluster, Admins: p.Admins, Operators: p.Operators, DefaultQOS: p.DefaultQOS,
		NodeTimeout: p.NodeTimeout, KillWait: p.KillWait, MaxArray: int32(p.MaxArray),
		MaxJobs: int64(p.MaxJobs), MaxRestarts: int32(p.MaxRestarts), Private: p.Private,
		Scheduling: p.scheduling(), RequireAccount: p.RequireAccount, Credits: p.credits(),
	}
	for _, x := range p.Partitions {
		out.Partitions = append(out.Partitions, cluster.Partition{
			Name: x.Name, Nodes: x.Nodes, Default: x.Default, Down: x.Down, MaxTime: x.MaxTime, DefaultTime: x.DefaultTime,
			MaxNodes: int32(x.MaxNodes), AllowAccounts: x.AllowAccounts, Priority: int32(x.Priority), MemPerCPU: x.MemPerCPU, MemPerGPU: x.MemPerGPU,
		})
	}
	for _, x := range p.QOS {
		out.QOS = append(out.QOS, cluster.QOS{
			Name: x.Name, Tier: int32(x.Tier), Priority: int32(x.Priority), MaxTime: x.MaxTime, UsageExtra: int32(x.UsageExtra), Limits: x.Limits,
			Preempts: orNone(x.Preempts), PreemptMode: preemptMode(x.PreemptMode), Open: x.Open,
		})
	}
	return out
}

// preemptMode reads a word that has been checked; none is off.
func preemptMode(word string) cluster.PreemptMode {
	mode, _ := cluster.ParsePreemptMode(word)
	return mode
}

func fileOf(p *cluster.Policy) policy {
	out := policy{
		Cluster: p.Cluster, Admins: p.Admins, Operators: p.Operators, DefaultQOS: p.DefaultQOS,
		NodeTimeout: p.NodeTimeout, KillWait: p.KillWait, MaxArray: int(p.MaxArray),
		MaxJobs: int(p.MaxJobs), MaxRestarts: int(p.MaxRestarts), Private: p.Private, RequireAccount: p.RequireAccount,
	}
	out.schedulingOf(&p.Scheduling)
	out.creditsOf(&p.Credits)
	for _, x := range p.Partitions {
		out.Partitions = append(out.Partitions, partition{
			Name: x.Name, Nodes: x.Nodes, Default: x.Default, Down: x.Down, MaxTime: x.MaxTime, DefaultTime: x.DefaultTime,
			MaxNodes: int(x.MaxNodes), AllowAccounts: x.AllowAccounts, Priority: int(x.Priority), MemPerCPU: x.MemPerCPU, MemPerGPU: x.MemPerGPU,
		})
	}
	for _, x := range p.QOS {
		out.QOS = append(out.QOS, qos{
			Name: x.Name, Tier: int(x.Tier), Priority: int(x.Priority), MaxTime: x.MaxTime, UsageExtra: int(x.UsageExtra), Limits: x.Limits,
			Preempts: x.Preempts, PreemptMode: x.PreemptMode.String(), Open: x.Open,
		})
	}
	return out
}

// WritePolicy writes the policy as a file that ReadPolicy reads: every key, in one
// order, so that two of them can be compared line by line.
func WritePolicy(p *cluster.Policy) ([]byte, error) {
	text, err := toml.Marshal(tableOf(reflect.ValueOf(fileOf(p))).Interface())
	if err != nil {
		return nil, fmt.Errorf("write policy: %w", err)
	}
	return text, nil
}

// tableOf is a struct with the same keys whose durations and sizes are written as the
// decoder reads them: in quotes, with a unit. Tables that are left out when they are empty
// can be added below by hand, which TOML refuses after "reservation = []".
func tableOf(v reflect.Value) reflect.Value {
	var fields []reflect.StructField
	var values []reflect.Value
	for i := range v.NumField() {
		field, value := v.Type().Field(i), written(v.Field(i))
		if field.Tag.Get("empty") == "omit" && value.Len() == 0 {
			continue
		}
		values = append(values, value)
		fields = append(fields, reflect.StructField{Name: field.Name, Type: value.Type(), Tag: field.Tag})
	}
	out := reflect.New(reflect.StructOf(fields)).Elem()
	for i := range values {
		out.Field(i).Set(values[i])
	}
	return out
}

func written(v reflect.Value) reflect.Value {
	switch x := v.Interface().(type) {
	case shown:
		return reflect.ValueOf(x.write())
	case time.Duration:
		return reflect.ValueOf(writeDuration(x))
	case cluster.Bytes:
		return reflect.ValueOf(writeBytes(x))
	case []string:
		return reflect.ValueOf(append([]string{}, x...)) // a list without elements is written too
	}
	if v.Kind() == reflect.Struct {
		return tableOf(v)
	}
	if v.Kind() != reflect.Slice {
		return v
	}
	tables := make([]any, v.Len())
	for i := range tables {
		tables[i] = tableOf(v.Index(i)).Interface()
	}
	return reflect.ValueOf(tables)
}

// writeDuration is the form that parseDuration reads, days first.
func writeDuration(d time.Duration) string {
	const day = 24 * time.Hour
	days := ""
	if d >= day {
		days = strconv.FormatInt(int64(d/day), 10) + "d"
		if d %= day; d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

// writeBytes is the form that the decoder reads: always with a unit.
func writeBytes(b cluster.Bytes) string {
	text := b.String()
	if b != 0 && strings.Trim(text, "0123456789") == "" {
		text += "B"
	}
	return text
}
