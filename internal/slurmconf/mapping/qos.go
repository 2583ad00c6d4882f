package mapping

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/pkg/cluster"
)

// defaultQOS is the QOS that every association has where no other is defined.
const defaultQOS = "normal"

// preemption reads how Slurm preempts. Only preemption between QOS is converted.
func (m *mapper) preemption() {
	mode, _ := m.take("PreemptMode")
	for _, w := range words(mode.value) {
		switch strings.ToUpper(w) {
		case "REQUEUE":
			m.qosMode = cluster.PreemptRequeue
		case "CANCEL":
			m.qosMode = cluster.PreemptCancel
		case "SUSPEND", "GANG":
			m.note(NotConverted, mode, "%s: preempted jobs are requeued or cancelled, not suspended: a suspended job would keep its GPUs", w)
		}
	}
	if s, set := m.take("PreemptExemptTime"); set && s.value != "-1" {
		m.out.Policy.PreemptExempt = m.duration(s, m.out.Policy.PreemptExempt)
	}
	kind, set := m.take("PreemptType")
	switch {
	case !set || off(kind.value):
	case strings.HasSuffix(strings.ToLower(kind.value), "/qos"):
		m.preemptQOS = true
	default:
		m.note(NotConverted, kind, "only a QOS can preempt another: use QOS with preempts and preempt_mode instead of partitions")
	}
}

// qos converts the QOS of a table, and defines those that only accounts name.
func (m *mapper) qos() {
	p := &m.out.Policy
	p.QOS = nil
	preempts := map[string][]string{}
	for i := range m.in.QOS {
		m.qosRow(&m.in.QOS[i], preempts)
	}
	var undefined []string
	for i := range m.in.Dump {
		for _, key := range []string{"QOS", "DefaultQOS", "DefQOS"} {
			text, _ := m.in.Dump[i].Value(key)
			for _, name := range words(text) {
				if name = strings.TrimLeft(name, "+-="); name != "" && m.findQOS(name) == nil && m.addQOS(cluster.QOS{Name: name}) {
					undefined = append(undefined, name)
				}
			}
		}
	}
	if len(undefined) > 0 {
		m.note(Check, setting{file: m.in.Dump[0].File, key: "QOS"}, "no definition of %s: priority and limits are not converted; "+
			"to save them: sacctmgr --parsable2 show qos > qos.txt", strings.Join(undefined, ", "))
	}
	if len(p.QOS) == 0 {
		m.addQOS(cluster.QOS{Name: defaultQOS})
	}
	p.DefaultQOS = ""
	if m.findQOS(defaultQOS) != nil {
		p.DefaultQOS = defaultQOS
	}
	m.openQOS()
	m.tiers(preempts)
}

// openQOS opens the QOS that jobs get without a grant: all of them without accounts, and the default
// one where no account is required or the root grants none.
func (m *mapper) openQOS() {
	granted := ""
	for i := range m.in.Dump {
		if strings.EqualFold(m.in.Dump[i].Kind, "cluster") {
			granted, _ = m.in.Dump[i].Value("QOS")
		}
	}
	for i := range m.out.Policy.QOS {
		q := &m.out.Policy.QOS[i]
		isDefault := q.Name == m.out.Policy.DefaultQOS
		q.Open = len(m.in.Dump) == 0 || isDefault && (granted == "" || !m.out.Policy.RequireAccount)
	}
}

// maxQOS is the most QOS of a policy.
const maxQOS = 1000

// addQOS adds a QOS, and reports whether there was space for it.
func (m *mapper) addQOS(q cluster.QOS) bool {
	if len(m.out.Policy.QOS) == maxQOS {
		return false
	}
	m.qosAt[q.Name] = len(m.out.Policy.QOS)
	m.out.Policy.QOS = append(m.out.Policy.QOS, q)
	return true
}

func (m *mapper) findQOS(name string) *cluster.QOS {
	i, known := m.qosAt[name]
	if !known {
		return nil
	}
	return &m.out.Policy.QOS[i]
}

// qosRow converts one row of sacctmgr show qos.
func (m *mapper) qosRow(row *slurmconf.Line, preempts map[string][]string) {
	name, _ := row.Value("Name")
	at := setting{"QOS " + name, "", row.File, row.Number}
	if name == "" || m.findQOS(name) != nil {
		m.note(Check, at, "no name, or defined twice: left out")
		return
	}
	q := cluster.QOS{Name: name, PreemptMode: m.qosMode}
	for _, pair := range row.Pairs {
		s := setting{"QOS " + name + ": " + pair.Key, pair.Value, row.File, row.Number}
		switch key := strings.ToLower(pair.Key); {
		case pair.Value == "", key == "name", key == "id", key == "description":
		case key == "priority":
			n, _ := m.number(s, math.MaxInt32)
			q.Priority = int32(n)
		case key == "preempt":
			preempts[name] = words(pair.Value)
		case key == "preemptmode":
			m.qosPreemptMode(s, &q)
		case key == "maxwall" || key == "maxwalldurationperjob":
			q.MaxTime = m.duration(s, 0)
		case key == "preemptexempttime":
			q.PreemptExempt = m.duration(s, 0)
		case key == "usagefactor":
			m.usageFactor(s, &q)
		case key == "gracetime":
			m.graceTime(s, &q)
		case key == "flags":
			for _, flag := range words(pair.Value) {
				if !strings.EqualFold(flag, "DenyOnLimit") { // always so here
					m.note(NotConverted, s, "flag %s has no counterpart", flag)
				}
			}
		default:
			q.Limits = m.limit(s, pair.Key, q.Limits, true)
		}
	}
	q.Limits = cluster.SortLimits(q.Limits)
	if !m.addQOS(q) {
		m.note(NotConverted, at, "more than %d QOS: left out", maxQOS)
	}
}

// maxGrace is the longest preempt_grace.
const maxGrace = 10 * time.Minute

func (m *mapper) graceTime(s setting, q *cluster.QOS) {
	if s.value == "00:00:00" {
		return
	}
	q.PreemptGrace = min(m.duration(s, 0), maxGrace)
	m.note(Check, s, "preempt_grace = %s: only jobs with --signal run on for that time, at most as long as they request; others get SIGTERM at once", q.PreemptGrace)
}

func (m *mapper) qosPreemptMode(s setting, q *cluster.QOS) {
	switch strings.ToUpper(s.value) {
	case "CLUSTER":
	case "REQUEUE":
		q.PreemptMode = cluster.PreemptRequeue
	case "CANCEL":
		q.PreemptMode = cluster.PreemptCancel
	case "OFF":
		q.PreemptMode = cluster.PreemptOff
	default:
		m.note(NotConverted, s, "%s: only requeue, cancel and off are supported", s.value)
	}
}

func (m *mapper) usageFactor(s setting, q *cluster.QOS) {
	f, err := strconv.ParseFloat(s.value, 64)
	if err != nil || !(f >= 0 && f <= 10000) {
		m.note(Check, s, "%q is not a factor from 0 to 10000: not converted", s.value)
		return
	}
	q.UsageExtra = int32(math.Round((f - 1) * 100))
}

// tiers gives each QOS a tier above those that it preempts, since only lower tiers can be preempted.
func (m *mapper) tiers(preempts map[string][]string) {
	p := &m.out.Policy
	if !m.preemptQOS {
		for i := range p.QOS {
			p.QOS[i].PreemptMode = cluster.PreemptOff
		}
		return
	}
	const visiting = -1
	tier := map[string]int32{}
	var visit func(name string) bool
	visit = func(name string) bool {
		if at, known := tier[name]; known {
			return at != visiting
		}
		tier[name] = visiting
		q, top := m.findQOS(name), int32(0)
		for _, victim := range preempts[name] {
			v := m.findQOS(victim)
			switch {
			case v == nil || v.PreemptMode == cluster.PreemptOff:
				m.note(Check, setting{key: "QOS " + name}, "does not preempt %s, which is undefined or has the preempt mode off", victim)
			case !visit(victim):
				m.note(Check, setting{key: "QOS " + name}, "does not preempt %s: they preempt each other", victim)
			case !slices.Contains(q.Preempts, victim):
				q.Preempts, top = append(q.Preempts, victim), max(top, tier[victim]+1)
			}
		}
		tier[name], q.Tier = top, top
		return true
	}
	for i := range p.QOS {
		visit(p.QOS[i].Name)
	}
	if slices.ContainsFunc(p.QOS, func(q cluster.QOS) bool { return q.Tier > 0 }) {
		m.note(Check, setting{key: "PreemptType"}, "a QOS that preempts another gets a higher tier, and jobs of a higher tier are always scheduled first")
	}
}

// limit adds the limits of one key, such as GrpTRES=cpu=64,gres/gpu=8, each that has a counterpart.
func (m *mapper) limit(s setting, key string, limits []cluster.Limit, ofQOS bool) []cluster.Limit {
	kind, resource, known := cluster.ParseLimitKind(key)
	if !known {
		if !off(s.value) && s.value != "00:00:00" {
			m.note(NotConverted, s, "%s: limit not supported", s.value)
		}
		return limits
	}
	texts := []string{key + "=" + s.value}
	if kind.OfResource() && resource == "" {
		texts = nil
		for _, w := range words(s.value) {
			texts = append(texts, key+"="+resourceName(w))
		}
	}
	for _, text := range texts {
		found, _, _, err := cluster.ParseLimits(text)
		if err == nil {
			for _, l := range found {
				if why := m.misplaced(l, ofQOS); why != "" {
					err = &misplacedError{why}
				}
			}
		}
		if err != nil {
			m.note(NotConverted, s, "%s: %v", text, err)
			continue
		}
		limits = append(limits, found...)
	}
	return limits
}

// misplacedError is a limit that exists, but not there.
type misplacedError struct{ why string }

// Error returns the reason.
func (e *misplacedError) Error() string { return e.why }

// misplaced returns why a limit is not one of a QOS, or of an account; "" when it is.
func (m *mapper) misplaced(l cluster.Limit, ofQOS bool) string {
	probe := cluster.Policy{QOS: []cluster.QOS{{Name: "probe", Limits: []cluster.Limit{l}}}}
	if ofQOS {
		for _, f := range probe.Faults() {
			if strings.HasPrefix(f.Key, "qos[0].limits") {
				return strings.TrimPrefix(f.Problem, `qos "probe": `)
			}
		}
		return ""
	}
	a := cluster.Account{Name: "probe", Parent: cluster.RootAccount, Limits: []cluster.Limit{l}}
	if err := a.Validate(); err != nil {
		return strings.TrimPrefix(err.Error(), cluster.ErrInvalidAccount.Error()+`: account "probe": `)
	}
	return ""
}

// resourceName replaces the numbers that dumps of older versions have for resources.
func resourceName(word string) string {
	number, value, _ := strings.Cut(word, "=")
	if name, known := map[string]string{"1": "cpu", "2": "mem", "4": "node"}[number]; known {
		return name + "=" + value
	}
	return word
}
