package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim/trace"
	"github.com/greylag/greylag/pkg/cluster"
)

// Job is one job to submit, and its run time.
type Job struct {
	Name   string // the ID in the log, for messages
	Submit cluster.Instant
	Run    time.Duration
	Spec   *cluster.JobSpec // shared by all jobs with the same request
}

// Workload returns the jobs of a log as requests to a machine. A job's processors are CPUs of one
// node, or evenly of as few nodes as have enough; asGPUs makes them GPUs. GPUs that fit one node
// are of one node. More are of whole nodes if they divide evenly, else spread as the scheduler
// chooses.
func Workload(log *trace.Trace, f *Machine, asGPUs bool) []Job {
	gpus, cpus := f.largest()
	users := map[string]cluster.Identity{}
	specs := map[specKey]*cluster.JobSpec{}
	jobs := make([]Job, len(log.Jobs))
	for i := range log.Jobs {
		j := &log.Jobs[i]
		w := specKey{j.User, j.Account, j.Estimate, max(j.GPUs, 0), j.Procs}
		spec, known := specs[w]
		if !known {
			spec = specOf(j, owner(users, j), gpus, cpus, asGPUs)
			specs[w] = spec
		}
		jobs[i] = Job{Name: j.ID, Submit: Epoch + cluster.Instant(j.Submit), Run: j.Run, Spec: spec}
	}
	return jobs
}

// specKey is the fields of a log's job that its request depends on.
type specKey struct {
	user, account string
	estimate      time.Duration
	gpus, procs   int32
}

// specOf returns a job's request, on nodes whose largest has gpus and cpus.
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

// owner returns the user of a job, each with its own uid. If a log has only accounts, each is one
// user.
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

// size returns the GPUs of a job; the CPUs if it requests no GPU.
func (j *Job) size() int64 {
	if n := j.Spec.Request.TotalGPUs(); n > 0 {
		return int64(n)
	}
	return int64(j.Spec.Request.CPUsPerNode()) * int64(max(1, j.Spec.Request.Nodes))
}

// submission returns the command that submits a job. It is valid until the next call: the state
// copies what is submitted.
func (v *Virtual) submission(spec *cluster.JobSpec) *command.SubmitJobs {
	v.submitted.Actor = command.Actor{Identity: spec.Owner, Source: "simulation"}
	v.submitted.Jobs = append(v.submitted.Jobs[:0], command.Submission{Spec: *spec})
	return &v.submitted
}

// String returns the job's name for messages.
func (j *Job) String() string { return fmt.Sprintf("job %s", j.Name) }

// Spread returns jobs whose GPUs may be on any number of nodes, the fewest that have enough.
func Spread(jobs []Job) []Job {
	specs := map[*cluster.JobSpec]*cluster.JobSpec{}
	all := make([]Job, len(jobs))
	for i := range jobs {
		all[i] = jobs[i]
		spec := specs[jobs[i].Spec]
		if spec == nil {
			s := *jobs[i].Spec
			if n := s.Request.TotalGPUs(); n > 0 {
				s.Request.Nodes, s.Request.GPUsPerNode, s.Request.GPUs = 0, 0, n
			}
			spec = &s
			specs[jobs[i].Spec] = spec
		}
		all[i].Spec = spec
	}
	return all
}
