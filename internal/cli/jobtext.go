package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TimeLayout is the layout of times in output, in the reader's zone, as Slurm writes them.
const TimeLayout = "2006-01-02T15:04:05"

// UnmetText is a job for which a dependency waits.
func UnmetText(u *greylagv1.Unmet) string {
	return fmt.Sprintf("job %s of %s, %s, by %s", u.Job, u.User, u.State, u.Dependency)
}

// timeOf is a time of the API; the zero time when it is not set.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// startOf is when a job started, or is planned to.
func startOf(j *greylagv1.Job) time.Time {
	if j.Started != nil && j.State != "PENDING" {
		return j.Started.AsTime()
	}
	return timeOf(j.Planned)
}

// WaitText is why a job waits in a sentence: what it was told, and what its reason means
// where that says little. when writes a time.
func WaitText(j *greylagv1.Job, when func(*timestamppb.Timestamp) string) string {
	with := func(text, after string) string {
		if text == "" {
			return after
		}
		return text + "; " + after
	}
	switch is := func(r cluster.Reason) bool { return j.Reason == r.String() }; {
	case is(cluster.ReasonBeginTime) && j.Eligible != nil:
		return with(j.Detail, "it is not to start before "+when(j.Eligible))
	case is(cluster.ReasonHeldUser):
		return with(cmp.Or(j.Detail, "held since it was submitted"), "gctl release lets it go")
	case is(cluster.ReasonHeldAdmin):
		return with(j.Detail, "an administrator has to release it")
	case is(cluster.ReasonNone) && j.Detail == "":
		return "no pass of the scheduler has told anything of it yet"
	case is(cluster.ReasonPartitionDown) && j.Detail == "":
		return "partition " + j.Partition + " is down"
	}
	return j.Detail
}

// endOf is when a job ended, or will have by its time limit.
func endOf(j *greylagv1.Job) time.Time {
	if j.Ended != nil {
		return j.Ended.AsTime()
	}
	start, limit := startOf(j), j.TimeLimit.AsDuration()
	if start.IsZero() || limit == 0 {
		return time.Time{}
	}
	return start.Add(limit)
}

// elapsed is how long a job has run, by the clock of this host.
func elapsed(j *greylagv1.Job, now time.Time) time.Duration {
	if j.Started == nil || j.State == "PENDING" {
		return 0
	}
	if j.Ended != nil {
		now = j.Ended.AsTime()
	}
	return max(now.Sub(j.Started.AsTime()), 0)
}

func limitText(j *greylagv1.Job) string {
	if j.TimeLimit == nil {
		return "UNLIMITED"
	}
	return cluster.FormatLimit(j.TimeLimit.AsDuration())
}

func reasonOf(j *greylagv1.Job) string {
	if j.Reason == "" {
		return "None"
	}
	return j.Reason
}

// nodeNames are the nodes of a job, in rank order.
func nodeNames(j *greylagv1.Job) []string {
	names := make([]string, len(j.Nodes))
	for i, n := range j.Nodes {
		names[i] = n.Node
	}
	return names
}

func nodeList(j *greylagv1.Job) string {
	switch len(j.Nodes) {
	case 0:
		return ""
	case 1:
		return j.Nodes[0].Node
	}
	return hostlist.Compress(nodeNames(j))
}

func nodeCount(j *greylagv1.Job) int {
	if len(j.Nodes) > 0 {
		return len(j.Nodes)
	}
	return int(max(j.Request.GetNodes(), 1))
}

// appendPlace writes where a job is, or in brackets why it is not.
func appendPlace(dst []byte, j *greylagv1.Job) []byte {
	if j.State != "PENDING" && len(j.Nodes) > 0 {
		return appendPrintable(dst, nodeList(j))
	}
	dst = append(dst, '(')
	dst = appendPrintable(dst, reasonOf(j))
	return append(dst, ')')
}

func cpuCount(j *greylagv1.Job) int64 {
	if len(j.Nodes) > 0 && j.Nodes[0].Cpus > 0 {
		n := int64(0)
		for _, node := range j.Nodes {
			n += int64(node.Cpus)
		}
		return n
	}
	q := j.Request
	return int64(max(q.GetCpusPerTask(), 1)) * int64(max(q.GetTasksPerNode(), 1)) * int64(nodeCount(j))
}

// gpuText is the GPUs asked for, as squeue writes them.
func gpuText(j *greylagv1.Job) string {
	q := j.Request
	kind := "gres/gpu"
	if types := q.GetGpuTypes(); len(types) > 0 {
		kind += ":" + strings.Join(types, "|")
	}
	switch {
	case q.GetGpusPerNode() > 0:
		return fmt.Sprintf("%s:%d", kind, q.GetGpusPerNode())
	case q.GetGpus() > 0:
		return fmt.Sprintf("%s:%d in all", kind, q.GetGpus())
	}
	return "N/A"
}

// memoryText is the memory asked for.
// tresText is what the job has of each resource, as squeue's tres-alloc; of a job that
// has nothing "N/A".
func tresText(j *greylagv1.Job) string {
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
	return text
}

func memoryText(j *greylagv1.Job) string {
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
	case q.GetMemory() != "":
		return q.GetMemory()
	}
	return "0"
}

func dependText(depends []*greylagv1.Dependency) string {
	if len(depends) == 0 {
		return "(null)"
	}
	return strings.Join(dependWords(depends), ",")
}

func dependWords(depends []*greylagv1.Dependency) []string {
	var words []string
	for _, d := range depends {
		word := d.Kind
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
