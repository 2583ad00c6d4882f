package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// Job is one job that will be submitted, and how long it would run.
type Job struct {
	Name   string // for people: the id that the log gives it
	Submit cluster.Instant
	Run    time.Duration
	Spec   *cluster.JobSpec // shared by all that ask for the same
}

// Workload is the jobs of a log as requests to a fleet. A job's processors are CPUs of
// one node, or of as few nodes as have enough, evenly; asGPUs makes them GPUs. GPUs
// that one node has are of one node; more are of whole nodes where that goes without
// remainder, else spread as the scheduler likes.
func Workload(log *trace.Trace, f *Machine, asGPUs bool) []Job {
	gpus, cpus := f.largest()
	users := map[string]cluster.Identity{}
	specs := map[wish]*cluster.JobSpec{}
	jobs := make([]Job, len(log.Jobs))
	for i := range log.Jobs {
		j := &log.Jobs[i]
		w := wish{j.User, j.Account, j.Estimate, max(j.GPUs, 0), j.Procs}
		spec, known := specs[w]
		if !known {
			spec = specOf(j, owner(users, j), gpus, cpus, asGPUs)
			specs[w] = spec
		}
		jobs[i] = Job{Name: j.ID, Submit: Epoch + cluster.Instant(j.Submit), Run: j.Run, Spec: spec}
	}
	return jobs
}

// wish is all of a log's job that its request is made of.
type wish struct {
	user, account string
	estimate      time.Duration
	gpus, procs   int32
}

// specOf is a job as a request to nodes of which the largest has so many GPUs and CPUs.
func specOf(j *trace.Job, owner cluster.Identity, gpus, cpus int32, asGPUs bool) *cluster.JobSpec {
	spec := &cluster.JobSpec{
		Name: "job", Account: j.Account, TimeLimit: j.Estimate, Owner: owner,
		Request: cluster.Request{Nodes: 1, TasksPerNode: 1, CPUsPerTask: 1},
	}
	switch n := max(j.GPUs, 0); {
	case n > 0:
		wantGPUs(&spec.Request, n, gpus)
	case asGPUs:
		wantGPUs(&spec.Request, j.Procs, gpus)
	default:
		wantCPUs(&spec.Request, j.Procs, cpus)
	}
	return spec
}

// owner is the user of a job; each has a number of their own. Where a log tells
// accounts alone, each is one user.
func owner(users map[string]cluster.Identity, j *trace.Job) cluster.Identity {
	name := cmp.Or(j.User, j.Account, "user")
	who, known := users[name]
	if !known {
		id := 10_001 + uint32(len(users))
		who = cluster.Identity{User: name, UID: id, GID: id}
		users[name] = who
	}
	return who
}

func wantGPUs(r *cluster.Request, n, perNode int32) {
	switch {
	case n <= perNode || perNode == 0:
		r.GPUsPerNode = n
	case n%perNode == 0:
		r.Nodes, r.GPUsPerNode = n/perNode, perNode
	default:
		r.Nodes, r.GPUs = 0, n
	}
}

func wantCPUs(r *cluster.Request, n, perNode int32) {
	r.Nodes = max(1, (n+perNode-1)/max(perNode, 1))
	r.TasksPerNode = (n + r.Nodes - 1) / r.Nodes
}

// size is what a job takes of the machine: GPUs where it asks for some, else CPUs.
func (j *Job) size() int64 {
	if n := j.Spec.Request.TotalGPUs(); n > 0 {
		return int64(n)
	}
	return int64(j.Spec.Request.CPUsPerNode()) * int64(max(1, j.Spec.Request.Nodes))
}

// submission is the command that submits a job. It holds until the next one: the state
// makes its own copy of what is submitted.
func (v *Virtual) submission(spec *cluster.JobSpec) *command.SubmitJobs {
	v.submitted.Actor = command.Actor{Identity: spec.Owner, Source: "simulation"}
	v.submitted.Jobs = append(v.submitted.Jobs[:0], command.Submission{Spec: *spec})
	return &v.submitted
}

// String names it for messages.
func (j *Job) String() string { return fmt.Sprintf("job %s", j.Name) }
