package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxSignal is the highest signal number of Linux.
const MaxSignal = 64

// ErrInvalidJob is wrapped by every error of [JobSpec.Validate].
var ErrInvalidJob = errors.New("invalid job")

// Bounds of one job's request: far above any real machine, and low enough that no sum of them
// overflows.
const (
	maxNodes   = 1 << 20
	maxPerNode = 1 << 16
	maxMemory  = 1 << 50
	maxPrice   = 1 << 53 // micro-credits, the bound of credit amounts
	maxGPUs    = maxNodes * 16
	maxText    = 4096
	maxName    = 256
	maxList    = 100_000
	maxArgs    = 1024
	maxOthers  = 64 // further partitions; licences
)

// Validate checks that a specification is well formed by itself, and fills in implied values (one
// node, one task, one CPU). It reports every error. Whether the cluster can satisfy it is a
// separate check. O(size).
func (s *JobSpec) Validate() error {
	s.Request.normalise()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %s", ErrInvalidJob, fmt.Sprintf(format, args...)))
	}
	for _, t := range s.Texts() {
		checkName(fault, t.Name, *t.Text, t.Max)
	}
	if s.WorkDir != "" && !strings.HasPrefix(s.WorkDir, "/") {
		fault("working directory %q is not absolute", s.WorkDir)
	}
	if s.TimeLimit < 0 || s.TimeLimit > maxLimit {
		fault("time limit %s is out of range", s.TimeLimit)
	}
	if s.ArraySize < 0 || s.ArrayLimit < 0 {
		fault("array size %d and limit %d must not be negative", s.ArraySize, s.ArrayLimit)
	}
	if len(s.Args) > maxArgs {
		fault("%d script arguments, at most %d", len(s.Args), maxArgs)
	}
	for i, arg := range s.Args {
		if strings.ContainsRune(arg, 0) || len(arg) > maxText*8 {
			fault("script argument %d holds a NUL byte or is longer than %d bytes", i+1, maxText*8)
		}
	}
	if s.Begin < 0 || s.Deadline < 0 {
		fault("begin and deadline must not lie before 1970")
	}
	if s.Signal.Number < 0 || s.Signal.Number > MaxSignal || s.Signal.Before < 0 || s.Signal.Before > maxLimit {
		fault("signal %d, %s before the end, is out of range", s.Signal.Number, s.Signal.Before)
	}
	s.checkOthers(fault)
	s.checkSecrets(fault)
	s.checkMounts(fault)
	s.checkCheckpointDir(fault)
	s.checkCheckpointSignal(fault)
	s.checkElastic(fault)
	s.checkShare(fault)
	s.checkBurst(fault)
	s.checkStaging(fault)
	if err := s.Retry.Check(); err != nil {
		fault("%v", err)
	}
	s.Request.check(fault)
	s.checkDependencies(fault)
	return errors.Join(faults...)
}

// checkOthers checks the further partitions: named and unique.
func (s *JobSpec) checkOthers(fault func(string, ...any)) {
	if len(s.OtherPartitions) > maxOthers {
		fault("%d partitions, at most %d", len(s.OtherPartitions)+1, maxOthers+1)
		return
	}
	for i, name := range s.OtherPartitions {
		checkWord(fault, "partition", name)
		if name == s.Partition || slices.Contains(s.OtherPartitions[:i], name) {
			fault("partition %q is named twice", name)
		}
	}
	if len(s.OtherPartitions) > 0 && s.Partition == "" {
		fault("further partitions are named, and no first one")
	}
}

func (s *JobSpec) checkDependencies(fault func(string, ...any)) {
	if s.MailTypes >= mailEnd {
		fault("unknown mail types %#x", uint16(s.MailTypes))
	}
	if strings.ContainsAny(s.MailUser, " ,;<>\"") {
		fault("mail user %q: want one address or user name", s.MailUser)
	}
	if len(s.Depends) > maxArgs {
		fault("%d dependencies, at most %d", len(s.Depends), maxArgs)
	}
	for _, d := range s.Depends {
		if d.Any != AnyOf(s.Depends) {
			fault("its dependencies must all be alternatives, or none of them")
			break
		}
	}
	for _, d := range s.Depends {
		if d.Kind < After || d.Kind > Singleton {
			fault("unknown kind of dependency")
		} else if (d.Kind == Singleton) != (d.Job.ID == 0) {
			fault("dependency %s %s: want a job ID, and none for singleton", d.Kind, d.Job)
		} else if d.Delay < 0 || d.Delay > maxLimit || d.Delay%time.Minute != 0 {
			fault("dependency %s:%s: a delay of %s: want whole minutes, at most %s", d.Kind, d.Job, d.Delay, FormatLimit(maxLimit))
		} else if d.Delay > 0 && d.Kind != After {
			fault("dependency %s: only after takes a time", d)
		}
	}
}

func (r *Request) normalise() {
	r.normaliseShare()
	if r.Nodes == 0 && r.GPUs == 0 && r.Tasks == 0 {
		r.Nodes = 1
	}
	if r.TasksPerNode == 0 && r.Tasks == 0 {
		r.TasksPerNode = 1
	}
	if r.CPUsPerTask == 0 {
		r.CPUsPerTask = 1
	}
	if r.MaxNodes == r.Nodes {
		r.MaxNodes = 0
	}
	if r.IncludesList() {
		r.Nodes = max(r.Nodes, int32(len(r.NodeList)))
	}
	SortGres(r.Gres)
	if !r.HasLocality() {
		r.SwitchWait = 0
	}
}

func (r *Request) check(fault func(string, ...any)) {
	for _, q := range []struct {
		what string
		n    int64
		most int64
	}{
		{"nodes", int64(r.Nodes), maxNodes}, {"most nodes", int64(r.MaxNodes), maxNodes}, {"GPUs per node", int64(r.GPUsPerNode), maxPerNode},
		{"GPUs", int64(r.GPUs), maxGPUs}, {"tasks", int64(r.Tasks), maxNodes}, {"tasks per node", int64(r.TasksPerNode), maxPerNode},
		{"CPUs per task", int64(r.CPUsPerTask), maxPerNode}, {"memory per node", int64(r.MemPerNode), maxMemory},
		{"memory per CPU", int64(r.MemPerCPU), maxMemory}, {"memory per GPU", int64(r.MemPerGPU), maxMemory},
		{"memory of each GPU", int64(r.GPUMemory), maxMemory}, {"switches", int64(r.Switches), maxNodes},
	} {
		if q.n < 0 || q.n > q.most {
			fault("%s: %d is out of range (0 to %d)", q.what, q.n, q.most)
		}
	}
	if r.GPUs > 0 && r.GPUsPerNode > 0 && int64(r.GPUs) != int64(r.GPUsPerNode)*int64(max(r.Nodes, 1)) {
		fault("%d GPUs in all contradict %d nodes with %d GPUs each", r.GPUs, max(r.Nodes, 1), r.GPUsPerNode)
	}
	switch {
	case r.IncludesList() && r.GPUs > 0 && r.GPUsPerNode == 0:
		fault("the node list has fewer nodes than the job, whose GPUs are requested in total: request GPUs per node")
	case r.IncludesList() && (r.Switches > 0 || r.Connect == ConnectLeaf || r.Connect == ConnectNVLink):
		fault("the node list has fewer nodes than the job, which restricts their locality: list all nodes, or none")
	case r.Tasks > 0 && (r.Nodes > 0 || r.MaxNodes > 0 || r.TasksPerNode > 0):
		fault("tasks=%d cannot be combined with nodes, max_nodes or tasks_per_node", r.Tasks)
	case r.MaxNodes > 0 && r.MaxNodes < r.Nodes:
		fault("%d to %d nodes: the second number is the most", r.Nodes, r.MaxNodes)
	case r.MaxNodes > 0 && r.GPUs > 0:
		fault("a range of nodes and a total of %d GPUs are both requested: request GPUs per node", r.GPUs)
	}
	switch {
	case r.MemFrom > maxMemorySource:
		fault("unknown source of memory %d", r.MemFrom)
	case r.MemFrom == MemoryAll && (r.MemPerNode != 0 || r.MemPerCPU != 0 || r.MemPerGPU != 0):
		fault("all memory of each node and a memory size are both requested")
	}
	r.checkProducts(fault)
	r.checkPlaces(fault)
	if why := GresFault(r.Gres); why != "" {
		fault("%s", why)
	}
	if len(r.GPUTypes) > 64 || len(r.Features) > 64 || len(r.NodeList) > maxList || len(r.Exclude) > maxList || len(r.Regions) > 64 {
		fault("too many GPU types, features, nodes or regions are named")
	}
	r.checkFeatures(fault)
	for _, t := range r.GPUTypes {
		if strings.ContainsRune(t, '@') {
			fault("GPU type %q contains @", t)
		}
	}
	for _, list := range [][]string{r.GPUTypes, r.Features, r.NodeList, r.Exclude, r.Regions} {
		for _, word := range list {
			checkName(fault, "word", word, maxName)
		}
	}
}

// checkPlaces checks the requested GPUs, links and licences.
func (r *Request) checkPlaces(fault func(string, ...any)) {
	gpus := r.GPUs > 0 || r.GPUsPerNode > 0
	switch {
	case r.Connect > ConnectLeaf:
		fault("unknown degree of connection %d", r.Connect)
	case !gpus && (r.Connect == ConnectNVLink || r.Connect == ConnectNode):
		fault("connection %s joins GPUs, and the job requests none", r.Connect)
	}
	if r.GPUMemory > 0 && !gpus {
		fault("%s of GPU memory is asked for, and no GPU", r.GPUMemory)
	}
	switch {
	case r.MaxPrice < 0 || r.MaxPrice > maxPrice:
		fault("the highest price, %d micro-credits, is out of range (0 to %d)", r.MaxPrice, int64(maxPrice))
	case r.MaxPrice > 0 && !gpus:
		fault("a highest price for an hour of a GPU is named, and no GPU is asked for")
	}
	if r.SwitchWait < SwitchDefault || r.SwitchWait > maxLimit {
		fault("waiting %s for switches is out of range", r.SwitchWait)
	}
	if len(r.Licences) > maxOthers {
		fault("%d licences, at most %d", len(r.Licences), maxOthers)
		return
	}
	for i, l := range r.Licences {
		checkWord(fault, "licence", l.Name)
		if l.Count < 1 {
			fault("licence %q: a count of %d, want at least 1", l.Name, l.Count)
		}
		if slices.ContainsFunc(r.Licences[:i], func(o Licence) bool { return o.Name == l.Name }) {
			fault("licence %q is named twice", l.Name)
		}
	}
}

// checkProducts keeps the products of [Request.CPUsPerNode], [Request.MemoryOn] and
// [Request.TotalGPUs] within their types. Each factor has been checked.
func (r *Request) checkProducts(fault func(string, ...any)) {
	cpus := int64(r.TasksPerNode) * int64(r.CPUsPerTask)
	if cpus > maxPerNode {
		fault("%d tasks of %d CPUs on a node: at most %d CPUs", r.TasksPerNode, r.CPUsPerTask, maxPerNode)
	}
	if gpus := int64(r.GPUsPerNode) * int64(max(r.Nodes, r.MaxNodes, 1)); gpus > maxGPUs {
		fault("%d nodes with %d GPUs each: at most %d GPUs", max(r.Nodes, r.MaxNodes), r.GPUsPerNode, maxGPUs)
	}
	gpus := Bytes(max(r.GPUsPerNode, r.GPUs, 1))
	if r.MemPerCPU > maxMemory/max(1, Bytes(cpus)) || r.MemPerGPU > maxMemory/gpus {
		fault("more than %s of memory on a node", Bytes(maxMemory))
	}
}

// UnsafeToDisplay reports whether a character in one user's text would change how the text around
// it is displayed: control characters, line and paragraph separators, and characters that change
// the writing direction.
func UnsafeToDisplay(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// Sanitize cuts a text to max bytes, and replaces what is unsafe to display by spaces. A
// change of this rule changes the digest of the state but no form (docs/adr/0014).
func Sanitize(text string, max int) string {
	return strings.Map(func(r rune) rune {
		if UnsafeToDisplay(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), max)], "?"))
}

func checkName(fault func(string, ...any), what, text string, most int) {
	switch {
	case len(text) > most:
		fault("%s is %d bytes long, at most %d", what, len(text), most)
	case !utf8.ValidString(text):
		fault("%s %q is not valid UTF-8", what, text)
	default:
		for _, r := range text {
			if unicode.IsControl(r) {
				fault("%s %q holds the control character %q", what, text, r)
				return
			}
		}
	}
}
