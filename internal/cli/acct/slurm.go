package acct

import (
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Slurm is how sacct prints jobs where it differs from gctl acct: only the states that its database
// has, one line for the pending elements of an array, and lines for steps.
type Slurm struct {
	Time func(time.Time) string
	// Steps prints a line for each step of a job that ran.
	Steps bool
	// Wanted reports whether a line is asked for; step is "" for the job.
	Wanted func(job, step string) bool
	// Select reports whether a job is shown, by what no filter of the cluster selects; nil: all.
	Select func(*greylagv1.Job) bool
	// Single keeps pending elements of arrays apart: they were named by ID.
	Single bool
}

// BatchStep is the step of the batch script.
const BatchStep = "batch"

// SlurmQuestion returns the question and the style that options of sacct mean. values returns what was
// given for an option, by its long name.
func SlurmQuestion(values func(long string) []string, now time.Time, environ []string) (Question, Style, error) {
	given := func(long string) bool { return len(values(long)) > 0 }
	last := func(long string) string {
		if all := values(long); len(all) > 0 {
			return all[len(all)-1]
		}
		return ""
	}
	words := func(long string) (list []string) {
		for _, value := range values(long) {
			list = append(list, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		}
		return list
	}
	o := &acctOptions{
		jobs: values("jobs"), users: words("user"), accounts: words("accounts"), partitions: words("partition"), qos: words("qos"),
		states: values("state"), names: words("name"), nodes: values("nodelist"), groups: words("group"), clusters: words("clusters"),
		start: last("starttime"), end: last("endtime"), format: strings.Join(values("format"), ","), delimiter: "|", units: last("units"),
		all: given("allusers"), me: given("me"), duplicates: given("duplicates"), truncate: given("truncate"),
		long: given("long"), brief: given("brief"), parsable: given("parsable"), parsable2: given("parsable2"), noHeader: given("noheader"), noConvert: given("noconvert"),
	}
	if given("delimiter") {
		o.delimiter = last("delimiter")
	}
	q, err := o.question(nil, now)
	if err != nil {
		return q, Style{}, err
	}
	style, err := o.style(environ)
	return q, style, err
}

func (s *Slurm) selects(p *greylagv1.PastJob) bool {
	return s == nil || s.Select == nil || s.Select(p.Job)
}

// state returns a state of sacct's database: a job that starts or ends is running.
func (s *Slurm) state(r *row) string {
	word := wire.Word(r.State)
	if r.earlier != nil {
		word = wire.Word(r.earlier.Outcome)
	}
	state, err := cluster.ParseJobState(word)
	switch {
	case r.earlier != nil && state == cluster.Cancelled: // by a requeue
		return "REQUEUED"
	case err != nil:
		return word
	case state == cluster.Configuring, state == cluster.Completing:
		return cluster.Running.String()
	case state == cluster.Cancelled && r.step != "":
		return word
	case state == cluster.Cancelled && r.earlier == nil && r.Requester != "":
		return word + " by " + userNumber(r.Requester, r.Job)
	}
	return word
}

// userNumber returns the number of a user, or the name if this host does not know it.
func userNumber(name string, j *greylagv1.Job) string {
	if name == j.User {
		return strconv.FormatUint(uint64(j.Uid), 10)
	}
	if u, err := user.Lookup(name); err == nil {
		return u.Uid
	}
	return name
}

// folds reports whether a job is an element of an array that shares its line with others.
func (s *Slurm) folds(p *greylagv1.PastJob) bool {
	return s != nil && !s.Single && p.Job.GetArrayId() != 0 && p.Job.State == greylagv1.JobState_JOB_STATE_PENDING && len(p.Attempts) == 0
}

// withSteps adds the lines of steps, and drops lines that are not asked for.
func (s *Style) withSteps(rows []*row) []*row {
	steps, wanted := s.Steps, func(string, string) bool { return true }
	if s.Slurm != nil {
		steps = s.Slurm.Steps
		if s.Slurm.Wanted != nil {
			wanted = s.Slurm.Wanted
		}
	}
	var all []*row
	for _, r := range rows {
		if wanted(r.Ref, "") {
			all = append(all, r)
		}
		if !steps || r.start.IsZero() {
			continue
		}
		lines := []*row{r.batch()}
		if r.earlier == nil {
			for _, step := range r.Job.Steps {
				lines = append(lines, r.stepRow(step))
			}
		}
		for _, line := range lines {
			if wanted(r.Ref, line.step) {
				all = append(all, line)
			}
		}
	}
	return all
}

// part returns a line for a step on some of the job's nodes: what belongs to the job alone is empty.
func (r *row) part(name string, nodes []*greylagv1.NodeAllocation, tasks int64) *row {
	step := *r
	job := proto.CloneOf(r.Job)
	past := proto.CloneOf(r.past)
	job.User, job.Partition, job.Qos, job.Reservation, job.WorkDir, job.Comment, job.Wckey, job.AdminComment = "", "", "", "", "", "", "", ""
	job.TimeLimit, job.OtherPartitions, job.Nodes = nil, nil, nodes
	past.Job = job
	step.Job, step.past, step.step, step.taskCount = job, past, name, tasks
	cpus, memory, gpus := int64(0), int64(0), int64(0)
	for _, n := range nodes {
		cpus, memory, gpus = cpus+int64(n.Cpus), memory+n.Memory>>20, gpus+int64(len(n.Gpus))
	}
	step.tres = nil
	for _, t := range []*greylagv1.ResourceCount{
		{Resource: cluster.ResourceCPU, Count: cpus}, {Resource: cluster.ResourceGPU, Count: gpus}, {Resource: cluster.ResourceMem, Count: memory}, {Resource: cluster.ResourceNode, Count: int64(len(nodes))},
	} {
		if t.Count > 0 {
			step.tres = append(step.tres, t)
		}
	}
	return &step
}

// batch returns the line of the batch script, on the first node.
func (r *row) batch() *row {
	step := r.part(BatchStep, r.Nodes[:min(len(r.Nodes), 1)], 1)
	step.Tasks = step.Tasks[:min(len(step.Tasks), 1)]
	return step
}

// stepRow returns the line of a step that grun started.
func (r *row) stepRow(s *greylagv1.Step) *row {
	var nodes []*greylagv1.NodeAllocation
	tasks := int64(0)
	for _, n := range s.Nodes {
		nodes = append(nodes, &greylagv1.NodeAllocation{Node: n.Node, Gpus: n.Gpus, Cpus: n.Cpus})
		tasks += int64(n.Tasks)
	}
	step := r.part(cluster.FormatStep(s.Id), nodes, tasks)
	step.Name, step.State, step.ExitCode, step.ExitSignal, step.Requester = s.Name, s.State, s.ExitCode, s.ExitSignal, s.Requester
	step.earlier, step.title = nil, s.Name
	step.start, step.end = r.in.cut(timeOf(s.Started)), r.in.cut(timeOf(s.Ended))
	step.elapsed = step.until().Sub(step.start).Truncate(time.Second)
	if step.Tasks = nil; s.Ended == nil {
		return step
	}
	step.Tasks = []*greylagv1.Task{{
		Node: nodes[0].Node, MemoryPeak: s.MemoryPeak, CpuTime: s.CpuTime, UserTime: s.UserTime, ExitCode: s.ExitCode, ExitSignal: s.ExitSignal,
	}}
	return step
}

// named returns an ID with the step.
func (r *row) named(id string) string {
	if r.step != "" {
		return id + "." + r.step
	}
	return id
}

// gres returns the allocated GPUs and generic resources as --gres writes them: gpu:4,nvme:1.
func (r *row) gres() string {
	var words []string
	if n := r.has(cluster.ResourceGPU); n > 0 {
		words = append(words, "gpu:"+count(n))
	}
	for _, g := range r.Request.GetGres() {
		if n := r.has(cluster.GresResource(g.Name)); n > 0 {
			words = append(words, g.Name+":"+count(n))
		}
	}
	return strings.Join(words, ",")
}

// pendingArrays are the pending elements of arrays.
type pendingArrays map[uint64]*pendingArray

type pendingArray struct {
	first   *greylagv1.PastJob
	indices []int32
}

func (a *pendingArrays) add(p *greylagv1.PastJob) {
	if *a == nil {
		*a = make(pendingArrays)
	}
	one := (*a)[p.Job.ArrayId]
	if one == nil {
		one = &pendingArray{first: p}
		(*a)[p.Job.ArrayId] = one
	}
	one.indices = append(one.indices, p.Job.ArrayIndex)
}

// list returns one job for each array, with the ID 12_[0-3,7%2].
func (a pendingArrays) list() []*greylagv1.PastJob {
	var all []*greylagv1.PastJob
	for id, one := range a {
		slices.Sort(one.indices)
		ref := strconv.FormatUint(id, 10) + "_[" + string(ui.AppendIndices(nil, one.indices))
		if limit := one.first.Job.ArrayLimit; limit > 0 {
			ref += "%" + strconv.Itoa(int(limit))
		}
		one.first.Job.Ref, one.first.Job.Id = ref+"]", id
		all = append(all, one.first)
	}
	return all
}
