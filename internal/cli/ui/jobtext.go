package ui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TimeLayout is the layout of times in output, in the reader's time zone, as Slurm writes them.
const TimeLayout = "2006-01-02T15:04:05"

// JobProperty is a plain text of a job. The commands that show jobs read JobProperties, so
// that a new one is a row there.
type JobProperty struct {
	Name   string // field of gctl acct; in lower case of gctl show job and gqueue -O
	Width  int    // in gctl acct
	Letter byte   // of gqueue -o
	Help   string
	Of     func(*greylagv1.Job) string
}

// JobProperties lists the plain texts of a job.
func JobProperties() []JobProperty {
	return []JobProperty{
		{"Comment", 14, 'k', "comment", (*greylagv1.Job).GetComment},
		{"WCKey", 10, 'w', "wckey", (*greylagv1.Job).GetWckey},
	}
}

// UnmetText returns a job on which an unsatisfied dependency waits.
func UnmetText(u *greylagv1.Unmet) string {
	return fmt.Sprintf("job %s of %s, %s, by %s", u.Job, u.User, wire.Word(u.State), u.Dependency)
}

// TimeOf converts a time of the API; the zero time when it is not set.
func TimeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// StartOf returns when a job started, or is planned to.
func StartOf(j *greylagv1.Job) time.Time {
	if j.Started != nil && j.State != greylagv1.JobState_JOB_STATE_PENDING {
		return j.Started.AsTime()
	}
	return TimeOf(j.Planned)
}

// WaitText describes why a job is pending in a sentence: its scheduling note, and what its reason
// means where the note says little. when formats a time.
func WaitText(j *greylagv1.Job, when func(*timestamppb.Timestamp) string) string {
	with := func(text, after string) string {
		if text == "" {
			return after
		}
		return text + "; " + after
	}
	switch is := func(r cluster.Reason) bool { return wire.Word(j.Reason) == r.String() }; {
	case is(cluster.ReasonBeginTime) && j.Eligible != nil:
		return with(j.Detail, "not before "+when(j.Eligible))
	case is(cluster.ReasonHeldUser):
		return with(cmp.Or(j.Detail, "held since submission"), "release it with gctl release")
	case is(cluster.ReasonHeldAdmin):
		return with(j.Detail, "only an administrator can release it")
	case is(cluster.ReasonNone) && j.Detail == "":
		return "not scheduled yet; the next pass will consider it"
	case is(cluster.ReasonPartitionDown) && j.Detail == "":
		return "partition " + j.Partition + " is down"
	}
	return j.Detail
}

// EndOf returns when a job ended, or will have by its time limit.
func EndOf(j *greylagv1.Job) time.Time {
	if j.Ended != nil {
		return j.Ended.AsTime()
	}
	start, limit := StartOf(j), j.TimeLimit.AsDuration()
	if start.IsZero() || limit == 0 {
		return time.Time{}
	}
	return start.Add(limit)
}

// Elapsed returns how long a job has run, by the clock of this host.
func Elapsed(j *greylagv1.Job, now time.Time) time.Duration {
	if j.Started == nil || j.State == greylagv1.JobState_JOB_STATE_PENDING {
		return 0
	}
	if j.Ended != nil {
		now = j.Ended.AsTime()
	}
	return max(now.Sub(j.Started.AsTime()), 0)
}

// LimitText returns the time limit of a job, as squeue writes it.
func LimitText(j *greylagv1.Job) string {
	if j.TimeLimit == nil {
		return "UNLIMITED"
	}
	return cluster.FormatLimit(j.TimeLimit.AsDuration())
}

// ReasonText returns the reason of a job, None if it has none.
func ReasonText(j *greylagv1.Job) string {
	if j.Reason == greylagv1.Reason_REASON_UNSPECIFIED {
		return "None"
	}
	return wire.Word(j.Reason)
}

// nodeNames returns the nodes of a job, in rank order.
func nodeNames(j *greylagv1.Job) []string {
	names := make([]string, len(j.Nodes))
	for i, n := range j.Nodes {
		names[i] = n.Node
	}
	return names
}

// NodeList returns the hostlist of a job's nodes; "" when it has none.
func NodeList(j *greylagv1.Job) string {
	switch len(j.Nodes) {
	case 0:
		return ""
	case 1:
		return j.Nodes[0].Node
	}
	return hostlist.Compress(nodeNames(j))
}

// NodeCount returns the number of nodes that a job has or requests.
func NodeCount(j *greylagv1.Job) int {
	if len(j.Nodes) > 0 {
		return len(j.Nodes)
	}
	return int(max(j.Request.GetNodes(), 1))
}

// AppendNodesOrReason appends the nodes of a job, or in brackets why it has none.
func AppendNodesOrReason(dst []byte, j *greylagv1.Job) []byte {
	if j.State != greylagv1.JobState_JOB_STATE_PENDING && len(j.Nodes) > 0 {
		return AppendPrintable(dst, NodeList(j))
	}
	dst = append(dst, '(')
	dst = AppendPrintable(dst, ReasonText(j))
	return append(dst, ')')
}

// CPUCount returns the number of CPUs that a job has or requests.
func CPUCount(j *greylagv1.Job) int64 {
	if len(j.Nodes) > 0 && j.Nodes[0].Cpus > 0 {
		n := int64(0)
		for _, node := range j.Nodes {
			n += int64(node.Cpus)
		}
		return n
	}
	q := j.Request
	return int64(max(q.GetCpusPerTask(), 1)) * int64(max(q.GetTasksPerNode(), 1)) * int64(NodeCount(j))
}

// GPUText returns the requested GPUs and generic resources, as squeue writes them.
func GPUText(j *greylagv1.Job) string {
	q := j.Request
	kind := "gres/gpu"
	if types := q.GetGpuTypes(); len(types) > 0 {
		kind += ":" + strings.Join(types, "|")
	}
	words := GresWords(q.GetGres())
	for i := range words {
		words[i] = "gres/" + words[i]
	}
	switch {
	case q.GetGpusPerNode() > 0:
		words = append([]string{fmt.Sprintf("%s:%d", kind, q.GetGpusPerNode())}, words...)
	case q.GetGpus() > 0:
		words = append([]string{fmt.Sprintf("%s:%d in total", kind, q.GetGpus())}, words...)
	}
	return cmp.Or(strings.Join(words, ","), "N/A")
}

// TRESText returns the job's allocated resources, as squeue's tres-alloc; "N/A" without an
// allocation.
func TRESText(j *greylagv1.Job) string {
	gpus, cpus, memory := 0, int64(0), cluster.Bytes(0)
	for _, n := range j.Nodes {
		gpus, cpus, memory = gpus+len(n.Gpus), cpus+int64(n.Cpus), memory+cluster.Bytes(n.Memory)
	}
	if len(j.Nodes) == 0 {
		return "N/A"
	}
	text := fmt.Sprintf("cpu=%d,mem=%s,node=%d", cpus, memory, len(j.Nodes))
	if gpus > 0 {
		text += fmt.Sprintf(",gres/gpu=%d", gpus)
	}
	return text + GresTRES(j.Request.GetGres(), int64(len(j.Nodes)))
}

// MemoryText returns the requested memory.
func MemoryText(j *greylagv1.Job) string {
	q := j.Request
	switch {
	case q.GetMemPerNode() > 0:
		return cluster.Bytes(q.GetMemPerNode()).String()
	case q.GetMemPerCpu() > 0:
		return cluster.Bytes(q.GetMemPerCpu()).String() + " per CPU"
	case q.GetMemPerGpu() > 0:
		return cluster.Bytes(q.GetMemPerGpu()).String() + " per GPU"
	case len(j.Nodes) > 0:
		return cluster.Bytes(j.Nodes[0].Memory).String()
	case q.GetMemory() != greylagv1.MemorySource_MEMORY_SOURCE_UNSPECIFIED:
		return wire.Word(q.GetMemory())
	}
	return "0"
}

// DependencyText returns the dependencies of a job in the form of --dependency, (null) for none.
func DependencyText(depends []*greylagv1.Dependency) string {
	if len(depends) == 0 {
		return "(null)"
	}
	separator := ","
	if depends[0].Any {
		separator = "?"
	}
	return strings.Join(DependencyWords(depends), separator)
}

// MailWords returns the events that a user is notified of.
func MailWords(j *greylagv1.Job) (words []string) {
	for _, t := range j.MailTypes {
		words = append(words, wire.Word(t))
	}
	return words
}

// MountWords returns the mounts of a job, each in the form of --mount.
func MountWords(j *greylagv1.Job) (words []string) {
	for _, m := range j.Mounts {
		words = append(words, cluster.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}.String())
	}
	return words
}

// DependencyWords returns the dependencies of a job, each in the form of --dependency.
func DependencyWords(depends []*greylagv1.Dependency) []string {
	var words []string
	for _, d := range depends {
		word := wire.Word(d.Kind)
		if d.Job != "" {
			word += ":" + d.Job
		}
		if d.Minutes > 0 {
			word += "+" + strconv.Itoa(int(d.Minutes))
		}
		words = append(words, word)
	}
	return words
}

// ShareWords says how a job shares its GPU; "" if it has its GPUs for itself.
func ShareWords(q *greylagv1.Request) string {
	if q.GetGpuShare() == 0 {
		return ""
	}
	how := "time-sliced"
	if q.GetMps() {
		how = "with MPS"
	}
	return fmt.Sprintf("the GPU shared by up to %d jobs, %s", q.GetGpuShare(), how)
}
