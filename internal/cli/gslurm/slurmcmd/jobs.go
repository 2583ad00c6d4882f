package slurmcmd

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// MinJobAge is how long squeue and scontrol show a job that has ended; scontrol show config names it.
// Later sacct shows it.
const MinJobAge = 300 * time.Second

// CheckUsers returns Slurm's error for a user of a filter whom neither this host nor an account knows.
// It is called when nothing was found.
func CheckUsers(ctx context.Context, c ui.Cluster, users []string) error {
	if name, found := ui.UnknownUser(ctx, c, users); found {
		return &ui.UsageError{Problem: "Invalid user: " + name}
	}
	return nil
}

// Null is Slurm's word for an empty text.
const Null = "(null)"

// Job is a line of squeue: a job, or the pending elements of an array.
type Job struct {
	*greylagv1.Job
	State   cluster.JobState
	Indices []int32 // of the pending elements; nil for a single job
}

// Fold puts the pending elements of each array into one line, unless single is set. O(n log n).
func Fold(jobs []*greylagv1.Job, single bool) []Job {
	at := make(map[uint64]int)
	rows := make([]Job, 0, len(jobs))
	for _, j := range jobs {
		state, _ := cluster.ParseJobState(wire.Word(j.State))
		if single || j.ArrayId == 0 || state != cluster.Pending {
			rows = append(rows, Job{Job: j, State: state})
			continue
		}
		i, known := at[j.ArrayId]
		if !known {
			i = len(rows)
			at[j.ArrayId] = i
			rows = append(rows, Job{Job: j, State: state})
		}
		rows[i].Indices = ui.ElementIndices(rows[i].Indices, j)
	}
	for i := range rows {
		slices.Sort(rows[i].Indices)
	}
	return rows
}

// ID returns the job's ID: 12, 12_3 or 12_[0-3,7%2].
func (j *Job) ID() string {
	if j.Indices == nil {
		return j.Ref
	}
	return strconv.FormatUint(j.ArrayId, 10) + "_[" + j.IndexText() + "]"
}

// IndexText returns the indices of a line: 3, or 0-3,7%2 for pending elements; "" without an array.
func (j *Job) IndexText() string {
	switch {
	case j.ArrayId == 0:
		return ""
	case j.Indices == nil:
		return strconv.Itoa(int(j.ArrayIndex))
	}
	text := string(ui.AppendIndices(nil, j.Indices))
	if j.ArrayLimit > 0 {
		text += "%" + strconv.Itoa(int(j.ArrayLimit))
	}
	return text
}

// BaseID returns the ID of the job, or of its array.
func (j *Job) BaseID() uint64 { return cmp.Or(j.ArrayId, j.Id) }

// HasNodes reports whether the job has nodes now, or had them.
func (j *Job) HasNodes() bool { return j.State != cluster.Pending && len(j.Nodes) > 0 }

// NodeList returns the host list of its nodes; "" without nodes.
func (j *Job) NodeList() string {
	if !j.HasNodes() {
		return ""
	}
	return ui.NodeList(j.Job)
}

// BatchHost returns the node on which the script runs; "" without nodes.
func (j *Job) BatchHost() string {
	if !j.HasNodes() {
		return ""
	}
	return j.Nodes[0].Node
}

// NodesOrReason returns its nodes, or in brackets why it has none.
func (j *Job) NodesOrReason() string {
	if list := j.NodeList(); list != "" {
		return list
	}
	return "(" + ui.ReasonText(j.Job) + ")"
}

// PartitionText returns all partitions of a pending job, or the one in which it runs or ran.
func (j *Job) PartitionText() string {
	if j.State != cluster.Pending || len(j.OtherPartitions) == 0 {
		return j.Partition
	}
	return j.Partition + "," + strings.Join(j.OtherPartitions, ",")
}

// OrNull returns a text, or (null).
func OrNull(text string) string { return cmp.Or(text, Null) }

// GresPerNode returns the requested GPUs and generic resources of a node as --gres writes them:
// gres/gpu:h100:4,gres/nvme:1; "" for none.
func (j *Job) GresPerNode() string {
	var words []string
	if gpus := gpuWord(j.Request, j.Request.GetGpusPerNode()); gpus != "" {
		words = append(words, gpus)
	}
	for _, word := range ui.GresWords(j.Request.GetGres()) {
		words = append(words, "gres/"+word)
	}
	return strings.Join(words, ",")
}

// TmpPerNode returns the scratch space that the job requests on each node.
func (j *Job) TmpPerNode() cluster.Bytes { return tmpOf(j.Request.GetGres()) }

func tmpOf(list []*greylagv1.Gres) cluster.Bytes {
	for _, g := range list {
		if g.Name == cluster.GresTmp {
			return cluster.Bytes(g.Count) * cluster.MiB
		}
	}
	return 0
}

// GPUsInAll returns the requested GPUs of the job, if it requests them for the whole job.
func (j *Job) GPUsInAll() string { return gpuWord(j.Request, j.Request.GetGpus()) }

func gpuWord(q *greylagv1.Request, n int32) string {
	if n == 0 {
		return ""
	}
	kind := "gres/gpu"
	if types := q.GetGpuTypes(); len(types) > 0 {
		kind += ":" + strings.Join(types, "|")
	}
	return fmt.Sprintf("%s:%d", kind, n)
}

// Memory returns the requested memory: of a node, or of a CPU with perCPU.
func (j *Job) Memory() (size cluster.Bytes, perCPU bool) {
	q := j.Request
	switch {
	case q.GetMemPerNode() > 0:
		return cluster.Bytes(q.GetMemPerNode()), false
	case q.GetMemPerCpu() > 0:
		return cluster.Bytes(q.GetMemPerCpu()), true
	case q.GetMemPerGpu() > 0:
		return cluster.Bytes(q.GetMemPerGpu()) * cluster.Bytes(max(q.GetGpusPerNode(), q.GetGpus(), 1)), false
	case len(j.Nodes) > 0:
		return cluster.Bytes(j.Nodes[0].Memory), false
	}
	return 0, false
}

// SizeText writes memory as Slurm does: in the largest unit that gives a whole number, 500M or 8G.
func SizeText(size cluster.Bytes) string {
	const units = "MGTP"
	n, i := int64((size+cluster.MiB-1)/cluster.MiB), 0
	for ; n != 0 && n%1024 == 0 && i < len(units)-1; i++ {
		n /= 1024
	}
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt(n, 10) + units[i:i+1]
}

// TRES returns resources as Slurm writes them: cpu=8,mem=16G,node=2,billing=8,gres/gpu=4.
func TRES(cpus int64, memory cluster.Bytes, nodes, gpus int64, kind string) string {
	words := []string{fmt.Sprintf("cpu=%d", cpus)}
	if memory > 0 {
		words = append(words, "mem="+SizeText(memory))
	}
	words = append(words, fmt.Sprintf("node=%d,billing=%d", nodes, cpus))
	if gpus > 0 {
		words = append(words, fmt.Sprintf("gres/gpu=%d", gpus))
		if kind != "" {
			words = append(words, fmt.Sprintf("gres/gpu:%s=%d", kind, gpus))
		}
	}
	return strings.Join(words, ",")
}

// RequestedTRES returns the requested resources.
func (j *Job) RequestedTRES() string {
	nodes := j.requestedNodes()
	gpus := max(int64(j.Request.GetGpus()), int64(j.Request.GetGpusPerNode())*nodes)
	size, perCPU := j.Memory()
	cpus := j.RequestedCPUs()
	if perCPU {
		size *= cluster.Bytes(cpus)
	} else {
		size *= cluster.Bytes(nodes)
	}
	return TRES(cpus, size, nodes, gpus, j.gpuType()) + ui.GresTRES(j.Request.GetGres(), nodes)
}

// RequestedCPUs returns the requested number of CPUs.
func (j *Job) RequestedCPUs() int64 {
	q := j.Request
	return int64(max(q.GetCpusPerTask(), 1)) * int64(max(q.GetTasksPerNode(), 1)) * j.requestedNodes()
}

// DependencyText returns the dependencies of a job, as squeue and scontrol mark them: those of a
// pending job that waits for them are unfulfilled, or have failed. Slurm drops fulfilled ones.
func (j *Job) DependencyText() string {
	mark := "(unfulfilled)"
	switch j.Reason {
	case greylagv1.Reason_REASON_DEPENDENCY_NEVER_SATISFIED:
		mark = "(failed)"
	case greylagv1.Reason_REASON_UNSPECIFIED, greylagv1.Reason_REASON_NONE, greylagv1.Reason_REASON_DEPENDENCY, greylagv1.Reason_REASON_BEGIN_TIME,
		greylagv1.Reason_REASON_DEADLINE, greylagv1.Reason_REASON_JOB_HELD_USER, greylagv1.Reason_REASON_JOB_HELD_ADMIN:
	default: // the scheduler checks everything else after the dependencies
		return Null
	}
	if j.State != cluster.Pending || len(j.Depends) == 0 {
		return Null
	}
	separator := ","
	if j.Depends[0].Any {
		separator = "?"
	}
	return strings.Join(ui.DependencyWords(j.Depends), mark+separator) + mark
}

// requestedNodes returns the requested number of nodes. A request of GPUs alone leaves it to the
// scheduler: then it is the number of nodes that the job has.
func (j *Job) requestedNodes() int64 {
	if n := j.Request.GetNodes(); n > 0 {
		return int64(n)
	}
	return int64(ui.NodeCount(j.Job))
}

func (j *Job) gpuType() string {
	if types := j.Request.GetGpuTypes(); len(types) == 1 {
		return types[0]
	}
	return ""
}

// AllocatedTRES returns the allocated resources; "" without nodes.
func (j *Job) AllocatedTRES() string {
	if !j.HasNodes() {
		return ""
	}
	var memory cluster.Bytes
	var gpus int64
	for _, n := range j.Nodes {
		memory, gpus = memory+cluster.Bytes(n.Memory), gpus+int64(len(n.Gpus))
	}
	return TRES(ui.CPUCount(j.Job), memory, int64(len(j.Nodes)), gpus, j.gpuType()) + ui.GresTRES(j.Request.GetGres(), int64(len(j.Nodes)))
}

// Output returns the file that the job writes, StdErr if errors is set.
func (j *Job) Output(errors bool) string {
	if errors && j.Error != "" {
		return ui.OutputPath(j.Job, j.Error)
	}
	return ui.OutputPath(j.Job, j.Job.Output)
}

// CommandLine returns the script's path with its arguments, or (null).
func (j *Job) CommandLine() string {
	return OrNull(strings.Join(append([]string{j.Command}, j.Args...), " "))
}

// LicenceText returns the requested licences; "" for none.
func (j *Job) LicenceText() string {
	var words []string
	for _, l := range j.Request.GetLicences() {
		words = append(words, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	return strings.Join(words, ",")
}

// Hosts returns a host list of names; "" for none.
func Hosts(names []string) string { return hostlist.Compress(names) }

// GroupName returns the name of a group on this host, or its number.
func GroupName(gid uint32) string {
	text := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(text); err == nil {
		return g.Name
	}
	return text
}

// UserNumber returns the number of a user on this host, and whether it is known.
func UserNumber(name string) (string, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", false
	}
	return u.Uid, true
}

// The forms of a listing, each with less than the one before.
const (
	Whole  = iota // all fields
	Brief         // the fields of a queue
	Folded        // in addition, elements of an array that are the same in one job
)

// FetchJobs returns the selected jobs that are active, or ended in the last MinJobAge, by ID.
func FetchJobs(ctx context.Context, c ui.Cluster, filter *greylagv1.Filter, now time.Time, form int) ([]*greylagv1.Job, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := c.Jobs().StreamJobs(ctx, &greylagv1.ListJobsRequest{Filter: filter, PageSize: fetchPage, Brief: form >= Brief, Fold: form == Folded})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var jobs []*greylagv1.Job
	oldest := now.Add(-MinJobAge)
	for stream.Receive() {
		for _, j := range stream.Msg().Jobs {
			switch ended := ui.TimeOf(j.Ended); {
			case j.State < greylagv1.JobState_JOB_STATE_COMPLETED || !ended.Before(oldest):
				jobs = append(jobs, j)
			case len(filter.Jobs) == 0: // ended jobs come newest first
				return byID(jobs), nil
			}
		}
	}
	return byID(jobs), stream.Err()
}

// fetchPage is the number of jobs in one message.
const fetchPage = 5000

func byID(jobs []*greylagv1.Job) []*greylagv1.Job {
	slices.SortFunc(jobs, func(a, b *greylagv1.Job) int { return cmp.Compare(a.Id, b.Id) })
	return jobs
}

// UnknownJob is what Slurm's programs print for an unknown job.
const UnknownJob = Message("slurm_load_jobs error: Invalid job id specified")
