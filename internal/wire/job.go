package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// WriteJob writes all of a job. The caller must have removed hidden fields before.
func WriteJob(j *cluster.Job) *greylagv1.Job {
	p := &greylagv1.Job{}
	s := &slabs{}
	s.brief(p, j)
	spec := j.Spec
	p.Uid, p.Gid = spec.Owner.UID, spec.Owner.GID
	p.Detail, p.Attempt, p.Restarts = j.Detail, uint32(j.Attempt), j.Restarts
	p.RestartCauses = writeRestartCauses(j.Causes)
	p.Request = WriteRequest(&spec.Request)
	p.Eligible, p.Begin, p.Deadline = Timestamp(j.Eligible), Timestamp(spec.Begin), Timestamp(spec.Deadline)
	p.ExitCode, p.ExitSignal = j.Exit.Code, j.Exit.Signal
	p.WorkDir, p.Output, p.Error, p.Image = spec.WorkDir, spec.Output, spec.Error, spec.Image
	p.Comment, p.Wckey, p.SubmitHost, p.Args = spec.Comment, spec.WCKey, spec.SubmitHost, spec.Args
	p.AdminComment, p.Warning, p.WarningSince, p.IdleGpus = j.AdminComment, j.Warning(), Timestamp(j.Activity.Value().WarnsFrom), writeIdle(j.Activity.Value().Idle)
	p.Command = spec.Command
	p.MailTypes, p.MailUser, p.Secrets = writeMailTypes(spec.MailTypes), spec.MailUser, spec.Secrets
	p.Mounts = writeMounts(spec.Mounts)
	p.Depends = writeDependencies(spec.Depends)
	p.Hold, p.Charged = Enum[greylagv1.Hold](holdWord(j.Hold)), j.Charged
	p.Version, p.Nice, p.EveryNode, p.Requester = j.Version, spec.Nice, spec.EveryNode, canceller(j)
	p.ArraySize, p.OtherPartitions, p.Reservation = spec.ArraySize, spec.OtherPartitions, spec.Reservation
	p.Nodes = writeAllocation(j.Alloc)
	for _, t := range j.Tasks.All() {
		p.Tasks = append(p.Tasks, writeTask(t))
	}
	p.Steps = writeSteps(j)
	p.Checkpoints, p.Resume = writeCheckpoints(j.Checkpoints), j.Resume
	p.CheckpointDir, p.FromScratch = spec.CheckpointDir, spec.FromScratch
	p.Retry, p.Retries = writeRetry(&spec.Retry), j.Retries
	p.CheckpointSignal, p.RequeueAtLimit = writeCheckpointSignal(spec), spec.RequeueAtLimit
	p.Elastic, p.Members = writeElastic(spec), writeMembers(j)
	if spec.Burst.On() {
		p.Burst = writeBurst(&spec.Burst)
	}
	p.StageIn, p.StageOut = WriteStaging(spec.StageIn), WriteStaging(spec.StageOut)
	if j.WriteTime > 0 {
		p.CheckpointWriteTime = durationpb.New(j.WriteTime)
	}
	p.UnfencedNodes = j.Unfenced
	for _, a := range j.Avoided {
		p.AvoidedNodes = append(p.AvoidedNodes, &greylagv1.AvoidedNode{Node: a.Node, Until: Timestamp(a.Until), Attempt: uint32(a.Attempt)})
	}
	if n := len(j.Attempts); n > 0 {
		a := &j.Attempts[n-1]
		p.LastAttempt = &greylagv1.LastAttempt{Attempt: uint32(a.Attempt), Outcome: greylagv1.JobState(a.Outcome), Ended: Timestamp(a.Ended), Detail: a.Detail, Nodes: a.Nodes, ExitCode: a.Exit.Code, ExitSignal: a.Exit.Signal}
	}
	return p
}

func writeIdle(x cluster.IdleGPUs) *greylagv1.IdleGPUs {
	if x == (cluster.IdleGPUs{}) {
		return nil
	}
	return &greylagv1.IdleGPUs{Gpus: x.GPUs, At: Timestamp(x.At), GpuMs: x.Ms, Price: x.Price}
}

// ReadIdle reads the idle GPUs in an answer.
func ReadIdle(p *greylagv1.IdleGPUs) cluster.IdleGPUs {
	return cluster.IdleGPUs{GPUs: p.GetGpus(), At: cluster.InstantOf(p.GetAt().AsTime()), Ms: p.GetGpuMs(), Price: p.GetPrice()}
}

func writeRestartCauses(c cluster.RestartCauses) *greylagv1.RestartCauses {
	if c == (cluster.RestartCauses{}) {
		return nil
	}
	return &greylagv1.RestartCauses{NodeFailed: c.NodeFailed, TaskFailed: c.TaskFailed, Preempted: c.Preempted, Requeued: c.Requeued, Retried: c.Retried, TimedOut: c.TimedOut, DamagedCheckpoint: c.Damaged, Reclaimed: c.Reclaimed}
}

// ReadRestartCauses reads the restart causes in an answer.
func ReadRestartCauses(p *greylagv1.RestartCauses) cluster.RestartCauses {
	return cluster.RestartCauses{NodeFailed: p.GetNodeFailed(), TaskFailed: p.GetTaskFailed(), Preempted: p.GetPreempted(), Requeued: p.GetRequeued(), Retried: p.GetRetried(), TimedOut: p.GetTimedOut(), Damaged: p.GetDamagedCheckpoint(), Reclaimed: p.GetReclaimed()}
}

// canceller returns who cancelled a job, without users whose job preempted it or who requeued it,
// which the detail names.
func canceller(j *cluster.Job) string {
	switch {
	case j.Canceller != "":
		return j.Canceller
	case j.Reason == cluster.ReasonPreempted || j.Returns:
		return ""
	}
	return j.Requester
}

func holdWord(h cluster.Hold) string {
	switch h {
	case cluster.HeldByUser:
		return "user"
	case cluster.HeldByAdmin:
		return "admin"
	case cluster.HeldForCredits:
		return "credits"
	}
	return ""
}

func writeAllocation(a *cluster.Allocation) []*greylagv1.NodeAllocation {
	if a == nil {
		return nil
	}
	list := make([]*greylagv1.NodeAllocation, len(a.Nodes))
	for i, n := range a.Nodes {
		list[i] = &greylagv1.NodeAllocation{Node: n.Node, Gpus: n.GPUs, Cpus: n.CPUs, Memory: int64(n.Memory)}
	}
	return list
}

func writeTask(t *cluster.Task) *greylagv1.Task {
	p := &greylagv1.Task{
		Node: t.Node, Phase: greylagv1.TaskPhase(t.Phase + 1), Cause: greylagv1.TaskCause(t.Cause), ExitCode: t.Exit.Code, ExitSignal: t.Exit.Signal,
		Message: t.Message, Started: Timestamp(t.Started), Ended: Timestamp(t.Ended), MemoryPeak: int64(t.Memory),
	}
	if t.CPUTime != 0 {
		p.CpuTime = durationpb.New(t.CPUTime)
	}
	if t.User != 0 {
		p.UserTime = durationpb.New(t.User)
	}
	p.GpuBusyMs, p.GpuKnownMs, p.GpuMemoryPeakBytes = t.GPU.BusyMs, t.GPU.KnownMs, heldPeak(t.GPU)
	return p
}

// heldPeak returns the largest memory use of a GPU; nil when it is unknown.
func heldPeak(u cluster.GPUUse) *int64 {
	if !u.MemoryKnown {
		return nil
	}
	peak := int64(u.MemoryPeak)
	return &peak
}

// WriteBrief writes what a queue listing shows of each job, without more expensive fields; it
// allocates memory in few pieces. fold puts elements of an array that are the same into one.
func WriteBrief(jobs []*cluster.Job, fold bool) []*greylagv1.Job {
	s := newSlabs(len(jobs))
	list := make([]*greylagv1.Job, 0, len(jobs))
	for len(jobs) > 0 {
		n, j, p := runLength(jobs, fold), jobs[0], take(&s.jobs)
		jobs, list = jobs[n:], append(list, p)
		s.brief(p, j)
		p.Also = int32(n - 1)
		r := take(&s.requests)
		from := &j.Spec.Request
		r.Nodes, r.GpusPerNode, r.Gpus, r.GpuTypes = from.Nodes, from.GPUsPerNode, from.GPUs, from.GPUTypes
		r.TasksPerNode, r.CpusPerTask = from.TasksPerNode, from.CPUsPerTask
		p.Request = r
		if j.Alloc == nil {
			continue
		}
		p.Nodes = make([]*greylagv1.NodeAllocation, len(j.Alloc.Nodes))
		names := make([]greylagv1.NodeAllocation, len(j.Alloc.Nodes))
		for k := range j.Alloc.Nodes {
			names[k].Node = j.Alloc.Nodes[k].Node
			p.Nodes[k] = &names[k]
		}
	}
	return list
}

// slabs allocates many messages at once.
type slabs struct {
	jobs     []greylagv1.Job
	requests []greylagv1.Request
	times    []timestamppb.Timestamp
	limits   []durationpb.Duration
}

func newSlabs(n int) *slabs {
	return &slabs{
		jobs:     make([]greylagv1.Job, n),
		requests: make([]greylagv1.Request, n),
		times:    make([]timestamppb.Timestamp, n+n/2),
		limits:   make([]durationpb.Duration, n),
	}
}

// take consumes one message of a slab.
func take[T any](slab *[]T) *T {
	if len(*slab) == 0 {
		*slab = make([]T, 16)
	}
	p := &(*slab)[0]
	*slab = (*slab)[1:]
	return p
}

func (s *slabs) time(i cluster.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	p := take(&s.times)
	p.Seconds, p.Nanos = int64(i)/int64(time.Second), int32(int64(i)%int64(time.Second))
	return p
}

func (s *slabs) brief(p *greylagv1.Job, j *cluster.Job) {
	spec := j.Spec
	p.Id = uint64(j.ID)
	if j.Array != 0 {
		p.ArrayId, p.ArrayIndex, p.ArrayLimit = uint64(j.Array), j.Index, spec.ArrayLimit
	}
	p.Ref = j.Ref().String()
	p.Name, p.User, p.Account, p.Partition, p.Qos = spec.Name, spec.Owner.User, spec.Account, j.PartitionList(), spec.QOS
	p.State, p.Reason, p.Promised = greylagv1.JobState(j.State), greylagv1.Reason(j.Reason+1), j.Promise != nil
	p.Submitted, p.Planned, p.Started, p.Ended = s.time(j.Submitted), s.time(j.Planned), s.time(j.Started), s.time(j.Ended)
	limit := take(&s.limits)
	limit.Seconds, limit.Nanos = int64(spec.TimeLimit/time.Second), int32(spec.TimeLimit%time.Second)
	p.TimeLimit = limit
}
