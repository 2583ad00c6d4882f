package mapping

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxNodes bounds the names of all NodeName lines: each may have 100,000.
const maxNodes = 1_000_000

// node notes what a NodeName line sets beyond what nodes report themselves, and collects features
// and GPU types. defaults holds those of NodeName=DEFAULT and changes with such a line.
func (m *mapper) node(l *slurmconf.Line, defaults map[string]string) {
	m.unknownKeys(l, knownOfNode, "unknown setting of a node: ignored")
	if strings.EqualFold(l.Pairs[0].Value, "DEFAULT") {
		for _, p := range l.Pairs[1:] {
			defaults[strings.ToLower(p.Key)] = p.Value
		}
		return
	}
	at := setting{l.Pairs[0].Key, l.Pairs[0].Value, l.File, l.Number}
	if m.nodes > maxNodes {
		m.noteNodes(at, nil, fmt.Sprintf("more than %d nodes: later lines are ignored", maxNodes))
		return
	}
	names, err := hostlist.Expand(at.value)
	if err != nil {
		m.note(Check, at, "%v: line ignored", err)
		return
	}
	m.nodes += len(names)
	value := func(key string) string {
		if v, set := l.Value(key); set {
			return v
		}
		return defaults[strings.ToLower(key)]
	}
	for _, key := range []string{"Feature", "Features"} {
		list := words(value(key))
		for _, f := range list {
			m.features[strings.ToLower(f)] = append(m.features[strings.ToLower(f)], names...)
		}
		if len(list) > 0 {
			m.noteNodes(at, names, fmt.Sprintf(`set features = ["%s"] in gnoded.toml`, strings.Join(list, `", "`)))
		}
	}
	for _, g := range words(value("Gres")) {
		m.nodeGRES(at, names, g)
	}
	for _, key := range []string{"CoreSpecCount", "CpuSpecList", "MemSpecLimit", "Weight"} {
		if v := value(key); !off(v) {
			m.noteNodes(at, names, key+"="+v+": "+nodeAdvice[strings.ToLower(key)])
		}
	}
	if mib, err := strconv.ParseUint(value("RealMemory"), 10, 64); err == nil && mib > 1 { // 1 is Slurm's default
		m.noteNodes(at, names, fmt.Sprintf(`RealMemory=%d: nodes offer all of their memory; to offer this much, set memory = "%dM" in gnoded.toml`, mib, mib))
	}
	if disk := value("TmpDisk"); !off(disk) {
		m.noteNodes(at, names, "TmpDisk="+disk+": to offer it, set scratch_dir in gnoded.toml; jobs request it with --tmp")
	}
	switch state := strings.ToUpper(value("State")); {
	case strings.HasPrefix(state, "CLOUD"), strings.HasPrefix(state, "FUTURE"):
		m.noteNodes(at, names, "State="+state+": nodes are not started on demand; each must join with gctl join")
	case strings.HasPrefix(state, "DOWN"), strings.HasPrefix(state, "DRAIN"), strings.HasPrefix(state, "FAIL"):
		m.noteNodes(at, names, "State="+state+": gctl drain NODES --reason TEXT")
	}
}

// unknownKeys notes keys of a line that Slurm does not have, each once.
func (m *mapper) unknownKeys(l *slurmconf.Line, known map[string]bool, text string) {
	for _, p := range l.Pairs {
		key := strings.ToLower(p.Key)
		if !known[key] && !m.unknown[text+key] {
			m.unknown[text+key] = true
			m.note(Unknown, setting{p.Key, p.Value, l.File, l.Number}, "%s", text)
		}
	}
}

// nodeNote is a note about many nodes: it has the line of the first.
type nodeNote struct {
	at    setting
	text  string
	nodes []string
}

// noteNodes notes something about nodes, together with other nodes that it is true of.
func (m *mapper) noteNodes(at setting, nodes []string, text string) {
	i, known := m.noteAt[text]
	if !known {
		i = len(m.nodeNotes)
		m.noteAt[text], m.nodeNotes = i, append(m.nodeNotes, nodeNote{at: at, text: text})
	}
	m.nodeNotes[i].nodes = append(m.nodeNotes[i].nodes, nodes...)
}

// finishNodes adds the notes about nodes.
func (m *mapper) finishNodes() {
	for _, n := range m.nodeNotes {
		m.note(NotConverted, n.at, "%s", strings.TrimPrefix(hostlist.Compress(n.nodes)+": "+n.text, ": "))
	}
}

// nodeGRES records the type of gpu:TYPE:COUNT, and notes what to set for other resources.
func (m *mapper) nodeGRES(at setting, nodes []string, gres string) {
	parts := strings.Split(gres, ":")
	if !strings.EqualFold(parts[0], "gpu") {
		count := "1"
		if last := parts[len(parts)-1]; len(parts) > 1 && strings.Trim(last, "0123456789") == "" {
			count, parts = last, parts[:len(parts)-1]
		}
		m.noteNodes(at, nodes, fmt.Sprintf("generic resource %q: set gres = { %q = %s } in gnoded.toml of these nodes", parts[0], strings.Join(parts, ":"), count))
		return
	}
	if len(parts) < 2 {
		return
	}
	if kind := parts[1]; strings.Trim(kind, "0123456789") != "" && !m.gpuTypes[kind] {
		m.gpuTypes[kind], m.types = true, append(m.types, kind)
	}
}

// nodeSet records the nodes of a NodeSet line.
func (m *mapper) nodeSet(l *slurmconf.Line) {
	at := setting{l.Pairs[0].Key, l.Pairs[0].Value, l.File, l.Number}
	if nodes, set := l.Value("Nodes"); set {
		m.nodeSets[at.value] = append(m.nodeSets[at.value], nodes)
	}
	if feature, set := l.Value("Feature"); set {
		nodes := m.features[strings.ToLower(feature)]
		if len(nodes) == 0 {
			m.note(Check, at, "no NodeName line has the feature %q", feature)
			return
		}
		list, known := m.sorted[feature]
		if !known {
			list = hostlist.Compress(slices.Compact(slices.Sorted(slices.Values(nodes))))
			m.sorted[feature] = list
		}
		m.nodeSets[at.value] = append(m.nodeSets[at.value], list)
	}
}

// partitions converts the PartitionName lines. Without any, the policy has one partition with all
// nodes.
func (m *mapper) partitions() {
	m.defaultMemory()
	defaults := &slurmconf.Line{}
	var all []cluster.Partition
	for i := range m.in.Main {
		l := &m.in.Main[i]
		if !strings.EqualFold(l.Pairs[0].Key, "PartitionName") {
			continue
		}
		if strings.EqualFold(l.Pairs[0].Value, "DEFAULT") {
			defaults.Pairs = append(defaults.Pairs, l.Pairs[1:]...)
			m.partitionLosses(l)
			continue
		}
		for _, name := range words(l.Pairs[0].Value) {
			p := m.partition(name, l, defaults)
			if slices.ContainsFunc(all, func(o cluster.Partition) bool { return o.Name == name }) {
				m.note(Check, setting{l.Pairs[0].Key, name, l.File, l.Number}, "partition %q is defined twice: the first line counts", name)
				continue
			}
			if p.Default && slices.ContainsFunc(all, func(o cluster.Partition) bool { return o.Default }) {
				m.note(Check, setting{"Default", "", l.File, l.Number}, "two partitions are the default: the first counts")
				p.Default = false
			}
			all = append(all, p)
		}
		m.partitionLosses(l)
	}
	m.billing(defaults)
	if len(all) > 0 {
		m.out.Policy.Partitions = all[:min(len(all), 1000)]
	}
	if len(all) > 1000 {
		m.note(NotConverted, setting{key: "PartitionName"}, "%d partitions: only the first 1000 are converted", len(all))
	}
}

// defaultMemory reads the memory of jobs that request none, for partitions that set none.
func (m *mapper) defaultMemory() {
	if s, set := m.take("DefMemPerCPU"); set {
		m.memPerCPU = m.memory(s, maxMemPerCPU)
	}
	if s, set := m.take("DefMemPerGPU"); set {
		m.memPerGPU = m.memory(s, maxMemPerGPU)
	}
}

// The most memory that a partition can have as default.
const (
	maxMemPerCPU = 16 * cluster.GiB
	maxMemPerGPU = 16 * cluster.TiB
)

// partition converts one line.
func (m *mapper) partition(name string, l, defaults *slurmconf.Line) cluster.Partition {
	p := cluster.Partition{Name: name, MemPerCPU: m.memPerCPU, MemPerGPU: m.memPerGPU}
	value := func(key string) (setting, bool) {
		v, set := l.Value(key)
		if !set {
			v, set = defaults.Value(key)
		}
		return setting{key, v, l.File, l.Number}, set
	}
	if s, set := value("Nodes"); set {
		p.Nodes = m.partitionNodes(s)
	}
	if s, set := value("Default"); set {
		p.Default = yes(s.value)
	}
	if s, set := value("MaxTime"); set {
		p.MaxTime = m.duration(s, 0)
	}
	if s, set := value("DefaultTime"); set && !strings.EqualFold(s.value, "NONE") {
		if p.DefaultTime = m.duration(s, 0); p.MaxTime > 0 && p.DefaultTime > p.MaxTime {
			m.note(Check, s, "above MaxTime: default_time is left out")
			p.DefaultTime = 0
		}
	}
	if s, set := value("MaxNodes"); set && !strings.EqualFold(s.value, "UNLIMITED") {
		n, _ := m.number(s, 1<<30)
		p.MaxNodes = int32(n)
	}
	if s, set := value("AllowAccounts"); set && !strings.EqualFold(s.value, "ALL") {
		p.AllowAccounts = words(s.value)
	}
	for _, key := range []string{"Priority", "PriorityTier"} {
		if s, set := value(key); set {
			n, _ := m.number(s, 1<<30)
			p.Priority = int32(n)
		}
	}
	if s, set := value("DefMemPerCPU"); set {
		p.MemPerCPU = m.memory(s, maxMemPerCPU)
	}
	if s, set := value("DefMemPerGPU"); set {
		p.MemPerGPU = m.memory(s, maxMemPerGPU)
	}
	if s, set := value("State"); set {
		switch state := strings.ToUpper(s.value); state {
		case "DOWN":
			p.Down = true
		case "DRAIN", "INACTIVE":
			p.Down = true
			m.note(Check, s, "%s: converted to down = true, which accepts jobs but starts none", state)
		}
	}
	return p
}

// partitionNodes resolves node sets in the nodes of a partition.
func (m *mapper) partitionNodes(s setting) []string {
	var all []string
	for _, term := range hostTerms(s.value) {
		if nodes, isSet := m.nodeSets[term]; isSet {
			all = append(all, nodes...)
			continue
		}
		if strings.EqualFold(term, "ALL") {
			term = "ALL"
		} else if _, err := hostlist.Expand(term); err != nil {
			m.note(Check, s, "%v: left out", err)
			continue
		}
		all = append(all, term)
	}
	return all
}

// hostTerms splits a host list at the commas outside brackets.
func hostTerms(list string) []string {
	var all []string
	depth, start := 0, 0
	for i, c := range list + "," {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && (depth <= 0 || i == len(list)):
			if term := strings.TrimSpace(list[start:i]); term != "" {
				all = append(all, term)
			}
			start = i + 1
		}
	}
	return all
}

// partitionLosses notes the settings of a partition that have no counterpart.
func (m *mapper) partitionLosses(l *slurmconf.Line) {
	for _, p := range l.Pairs[1:] {
		at := setting{p.Key, p.Value, l.File, l.Number}
		key := strings.ToLower(p.Key)
		why, known := partitionAdvice[key]
		switch {
		case convertedOfPartition[key]:
		case ignoredOfPartition[key]:
			m.ignored[p.Key] = true
		case known && isDefault(p.Key, p.Value):
		case known:
			m.note(NotConverted, at, "partition %s: %s", l.Pairs[0].Value, why)
		default:
			m.note(Unknown, at, "unknown setting of a partition: ignored")
		}
	}
}

// billing converts TRESBillingWeights: the first partition's count for the cluster.
func (m *mapper) billing(defaults *slurmconf.Line) {
	used := ""
	defer func() {
		if used == "" {
			m.note(Check, setting{key: "TRESBillingWeights"}, "not set: Slurm bills CPUs, Greylag mostly GPUs; see [fair_share.billing]")
		}
	}()
	lines := append([]slurmconf.Line{*defaults}, m.in.Main...)
	for i := range lines {
		l := &lines[i]
		text, set := l.Value("TRESBillingWeights")
		if !set || text == used {
			continue
		}
		at := setting{"TRESBillingWeights", text, l.File, l.Number}
		if used != "" {
			m.note(Check, at, "differs from another partition: fair_share.billing is one table for the cluster")
			continue
		}
		used = text
		m.out.Policy.Scheduling.FairShare.Billing = m.billingWeights(at)
	}
}
