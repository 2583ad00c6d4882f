package wire

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of a node's report.
const (
	maxGPUs  = 256
	maxTasks = 100_000
	maxText  = 4096
	maxRanMs = 1 << 43 // fits a time.Duration
	maxHeld  = 1 << 50 // of one GPU's memory
)

// ReadRegistration reads a node's description of itself. Its name and address come from the
// connection. The errors are refusals.
func ReadRegistration(p *greylagv1.RegisterNodeRequest, name, address string) (*command.RegisterNode, error) {
	gpus, err := ReadGPUs(p.GetGpus())
	if err != nil {
		return nil, err
	}
	switch {
	case p.GetBootId() == "" || len(p.GetBootId()) > maxText:
		return nil, refuse("the boot ID of the node is empty or too long")
	case p.GetCpus() < 1 || p.GetCpus() > 1<<16:
		return nil, refuse("the node has %d CPUs: want 1 to %d", p.GetCpus(), 1<<16)
	case p.GetMemory() < 0 || p.GetMemory() > 1<<50:
		return nil, refuse("the node has %d bytes of memory: want 0 to %d", p.GetMemory(), int64(1)<<50)
	case p.GetTasks() < 0:
		return nil, refuse("the node has %d tasks: want 0 or more", p.GetTasks())
	case len(p.GetRegion()) > 255:
		return nil, refuse("the name of the node's region is longer than 255 bytes")
	case len(p.GetFeatures()) > 256:
		return nil, refuse("the node has %d features: at most 256", len(p.GetFeatures()))
	}
	gres := readGres(p.GetGres())
	if why := cluster.GresFault(gres); why != "" {
		return nil, refuse("node %s: %s", name, why)
	}
	conditions := readConditions(p.GetHealth())
	return &command.RegisterNode{Checked: conditions != nil, Instance: short(p.GetInstance()), Node: cluster.Node{
		Name: name, Address: address, BootID: p.GetBootId(), CPUs: p.GetCpus(), Memory: cluster.Bytes(p.GetMemory()),
		GPUs: gpus, Features: p.GetFeatures(), Version: short(p.GetVersion()), Runtime: short(p.GetRuntime()), Fault: short(p.GetFault()),
		Region: p.GetRegion(), Gres: gres, Orphans: p.GetTasks(), Conditions: conditions,
	}}, nil
}

// short truncates a node's free text for tables and logs.
func short(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// ReadGPUs reads a node's devices; nil if none are given. The errors are refusals.
func ReadGPUs(list []*greylagv1.GPU) ([]cluster.GPU, error) {
	if len(list) > maxGPUs {
		return nil, refuse("the node has %d GPUs: at most %d", len(list), maxGPUs)
	}
	var all []cluster.GPU
	for i, p := range list {
		if int(p.GetIndex()) != i {
			return nil, refuse("GPU %d comes at place %d: want them in the order of their indices", p.GetIndex(), i)
		}
		if p.GetMemory() < 0 || p.GetMemory() > 1<<50 {
			return nil, refuse("GPU %d has %d bytes of memory", i, p.GetMemory())
		}
		all = append(all, cluster.GPU{
			Index: p.GetIndex(), UUID: short(p.GetUuid()), Type: short(p.GetType()), Memory: cluster.Bytes(p.GetMemory()),
			Minor: p.GetMinor(), NUMA: p.GetNuma(), Domain: short(p.GetDomain()), Fault: short(p.GetFault()),
			Degraded: short(p.GetDegraded()), Repair: cluster.Repair(max(0, min(p.GetRepair(), 255))),
			ParentType: short(p.GetParentType()), Share: max(0, min(p.GetShare(), cluster.MIGShares)),
		})
	}
	return all, nil
}

// WriteGPUs is the reverse of ReadGPUs.
func WriteGPUs(list []cluster.GPU) []*greylagv1.GPU {
	var all []*greylagv1.GPU
	for _, g := range list {
		all = append(all, &greylagv1.GPU{
			Index: g.Index, Uuid: g.UUID, Type: g.Type, Memory: int64(g.Memory),
			Minor: g.Minor, Numa: g.NUMA, Domain: g.Domain, Fault: g.Fault,
			Degraded: g.Degraded, Repair: greylagv1.Repair(g.Repair), ParentType: g.ParentType, Share: g.Share,
		})
	}
	return all
}

// readConditions reads the conditions of a node; nil if it has not checked itself yet. It drops invalid
// ones.
func readConditions(p *greylagv1.NodeHealth) []cluster.Condition {
	if p == nil {
		return nil
	}
	list := []cluster.Condition{}
	for _, c := range p.GetConditions() {
		list = append(list, cluster.Condition{
			Cause: short(c.GetCause()), Effect: cluster.Effect(max(0, min(c.GetEffect(), 255))), Repair: cluster.Repair(max(0, min(c.GetRepair(), 255))),
			Message: short(c.GetMessage()), Job: cluster.JobID(c.GetJob()),
		})
	}
	return cluster.SortConditions(list)
}

// WriteConditions is the reverse of readConditions.
func WriteConditions(list []cluster.Condition) []*greylagv1.Condition {
	var all []*greylagv1.Condition
	for _, c := range list {
		all = append(all, &greylagv1.Condition{
			Cause: c.Cause, Effect: greylagv1.ConditionEffect(c.Effect), Repair: greylagv1.Repair(c.Repair), Message: c.Message, Job: uint64(c.Job),
		})
	}
	return all
}

// ReadReport reads a node's report of its tasks. The errors are refusals.
func ReadReport(p *greylagv1.ReportTasksRequest, node string) (*command.ReportTasks, error) {
	if len(p.GetTasks()) > maxTasks {
		return nil, refuse("%d tasks are reported: at most %d", len(p.GetTasks()), maxTasks)
	}
	gpus, err := ReadGPUs(p.GetGpus())
	if err != nil {
		return nil, err
	}
	r := &command.ReportTasks{Node: node, Epoch: p.GetEpoch(), Seen: p.GetSeen(), Fault: short(p.GetFault()), GPUs: gpus, Conditions: readConditions(p.GetHealth())}
	if r.Reclaim, err = instant("reclaim", p.GetReclaimAt()); err != nil {
		return nil, err
	}
	for _, t := range p.GetTasks() {
		task, err := readTask(t, node)
		if err != nil {
			return nil, err
		}
		report := command.TaskReport{Job: cluster.JobID(t.GetJob()), Attempt: cluster.Attempt(t.GetAttempt()), Task: task, Granted: t.GetGranted(), Stuck: t.GetStuck()}
		if task.Phase >= cluster.TaskEnded {
			report.Ran = time.Duration(min(max(0, t.GetRanMs()), maxRanMs)) * time.Millisecond
		}
		if report.Steps, err = readSteps(t.GetSteps()); err != nil {
			return nil, err
		}
		r.Tasks = append(r.Tasks, report)
	}
	return r, nil
}

func readTask(p *greylagv1.ReportedTask, node string) (cluster.Task, error) {
	t := cluster.Task{
		Node: node, Exit: cluster.Exit{Code: p.GetExitCode(), Signal: p.GetExitSignal()},
		Message: short(p.GetMessage()), Memory: max(0, cluster.Bytes(p.GetMemoryPeak())),
	}
	if p.GetPhase() == 0 {
		return t, Unset("tasks.phase", p.GetPhase())
	}
	t.Phase, t.Cause = cluster.TaskPhase(p.GetPhase()-1), cluster.TaskCause(p.GetCause())
	var errs [4]error
	t.Started, errs[0] = instant("start", p.GetStarted())
	t.Ended, errs[1] = instant("end", p.GetEnded())
	t.CPUTime, errs[2] = duration("CPU time", p.GetCpuTime())
	t.User, errs[3] = duration("user time", p.GetUserTime())
	t.User = min(t.User, t.CPUTime)
	if t.Phase == cluster.TaskStarted {
		t.Inactive, t.IdleGPUs = uint8(min(p.GetInactive(), cluster.InactiveForLimit)), min(max(0, p.GetIdleGpus()), maxGPUs)
		t.Output = uint8(min(p.GetOutput(), cluster.MaxOutputLevel))
	}
	switch {
	case t.Phase != cluster.TaskClean:
	case p.GetCopyFailed():
		t.Copied = cluster.CopyFailed
	case p.GetCopied():
		t.Copied = cluster.Copied
	}
	for _, err := range errs {
		if err != nil {
			return t, err
		}
	}
	t.GPU = cluster.GPUUse{
		BusyMs: p.GetGpuBusyMs(), KnownMs: p.GetGpuKnownMs(),
		MemoryPeak: cluster.Bytes(p.GetGpuMemoryPeakBytes()), MemoryKnown: p.GpuMemoryPeakBytes != nil,
	}.Within(maxGPUs*maxRanMs, maxHeld)
	return t, nil
}

// WriteNode writes a node with its allocations and its partitions. Since is the time from which it
// accepts no new work: of its drain or fault while it answers, else of its silence. Its failures are those within
// FailureWindow at now.
func WriteNode(n *cluster.Node, use cluster.NodeUse, partitions []string, now cluster.Instant) *greylagv1.Node {
	p := &greylagv1.Node{
		Name: n.Name, State: Enum[greylagv1.NodeState](n.State(use).String()), Address: n.Address, Cpus: n.CPUs, Memory: int64(n.Memory),
		Gpus: WriteGPUs(n.GPUs), Features: n.Features, Region: n.Region, Version: n.Version, Runtime: n.Runtime,
		Drain: n.Drain, Reason: n.DrainWhy, ReasonBy: n.DrainBy, ReasonSince: Timestamp(n.DrainSince), Fault: n.Fault,
		Jobs: use.Jobs, CpusUsed: use.CPUs, MemoryUsed: int64(use.Memory), Partitions: partitions,
		Registered: Timestamp(n.Registered), Since: Timestamp(n.Since), Epoch: n.Epoch,
		Gres: WriteGres(n.Gres), GresUsed: WriteGres(use.Gres),
		Conditions: WriteConditions(n.Conditions), DrainCause: n.DrainCause, DrainSuppressed: len(n.Undrained()) > 0, Repair: greylagv1.Repair(n.Repair()),
	}
	for _, f := range n.FailuresAt(now) {
		p.Failures = append(p.Failures, &greylagv1.NodeFailure{Time: Timestamp(f.At), Cause: f.Cause})
	}
	if f := &n.Fence; f.Since > 0 {
		p.Fence = &greylagv1.NodeFence{
			Since: Timestamp(f.Since), Jobs: uint32(len(f.Jobs)), Tries: f.Tries, Tried: Timestamp(f.Tried), Failure: f.Failure, Next: Timestamp(f.Due()),
		}
	}
	if r := &n.Reboot; r.When != cluster.NoReboot {
		p.Reboot = &greylagv1.NodeReboot{
			WhenIdle: r.When == cluster.RebootWhenIdle, By: r.By, Reason: r.Why, Since: Timestamp(r.Since), Issued: n.RebootDue(use), StayDrained: r.StayDrained,
		}
	}
	p.FaultSince = Timestamp(n.FaultSince)
	switch {
	case n.Liveness != cluster.Alive:
	case n.Drain:
		p.Since = p.ReasonSince
	case n.Fault != "":
		p.Since = p.FaultSince
	}
	for i, used := range use.GPUs {
		if used {
			p.GpusUsed = append(p.GpusUsed, int32(i))
		}
	}
	for _, g := range use.Shared {
		p.SharedGpus = append(p.SharedGpus, &greylagv1.SharedGPU{Index: g.GPU, Jobs: g.Jobs, MaxJobs: g.By.GPUShare.Jobs, Mps: g.By.MPS})
	}
	return p
}

// ranIn returns the partition of a job that has an allocation.
func ranIn(j *cluster.Job) string {
	if j.Partition == "" { // it was started by an earlier version
		return j.Spec.Partition
	}
	return j.Partition
}

// WriteWanted writes a job's task for the node of that rank; span is that of the
// job's array.
func WriteWanted(j *cluster.Job, rank int, span command.IndexRange, killWait time.Duration, signals []*greylagv1.Signal) *greylagv1.WantedTask {
	spec := j.Spec
	w := &greylagv1.WantedTask{
		Job: uint64(j.ID), Attempt: uint32(j.Attempt), Granted: j.GrantOf(rank), Ref: j.Ref().String(), ArrayIndex: j.Index,
		Stop: Stops(j, rank), KillWait: durationpb.New(killWait), Signals: signals,
		TimeLimit: durationpb.New(spec.TimeLimit),
		User:      spec.Owner.User, Uid: spec.Owner.UID, Gid: spec.Owner.GID,
		Name: spec.Name, Account: spec.Account, Partition: ranIn(j), Qos: spec.QOS,
		Args: spec.Args, WorkDir: spec.WorkDir, Input: spec.Input, Output: spec.Output, Error: spec.Error,
		Append: spec.Append || joinsLate(j, rank), Image: spec.Image, Nodes: writeAllocation(j.Alloc), Rank: int32(rank),
		TasksPerNode: spec.Request.TasksPerNode, CpusPerTask: spec.Request.CPUsPerTask, Restarts: j.Restarts,
		GpusPerNode: spec.Request.GPUsPerNode, MemPerCpu: int64(spec.Request.MemPerCPU), MemPerGpu: int64(spec.Request.MemPerGPU),
		SubmitHost: spec.SubmitHost, Started: Timestamp(j.Started), Idle: rank > 0 && !spec.EveryNode,
		StopReason: Enum[greylagv1.StopReason](stopReason(j, rank)), Steps: writeWantedSteps(j, rank), Secrets: len(spec.Secrets) > 0,
		Tmp:    cluster.CountGres(spec.Request.Gres, &cluster.Gres{Name: cluster.GresTmp}) * int64(cluster.MiB),
		Mounts: writeMounts(spec.Mounts), Resume: writeResumePoint(j, rank), Waits: Waits(j, rank), CheckpointDir: spec.CheckpointDir,
		CheckpointSignal: writeCheckpointSignal(spec), CheckpointBase: Timestamp(SignalBase(j)), Elastic: writeElasticTask(j, rank),
		GpuShare: spec.Request.Share.Jobs, Mps: spec.Request.Share.MPS, StageIn: WriteStaging(spec.StageIn),
	}
	if rank == 0 {
		w.StageOut, w.CopyOut = WriteStaging(spec.StageOut), j.CopiesOut()
	}
	if j.Array != 0 {
		w.ArrayId, w.ArraySize = uint64(j.Array), spec.ArraySize
		w.ArrayFirst, w.ArrayLast, w.ArrayStep = span.First, span.Last, span.Step
	}
	if !spec.Script.IsZero() {
		w.Script = spec.Script[:]
	}
	if !spec.Environment.IsZero() {
		w.Environment = spec.Environment[:]
	}
	return w
}

// Stops reports whether the node of a rank ends the tasks of a job.
func Stops(j *cluster.Job, rank int) bool {
	return j.State == cluster.Completing || !j.State.HasAllocation() || j.Members != nil && j.Members.List[rank].Stops
}

// stopReason returns the cause of the stop of a job's tasks, in the words that Slurm writes to the
// output; empty if the job ended by itself.
func stopReason(j *cluster.Job, rank int) string {
	switch {
	case j.Leaving(rank) && j.State != cluster.Completing:
		return "RESIZE"
	case j.State != cluster.Completing && j.State != cluster.Cancelled:
		return ""
	case j.Outcome == cluster.TimedOut && j.Reason == cluster.ReasonCredits:
		return "CREDITS"
	case j.Outcome == cluster.TimedOut && j.Reason == cluster.ReasonInactiveLimit:
		return "INACTIVE LIMIT"
	case j.Outcome == cluster.TimedOut:
		return "TIME LIMIT"
	case j.Outcome == cluster.DeadlineMissed:
		return "DEADLINE"
	case j.Outcome == cluster.Preempted:
		return "PREEMPTION"
	case j.Outcome == cluster.NodeFailed:
		return "NODE FAILURE"
	case j.Outcome == cluster.Cancelled && j.Returns:
		return "JOB REQUEUE"
	case j.Outcome == cluster.Cancelled:
		return "cancelled"
	}
	return ""
}
