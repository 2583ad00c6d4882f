// Package mapping converts Slurm's configuration to Greylag's policy, accounts and users.
//
// It decides which setting corresponds to which, and notes every setting that has no counterpart or
// whose counterpart differs. It reads no files. What it returns is valid as a policy and as a list of
// accounts, whatever the configuration holds.
package mapping

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/pkg/cluster"
)

// Input is what was read of a cluster.
type Input struct {
	Main   []slurmconf.Line // slurm.conf
	GRES   []slurmconf.Line // gres.conf
	Dump   []slurmconf.Entity
	QOS    []slurmconf.Line // rows of sacctmgr show qos
	Others []string         // paths of other files of the folder
}

// NoteKind is what a note is about.
type NoteKind uint8

// The kinds of notes, the most important first.
const (
	NotConverted NoteKind = iota // no counterpart: something that Slurm did is missing
	Check                        // converted, but not the same
	Unknown                      // not a setting of Slurm that is known here
)

// Note is one line of the report.
type Note struct {
	Kind NoteKind
	File string
	Line int    // 0 when no line caused it
	Key  string // as written
	Text string
}

// String returns "file:line: key: text".
func (n Note) String() string {
	where := n.File
	if n.Line > 0 {
		where = fmt.Sprintf("%s:%d", n.File, n.Line)
	}
	parts := slices.DeleteFunc([]string{where, n.Key, n.Text}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// Result is the counterpart of a configuration.
type Result struct {
	Policy   cluster.Policy
	Accounts []cluster.Account
	Users    []cluster.Association
	Notes    []Note   // by kind, file and line
	Ignored  []string // settings that need no counterpart
}

// mapper converts one configuration.
type mapper struct {
	in         Input
	out        Result
	settings   map[string]setting // of slurm.conf outside lines of nodes and partitions, by key in lower case
	nodeSets   map[string][]string
	features   map[string][]string // nodes by feature
	gpuTypes   map[string]bool
	types      []string
	nodes      int               // names in NodeName lines
	sorted     map[string]string // the nodes of a feature as a host list
	qosAt      map[string]int    // index in the policy
	nodeNotes  []nodeNote
	noteAt     map[string]int // text to index in nodeNotes
	ignored    map[string]bool
	unknown    map[string]bool // keys that were noted
	memPerCPU  cluster.Bytes
	memPerGPU  cluster.Bytes
	qosMode    cluster.PreemptMode
	preemptQOS bool
}

// setting is one key of slurm.conf and its line.
type setting struct {
	key, value string
	file       string
	line       int
}

// daemonUser runs the reports of the packages, and is an administrator of a new cluster.
const daemonUser = "greylag"

// Convert returns the counterpart of a configuration. The policy and the accounts are valid.
func Convert(in Input) Result {
	m := &mapper{
		in: in, settings: map[string]setting{}, nodeSets: map[string][]string{}, features: map[string][]string{},
		gpuTypes: map[string]bool{}, ignored: map[string]bool{}, noteAt: map[string]int{}, unknown: map[string]bool{},
		sorted: map[string]string{}, qosAt: map[string]int{},
	}
	m.out.Policy = cluster.DefaultPolicy()
	m.out.Policy.Admins = append(m.out.Policy.Admins, daemonUser)
	m.collect()
	m.cluster()
	m.priorities()
	m.preemption()
	m.licences()
	m.gres()
	m.partitions()
	m.qos()
	m.accounts()
	m.otherFiles()
	m.rest()
	m.repair()
	for key := range m.ignored {
		m.out.Ignored = append(m.out.Ignored, key)
	}
	slices.Sort(m.out.Ignored)
	slices.SortStableFunc(m.out.Notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return m.out
}

func (m *mapper) note(kind NoteKind, s setting, format string, args ...any) {
	m.out.Notes = append(m.out.Notes, Note{kind, s.file, s.line, s.key, fmt.Sprintf(format, args...)})
}

// collect sorts the lines of slurm.conf: settings, and what nodes and node sets there are.
func (m *mapper) collect() {
	defaults := map[string]string{}
	var sets []slurmconf.Line
	for i := range m.in.Main {
		l := &m.in.Main[i]
		switch strings.ToLower(l.Pairs[0].Key) {
		case "nodename":
			m.node(l, defaults)
		case "nodeset":
			sets = append(sets, *l)
		case "partitionname", "downnodes", "frontendname":
		default:
			for _, p := range l.Pairs {
				m.settings[strings.ToLower(p.Key)] = setting{p.Key, p.Value, l.File, l.Number}
			}
		}
	}
	m.finishNodes()
	for i := range sets {
		m.nodeSet(&sets[i])
	}
}

// repair removes what the policy would be refused for, such as names with control characters.
func (m *mapper) repair() {
	p := &m.out.Policy
	standard := cluster.DefaultPolicy()
	for faults := p.Faults(); len(faults) > 0; faults = p.Faults() {
		f := faults[0] // the next may be a consequence of it
		m.note(NotConverted, setting{key: f.Key}, "left out: %s", f.Problem)
		var i int
		switch list, _, _ := strings.Cut(f.Key, "["); {
		case list == "partition" && len(p.Partitions) > 1 && index(f.Key, &i):
			p.Partitions = slices.Delete(p.Partitions, i, i+1)
		case list == "partition":
			p.Partitions = standard.Partitions
		case list == "qos" && index(f.Key, &i):
			p.QOS = slices.Delete(p.QOS, i, i+1)
		case list == "qos":
			p.QOS = standard.QOS
		case list == "default_qos":
			p.DefaultQOS = ""
		case list == "admins" && index(f.Key, &i):
			p.Admins = slices.Delete(p.Admins, i, i+1)
		case list == "operators" && index(f.Key, &i):
			p.Operators = slices.Delete(p.Operators, i, i+1)
		case list == "cluster":
			p.Cluster = standard.Cluster
		default:
			p.Scheduling, p.NodeTimeout, p.RebootTimeout, p.KillWait = standard.Scheduling, standard.NodeTimeout, standard.RebootTimeout, standard.KillWait
		}
	}
}

// index reads the number of a key such as qos[3].limits.
func index(key string, i *int) bool {
	_, rest, _ := strings.Cut(key, "[")
	n, err := fmt.Sscanf(rest, "%d]", i)
	return n == 1 && err == nil
}

// take returns a setting and marks it as converted; set is false where it is missing.
func (m *mapper) take(key string) (s setting, set bool) {
	s, set = m.settings[strings.ToLower(key)]
	delete(m.settings, strings.ToLower(key))
	return s, set
}

// cluster converts the settings of the cluster as a whole.
func (m *mapper) cluster() {
	p := &m.out.Policy
	if s, set := m.take("ClusterName"); set && s.value != "" {
		p.Cluster = s.value
	}
	if s, set := m.take("SlurmdTimeout"); set {
		if d, ok := m.seconds(s); ok && d > 0 {
			p.NodeTimeout = d
		} else if ok {
			m.note(Check, s, "Slurm never sets a node down at 0; node_timeout stays %s", p.NodeTimeout)
		}
	}
	if s, set := m.take("ResumeTimeout"); set {
		if d, ok := m.seconds(s); ok {
			p.RebootTimeout = d
		}
	}
	if s, set := m.take("KillWait"); set {
		if d, ok := m.seconds(s); ok {
			p.KillWait = d
		}
	}
	if s, set := m.take("MaxArraySize"); set {
		if n, ok := m.number(s, 1<<20); ok && n > 0 {
			p.MaxArray = int32(n)
		}
	}
	if s, set := m.take("MaxJobCount"); set {
		if n, ok := m.number(s, 1<<40); ok && n > 0 {
			p.MaxJobs = n
		}
	}
	if s, set := m.take("MaxBatchRequeue"); set {
		if n, ok := m.number(s, 1<<20); ok {
			p.MaxRestarts = int32(n)
		}
	}
	if s, set := m.take("JobRequeue"); set && s.value == "0" {
		m.note(NotConverted, s, "jobs are requeued after cluster failures unless submitted with --no-requeue")
	}
	m.privacy()
	m.enforcement()
	if s, set := m.take("FirstJobId"); set {
		m.note(Check, s, "job IDs begin at 1: scripts that store IDs of both systems must distinguish them")
	}
}

// words splits a list at commas.
func words(value string) []string {
	var all []string
	for w := range strings.SplitSeq(value, ",") {
		if w = strings.TrimSpace(w); w != "" {
			all = append(all, w)
		}
	}
	return all
}

func (m *mapper) privacy() {
	s, set := m.take("PrivateData")
	if !set {
		return
	}
	for _, w := range words(s.value) {
		switch strings.ToLower(w) {
		case "jobs":
			m.out.Policy.Private = true
		case "none":
		default:
			m.note(NotConverted, s, "%q is not hidden: private = true in the policy hides jobs only", w)
		}
	}
}

func (m *mapper) enforcement() {
	s, set := m.take("AccountingStorageEnforce")
	limits := false
	defer func() {
		if !limits && len(m.in.Dump) > 0 {
			m.note(Check, setting{"AccountingStorageEnforce", "", cmp.Or(s.file, "slurm.conf"), s.line},
				"without \"limits\", Slurm does not enforce the limits of accounts and QOS; Greylag always does: review them in accounts.toml and policy.toml")
		}
	}()
	if !set {
		return
	}
	for _, w := range words(s.value) {
		switch w = strings.ToLower(w); w {
		case "associations", "limits", "qos", "safe", "all": // each of them implies associations
			m.out.Policy.RequireAccount = true
			limits = limits || w != "associations" && w != "qos"
		case "none", "0":
		default:
			m.note(NotConverted, s, "%q has no counterpart", w)
		}
	}
}

// priorities converts the multifactor priority, fair share and the order of jobs.
func (m *mapper) priorities() {
	s := &m.out.Policy.Scheduling
	w := &s.Weights
	*w = cluster.Weights{MaxAge: 7 * 24 * time.Hour} // Slurm's defaults
	for key, to := range map[string]*int64{
		"PriorityWeightAge": &w.Age, "PriorityWeightFairshare": &w.FairShare, "PriorityWeightJobSize": &w.JobSize,
		"PriorityWeightPartition": &w.Partition, "PriorityWeightQOS": &w.QOS,
	} {
		if at, set := m.take(key); set {
			*to, _ = m.number(at, 1<<40)
		}
	}
	if at, set := m.take("PriorityType"); set && strings.HasSuffix(strings.ToLower(at.value), "/basic") {
		*w = cluster.Weights{MaxAge: w.MaxAge}
	}
	if *w == (cluster.Weights{MaxAge: w.MaxAge}) {
		m.note(Check, setting{key: "PriorityWeightAge"}, "no priority weight is set, so jobs start in order of submission as in Slurm; remove [scheduling.weights] to use Greylag's defaults")
	}
	if at, set := m.take("PriorityMaxAge"); set {
		w.MaxAge = m.duration(at, w.MaxAge)
	}
	if at, set := m.take("PriorityDecayHalfLife"); set {
		s.FairShare.HalfLife = m.duration(at, s.FairShare.HalfLife)
	}
	if at, set := m.take("PriorityUsageResetPeriod"); set && !strings.EqualFold(at.value, "NONE") {
		m.note(NotConverted, at, "usage is never reset: it decays with half_life")
	}
	if at, set := m.take("PriorityFlags"); set {
		for _, word := range words(at.value) {
			switch strings.ToUpper(word) {
			case "NO_FAIR_TREE":
				s.FairShare.Classic = true
			case "FAIR_TREE", "CALCULATE_RUNNING", "ACCRUE_ALWAYS": // always so here
			default:
				m.note(NotConverted, at, "%s has no counterpart", word)
			}
		}
	}
	if at, set := m.take("SchedulerType"); set && strings.HasSuffix(strings.ToLower(at.value), "builtin") {
		s.Depth = 0
	}
	m.schedulerParameters()
}

func (m *mapper) schedulerParameters() {
	at, set := m.take("SchedulerParameters")
	if !set {
		return
	}
	var dropped []string
	for _, word := range words(at.value) {
		key, value, _ := strings.Cut(word, "=")
		if strings.EqualFold(key, "max_switch_wait") {
			if d, ok := m.seconds(setting{at.key, value, at.file, at.line}); ok {
				m.out.Policy.Scheduling.MaxSwitchWait = d
			}
			continue
		}
		dropped = append(dropped, key)
	}
	if len(dropped) > 0 {
		m.note(Check, at, "not converted: %s; every pending job is planned, without these limits", strings.Join(dropped, ", "))
	}
}

func (m *mapper) licences() {
	at, set := m.take("Licenses")
	if !set {
		return
	}
	count := map[string]int64{}
	for _, word := range words(at.value) {
		name, number, counted := strings.Cut(word, ":")
		n := int64(1)
		if counted {
			var ok bool
			if n, ok = m.number(setting{at.key, number, at.file, at.line}, 1<<30); !ok {
				continue
			}
		}
		count[name] += n
	}
	var all []cluster.Licence
	for name, n := range count {
		all = append(all, cluster.Licence{Name: name, Count: int32(min(n, 1<<30))})
	}
	slices.SortFunc(all, func(a, b cluster.Licence) int { return strings.Compare(a.Name, b.Name) })
	m.out.Policy.Scheduling.Licences = all
}

// gres notes which GPU types the configuration names, and generic resources other than GPUs.
func (m *mapper) gres() {
	others := map[string]bool{}
	for i := range m.in.GRES {
		l := &m.in.GRES[i]
		m.unknownKeys(l, knownOfGRES, "unknown setting of gres.conf: ignored")
		at := setting{l.Pairs[0].Key, "", l.File, l.Number}
		name, _ := l.Value("Name")
		if kind, set := l.Value("Type"); set && strings.EqualFold(name, "gpu") && !m.gpuTypes[kind] {
			m.gpuTypes[kind], m.types = true, append(m.types, kind)
		}
		if _, set := l.Value("AutoDetect"); set || strings.EqualFold(name, "gpu") || name == "" || others[name] {
			continue
		}
		others[name] = true
		m.note(NotConverted, at, "generic resource %q: gnoded.toml of each node sets the count, under gres; no device is bound to a job", name)
	}
	if len(m.types) > 0 {
		slices.Sort(m.types)
		m.note(Check, setting{key: "Gres"}, "GPU types in Slurm: %s; nodes report their own type names: compare with gctl info, and adapt limits and scripts that name a type", strings.Join(m.types, ", "))
	}
}

// otherFiles notes files of the folder that Slurm reads and that have no counterpart.
func (m *mapper) otherFiles() {
	for _, path := range m.in.Others {
		if why, known := fileAdvice[strings.ToLower(filepath.Base(path))]; known {
			m.note(NotConverted, setting{file: path}, "%s", why)
		}
	}
}

// rest notes the settings that nothing converted.
func (m *mapper) rest() {
	var left []setting
	for _, s := range m.settings {
		left = append(left, s)
	}
	slices.SortFunc(left, func(a, b setting) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line), strings.Compare(a.key, b.key))
	})
	for _, s := range left {
		why, known := settingAdvice[strings.ToLower(s.key)]
		switch {
		case ignoredSettings[strings.ToLower(s.key)]:
			m.ignored[s.key] = true
		case known && isDefault(s.key, s.value):
		case known:
			m.note(NotConverted, s, "%s", why)
		default:
			m.note(Unknown, s, "unknown setting: ignored")
		}
	}
	for i := range m.in.Main {
		l := &m.in.Main[i]
		at := setting{l.Pairs[0].Key, l.Pairs[0].Value, l.File, l.Number}
		switch strings.ToLower(at.key) {
		case "downnodes":
			m.note(NotConverted, at, "node states are not configured: once the nodes have joined, run gctl drain %s --reason TEXT", at.value)
		case "frontendname":
			m.note(NotConverted, at, "front-end nodes are not supported: install gnoded on each node")
		}
	}
}

// isDefault reports whether a value asks for nothing: it switches a setting off, or is what Slurm does
// without it.
func isDefault(key, value string) bool {
	switch strings.ToLower(value) {
	case "all", "unlimited", "infinite", "-1", "off", "n/a":
		return true
	case "1":
		return slices.Contains([]string{"fairsharedampeningfactor", "minnodes"}, strings.ToLower(key))
	}
	return off(value)
}

// off reports whether a value switches a setting off.
func off(value string) bool {
	switch strings.ToLower(value) {
	case "", "0", "no", "none", "(null)":
		return true
	}
	return strings.HasSuffix(strings.ToLower(value), "/none")
}
