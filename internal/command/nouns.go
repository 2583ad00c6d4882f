package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// JobFields codes a job except its Spec, for records that keep the
// specification apart. They are for the log, snapshots and the archive.
func JobFields(c *codec.Coder, x *cluster.Job) {
	fieldsBeforePlacement(c, x)
	codec.Optional(c, &x.Alloc, AllocationFields)
	tasks(c, &x.Tasks)
	fieldsAfterPlacement(c, x)
	steps(c, &x.Steps)
}

// JobFieldsWithoutPlacement are those of JobFields except the allocation and its tasks, for digests.
func JobFieldsWithoutPlacement(c *codec.Coder, x *cluster.Job) {
	fieldsBeforePlacement(c, x)
	fieldsAfterPlacement(c, x)
}

func fieldsBeforePlacement(c *codec.Coder, x *cluster.Job) {
	codec.Uint(c, &x.ID)
	codec.Uint(c, &x.Array)
	codec.Int(c, &x.Index)
	codec.Uint(c, &x.State)
	codec.Uint(c, &x.Outcome)
	codec.Uint(c, &x.Reason)
	codec.String(c, &x.Detail)
	codec.Uint(c, &x.Hold)
	codec.Uint(c, &x.Attempt)
	codec.Int(c, &x.Submitted)
	codec.Int(c, &x.Eligible)
	codec.Int(c, &x.Planned)
	codec.Int(c, &x.Started)
	codec.Int(c, &x.Ended)
}

func fieldsAfterPlacement(c *codec.Coder, x *cluster.Job) {
	exitFields(c, &x.Exit)
	codec.Int(c, &x.Restarts)
	codec.String(c, &x.Requester)
	codec.Bool(c, &x.Returns)
	codec.Bool(c, &x.Warned)
	codec.Uint(c, &x.Granted)
	codec.Uint(c, &x.Version)
	codec.Optional(c, &x.Promise, promiseFields)
	codec.List(c, &x.History, note)
	codec.Int(c, &x.Charged)
	codec.String(c, &x.Partition)
	codec.List(c, &x.TRES, amount)
	codec.List(c, &x.Attempts, attemptRecord)
	codec.String(c, &x.Canceller)
	codec.Int(c, &x.Causes.NodeFailed)
	codec.Int(c, &x.Causes.TaskFailed)
	codec.Int(c, &x.Causes.Preempted)
	codec.Int(c, &x.Causes.Requeued)
	codec.Int(c, &x.Failures)
	codec.String(c, &x.AdminComment)
	codec.Int(c, &x.Causes.Retried)
	checkpoints(c, &x.Checkpoints)
	codec.Uint(c, &x.Resume)
	codec.Int(c, &x.Retries)
	codec.Optional(c, &x.Preempting, preemptingFields)
	codec.Int(c, &x.Asked)
	codec.Int(c, &x.WriteTime)
	codec.Int(c, &x.Causes.TimedOut)
	codec.List(c, &x.Avoided, avoided)
	codec.Optional(c, &x.Activity, activityFields)
	codec.Bool(c, &x.Preempts)
	codec.Int(c, &x.PreemptsFrom)
	codec.Optional(c, &x.Members, membersFields)
	codec.List(c, &x.Unfenced, codec.String)
	codec.Int(c, &x.Causes.Damaged)
	codec.Int(c, &x.Causes.Reclaimed)
}

func activityFields(c *codec.Coder, x *cluster.Activity) {
	codec.Uint(c, &x.Warns)
	codec.Int(c, &x.WarnsFrom)
	codec.Uint(c, &x.Noticed)
	codec.Int(c, &x.NoticedAt)
	codec.Record(c, &x.Idle, idleFields)
	codec.Int(c, &x.Output)
}

func idleFields(c *codec.Coder, x *cluster.IdleGPUs) {
	codec.Int(c, &x.GPUs)
	codec.Int(c, &x.At)
	codec.Int(c, &x.Ms)
	codec.Int(c, &x.Price)
}

func membersFields(c *codec.Coder, x *cluster.Members) {
	codec.Uint(c, &x.Epoch)
	codec.Uint(c, &x.Version)
	codec.Int(c, &x.Resized)
	codec.Uint(c, &x.Resizes)
	codec.Int(c, &x.Left.CPUTime)
	codec.Int(c, &x.Left.User)
	gpuUse(c, &x.Left.GPU)
	heldTime(c, &x.Left.Held)
	codec.List(c, &x.List, member)
	codec.String(c, &x.Start)
	codec.List(c, &x.Changes, memberChange)
}

func memberChange(c *codec.Coder, x *cluster.MemberChange) { codec.Record(c, x, memberChangeFields) }

func memberChangeFields(c *codec.Coder, x *cluster.MemberChange) {
	codec.Int(c, &x.At)
	codec.String(c, &x.Nodes)
	codec.Bool(c, &x.Joins)
	codec.String(c, &x.Why)
}

func member(c *codec.Coder, x *cluster.Member) { codec.Record(c, x, memberFields) }

func memberFields(c *codec.Coder, x *cluster.Member) {
	codec.Int(c, &x.Number)
	codec.Uint(c, &x.Granted)
	codec.Int(c, &x.Joined)
	codec.Uint(c, &x.Since)
	codec.Uint(c, &x.SignalsAfter)
	codec.Int(c, &x.Leaves)
	codec.Bool(c, &x.Stops)
	codec.String(c, &x.Why)
}

func avoided(c *codec.Coder, x *cluster.Avoided) { codec.Record(c, x, avoidedFields) }

func avoidedFields(c *codec.Coder, x *cluster.Avoided) {
	codec.String(c, &x.Node)
	codec.Int(c, &x.Until)
	codec.Uint(c, &x.Attempt)
}

func preemptingFields(c *codec.Coder, x *cluster.Preempting) {
	codec.Uint(c, &x.By)
	codec.Int(c, &x.At)
	codec.String(c, &x.Ref)
	codec.String(c, &x.User)
	codec.String(c, &x.QOS)
	codec.Int(c, &x.GPUs)
}

func note(c *codec.Coder, x *cluster.Note) { codec.Record(c, x, noteFields) }

func noteFields(c *codec.Coder, x *cluster.Note) {
	codec.Uint(c, &x.Index)
	codec.Int(c, &x.At)
	codec.Uint(c, &x.Reason)
	codec.Int(c, &x.Planned)
	codec.Bool(c, &x.Promised)
	codec.String(c, &x.Broken)
}

// SpecFields are those of what a user submitted.
func SpecFields(c *codec.Coder, x *cluster.JobSpec) {
	codec.String(c, &x.Name)
	identityFields(c, &x.Owner)
	codec.String(c, &x.Account)
	codec.String(c, &x.Partition)
	codec.String(c, &x.QOS)
	codec.Record(c, &x.Request, requestFields)
	codec.Int(c, &x.TimeLimit)
	codec.Fixed(c, x.Script[:])
	codec.Fixed(c, x.Environment[:])
	codec.List(c, &x.Args, codec.String)
	codec.String(c, &x.WorkDir)
	codec.String(c, &x.Input)
	codec.String(c, &x.Output)
	codec.String(c, &x.Error)
	codec.Bool(c, &x.Append)
	codec.String(c, &x.Image)
	codec.String(c, &x.ImageDigest)
	codec.Bool(c, &x.Requeue)
	codec.Int(c, &x.Nice)
	codec.Int(c, &x.Begin)
	codec.Int(c, &x.Deadline)
	codec.List(c, &x.Depends, dependencyFields)
	codec.Int(c, &x.ArrayLimit)
	codec.Int(c, &x.ArraySize)
	codec.String(c, &x.Comment)
	codec.String(c, &x.SubmitHost)
	codec.Int(c, &x.Signal.Number)
	codec.Int(c, &x.Signal.Before)
	codec.Bool(c, &x.Signal.BatchOnly)
	codec.Bool(c, &x.EveryNode)
	codec.List(c, &x.OtherPartitions, codec.String)
	codec.String(c, &x.Reservation)
	codec.Bool(c, &x.QOSByOperator)
	codec.String(c, &x.Command)
	codec.String(c, &x.WCKey)
	codec.Uint(c, &x.MailTypes)
	codec.String(c, &x.MailUser)
	codec.List(c, &x.Secrets, codec.String)
	codec.List(c, &x.Mounts, mountFields)
	codec.String(c, &x.CheckpointDir)
	codec.Bool(c, &x.FromScratch)
	codec.Record(c, &x.Retry, retryFields)
	codec.Int(c, &x.CheckpointSignal.Number)
	codec.Int(c, &x.CheckpointSignal.Before)
	codec.Bool(c, &x.CheckpointSignal.BatchOnly)
	codec.Int(c, &x.CheckpointEvery)
	codec.Bool(c, &x.RequeueAtLimit)
	codec.Int(c, &x.Elastic.Step)
	codec.Int(c, &x.Elastic.Signal)
	codec.Bool(c, &x.Elastic.BatchOnly)
	codec.Record(c, &x.Burst, burstFields)
	codec.List(c, &x.StageIn, stagingFields)
	codec.List(c, &x.StageOut, stagingFields)
}

func retryFields(c *codec.Coder, x *cluster.Retry) {
	codec.Int(c, &x.Limit)
	codec.Bool(c, &x.AnyExit)
	codec.List(c, &x.ExitStatuses, codec.Int[int32])
	codec.Bool(c, &x.OutOfMemory)
}

func mountFields(c *codec.Coder, x *cluster.Mount) {
	codec.String(c, &x.Source)
	codec.String(c, &x.Target)
	codec.Bool(c, &x.ReadOnly)
}

func requestFields(c *codec.Coder, x *cluster.Request) {
	codec.Int(c, &x.Nodes)
	codec.Int(c, &x.GPUsPerNode)
	codec.Int(c, &x.GPUs)
	codec.List(c, &x.GPUTypes, codec.String)
	codec.Int(c, &x.TasksPerNode)
	codec.Int(c, &x.CPUsPerTask)
	codec.Int(c, &x.MemPerNode)
	codec.Int(c, &x.MemPerCPU)
	codec.Int(c, &x.MemPerGPU)
	codec.List(c, &x.Features, codec.String)
	codec.List(c, &x.NodeList, codec.String)
	codec.List(c, &x.Exclude, codec.String)
	codec.Bool(c, &x.Exclusive)
	codec.Int(c, &x.GPUMemory)
	codec.Uint(c, &x.Connect)
	codec.Int(c, &x.Switches)
	codec.Int(c, &x.SwitchWait)
	codec.List(c, &x.Licences, licenceFields)
	codec.Int(c, &x.MaxPrice)
	codec.List(c, &x.Regions, codec.String)
	codec.Uint(c, &x.MemFrom)
	codec.Int(c, &x.MaxNodes)
	codec.Int(c, &x.Tasks)
	codec.List(c, &x.Gres, gresFields)
	codec.Int(c, &x.Share.Jobs)
	codec.Bool(c, &x.Share.MPS)
}

// The following have no length of their own and can therefore never grow.

func identityFields(c *codec.Coder, x *cluster.Identity) {
	codec.String(c, &x.User)
	codec.Uint(c, &x.UID)
	codec.Uint(c, &x.GID)
}

func refFields(c *codec.Coder, x *cluster.JobRef) {
	codec.Uint(c, &x.ID)
	codec.Int(c, &x.Index)
}

func dependencyFields(c *codec.Coder, x *cluster.Dependency) {
	codec.Uint(c, &x.Kind)
	refFields(c, &x.Job)
	codec.Int(c, &x.Delay)
	codec.Bool(c, &x.Any)
}

func gresFields(c *codec.Coder, x *cluster.Gres) {
	codec.String(c, &x.Name)
	codec.String(c, &x.Type)
	codec.Int(c, &x.Count)
}

func exitFields(c *codec.Coder, x *cluster.Exit) {
	codec.Int(c, &x.Code)
	codec.Int(c, &x.Signal)
}

// AllocationFields are those of an allocation.
func AllocationFields(c *codec.Coder, x *cluster.Allocation) {
	codec.List(c, &x.Nodes, nodeAllocation)
}

func nodeAllocation(c *codec.Coder, x *cluster.NodeAllocation) {
	codec.Record(c, x, nodeAllocationFields)
}

func nodeAllocationFields(c *codec.Coder, x *cluster.NodeAllocation) {
	codec.String(c, &x.Node)
	codec.List(c, &x.GPUs, codec.Int[int32])
	codec.Int(c, &x.CPUs)
	codec.Int(c, &x.Memory)
}

// tasks codes the tasks of a job. O(tasks).
func tasks(c *codec.Coder, x **cluster.Tasks) {
	list := (*x).List()
	codec.List(c, &list, task)
	if c.Reading() {
		*x = cluster.NewTasks(list...)
	}
}

func task(c *codec.Coder, x *cluster.Task) { codec.Record(c, x, TaskFields) }

// TaskFields are those of a task.
func TaskFields(c *codec.Coder, x *cluster.Task) {
	codec.String(c, &x.Node)
	codec.Uint(c, &x.Phase)
	codec.Uint(c, &x.Cause)
	exitFields(c, &x.Exit)
	codec.String(c, &x.Message)
	codec.Int(c, &x.Started)
	codec.Int(c, &x.Ended)
	codec.Int(c, &x.Memory)
	codec.Int(c, &x.CPUTime)
	gpuUse(c, &x.GPU)
	codec.Int(c, &x.Ran)
	codec.Int(c, &x.User)
	codec.Uint(c, &x.Inactive)
	codec.Int(c, &x.IdleGPUs)
	codec.Uint(c, &x.Output)
	codec.Uint(c, &x.Copied)
}

func gpuUse(c *codec.Coder, x *cluster.GPUUse) { codec.Record(c, x, gpuUseFields) }

func gpuUseFields(c *codec.Coder, x *cluster.GPUUse) {
	codec.Int(c, &x.BusyMs)
	codec.Int(c, &x.KnownMs)
	codec.Int(c, &x.MemoryPeak)
	codec.Bool(c, &x.MemoryKnown)
}

// NodeFields are those of a node.
func NodeFields(c *codec.Coder, x *cluster.Node) {
	codec.String(c, &x.Name)
	codec.String(c, &x.Address)
	codec.String(c, &x.BootID)
	codec.Uint(c, &x.Epoch)
	codec.Int(c, &x.CPUs)
	codec.Int(c, &x.Memory)
	codec.List(c, &x.GPUs, gpu)
	codec.List(c, &x.Features, codec.String)
	codec.String(c, &x.Version)
	codec.String(c, &x.Runtime)
	codec.Uint(c, &x.Liveness)
	codec.Int(c, &x.Since)
	codec.Bool(c, &x.Drain)
	codec.String(c, &x.DrainWhy)
	codec.String(c, &x.DrainBy)
	codec.Int(c, &x.DrainSince)
	codec.String(c, &x.Fault)
	codec.Int(c, &x.Orphans)
	codec.Int(c, &x.Registered)
	codec.Uint(c, &x.Changed)
	codec.String(c, &x.Region)
	codec.List(c, &x.Gres, gresFields)
	codec.List(c, &x.Conditions, condition)
	codec.String(c, &x.DrainCause)
	codec.List(c, &x.Drains, selfDrain)
	codec.Record(c, &x.Reboot, rebootFields)
	codec.Record(c, &x.Fence, fenceFields)
	codec.Int(c, &x.Joined)
	codec.List(c, &x.Failures, nodeFailure)
	codec.Int(c, &x.FaultSince)
	codec.Uint(c, &x.Market)
	codec.Record(c, &x.Rental, rentalFields)
	codec.Int(c, &x.Reclaim)
}

func nodeFailure(c *codec.Coder, x *cluster.NodeFailure) { codec.Record(c, x, nodeFailureFields) }

func nodeFailureFields(c *codec.Coder, x *cluster.NodeFailure) {
	codec.Int(c, &x.At)
	codec.String(c, &x.Cause)
}

func condition(c *codec.Coder, x *cluster.Condition) { codec.Record(c, x, conditionFields) }

func conditionFields(c *codec.Coder, x *cluster.Condition) {
	codec.String(c, &x.Cause)
	codec.Uint(c, &x.Effect)
	codec.Uint(c, &x.Repair)
	codec.String(c, &x.Message)
	codec.Uint(c, &x.Job)
}

func rebootFields(c *codec.Coder, x *cluster.Reboot) {
	codec.Uint(c, &x.When)
	codec.String(c, &x.By)
	codec.String(c, &x.Why)
	codec.Int(c, &x.Since)
	codec.Bool(c, &x.Drained)
	codec.Bool(c, &x.StayDrained)
}

func fenceFields(c *codec.Coder, x *cluster.Fence) {
	codec.Int(c, &x.Since)
	codec.Uint(c, &x.Index)
	codec.List(c, &x.Jobs, codec.Uint)
	codec.Uint(c, &x.Tries)
	codec.Int(c, &x.Tried)
	codec.String(c, &x.Failure)
}

func selfDrain(c *codec.Coder, x *cluster.SelfDrain) { codec.Record(c, x, selfDrainFields) }

func selfDrainFields(c *codec.Coder, x *cluster.SelfDrain) {
	codec.Int(c, &x.At)
	codec.String(c, &x.Cause)
	codec.Uint(c, &x.Job)
	codec.Bool(c, &x.Ended)
	codec.Bool(c, &x.Excused)
}

func gpu(c *codec.Coder, x *cluster.GPU) { codec.Record(c, x, gpuFields) }

func gpuFields(c *codec.Coder, x *cluster.GPU) {
	codec.Int(c, &x.Index)
	codec.String(c, &x.UUID)
	codec.String(c, &x.Type)
	codec.Int(c, &x.Memory)
	codec.Int(c, &x.Minor)
	codec.Int(c, &x.NUMA)
	codec.String(c, &x.Domain)
	codec.String(c, &x.Fault)
	codec.String(c, &x.Degraded)
	codec.Uint(c, &x.Repair)
	codec.String(c, &x.ParentType)
	codec.Int(c, &x.Share)
}

// PolicyFields are those of the policy.
func PolicyFields(c *codec.Coder, x *cluster.Policy) {
	codec.Uint(c, &x.Version)
	codec.String(c, &x.Cluster)
	codec.List(c, &x.Admins, codec.String)
	codec.List(c, &x.Operators, codec.String)
	codec.List(c, &x.Partitions, partition)
	codec.List(c, &x.QOS, qos)
	codec.String(c, &x.DefaultQOS)
	codec.Int(c, &x.NodeTimeout)
	codec.Int(c, &x.RebootTimeout)
	codec.Bool(c, &x.Fencing)
	codec.Int(c, &x.KillWait)
	codec.Int(c, &x.MaxArray)
	codec.Int(c, &x.MaxJobs)
	codec.Int(c, &x.MaxRestarts)
	codec.Int(c, &x.PreemptExempt)
	codec.Int(c, &x.MaxPreemptions)
	codec.Int(c, &x.PreemptGrace)
	codec.Bool(c, &x.Private)
	codec.Record(c, &x.Scheduling, schedulingFields)
	codec.Bool(c, &x.RequireAccount)
	codec.Record(c, &x.Credits, creditPolicyFields)
	codec.Record(c, &x.Retry, retryFields)
	codec.List(c, &x.CheckpointStores, checkpointStore)
	codec.List(c, &x.StagingCredentials, stagingCredentials)
	codec.Int(c, &x.InactiveWarning)
	codec.Int(c, &x.InactiveLimit)
	codec.Int(c, &x.Elastic.MinTime)
	codec.Int(c, &x.Elastic.Grace)
	codec.Int(c, &x.Elastic.Interval)
	codec.Int(c, &x.OutputWarn)
	codec.Int(c, &x.MaxOutput)
	codec.Record(c, &x.Burst, burstPolicyFields)
}

func checkpointStore(c *codec.Coder, x *cluster.CheckpointStore) {
	codec.Record(c, x, checkpointStoreFields)
}

func checkpointStoreFields(c *codec.Coder, x *cluster.CheckpointStore) {
	codec.String(c, &x.Path)
	codec.Int(c, &x.Slots)
}

func stagingCredentials(c *codec.Coder, x *cluster.StagingCredentials) {
	codec.Record(c, x, stagingCredentialsFields)
}

func stagingCredentialsFields(c *codec.Coder, x *cluster.StagingCredentials) {
	codec.String(c, &x.Account)
	codec.String(c, &x.User)
	codec.String(c, &x.Secret)
}

func schedulingFields(c *codec.Coder, x *cluster.Scheduling) {
	codec.Int(c, &x.Depth)
	codec.Int(c, &x.Window)
	codec.Int(c, &x.PromiseHorizon)
	codec.Int(c, &x.Replan)
	codec.Record(c, &x.Weights, weightFields)
	codec.Bool(c, &x.FairShare.Classic)
	codec.Int(c, &x.FairShare.HalfLife)
	codec.List(c, &x.FairShare.Billing, billingFields)
	codec.List(c, &x.Reservations, reservation)
	codec.List(c, &x.Licences, licenceFields)
	codec.Int(c, &x.MaxSwitchWait)
	codec.Bool(c, &x.Packed)
}

func weightFields(c *codec.Coder, x *cluster.Weights) {
	codec.Int(c, &x.Age)
	codec.Int(c, &x.FairShare)
	codec.Int(c, &x.JobSize)
	codec.Int(c, &x.Partition)
	codec.Int(c, &x.QOS)
	codec.Int(c, &x.MaxAge)
}

func reservation(c *codec.Coder, x *cluster.Reservation) { codec.Record(c, x, reservationFields) }

func reservationFields(c *codec.Coder, x *cluster.Reservation) {
	codec.String(c, &x.Name)
	codec.Int(c, &x.Start)
	codec.Int(c, &x.End)
	codec.List(c, &x.Nodes, codec.String)
	codec.List(c, &x.Users, codec.String)
	codec.List(c, &x.Accounts, codec.String)
	codec.String(c, &x.Why)
}

func billingFields(c *codec.Coder, x *cluster.BillingWeight) {
	codec.String(c, &x.Resource)
	codec.Int(c, &x.Milli)
}

func licenceFields(c *codec.Coder, x *cluster.Licence) {
	codec.String(c, &x.Name)
	codec.Int(c, &x.Count)
}

func promiseFields(c *codec.Coder, x *cluster.Promise) {
	codec.Int(c, &x.At)
	codec.String(c, &x.Partition)
	codec.String(c, &x.Kind)
	codec.List(c, &x.Hosts, shareFields)
}

func shareFields(c *codec.Coder, x *cluster.NodeShare) {
	codec.String(c, &x.Node)
	codec.Int(c, &x.GPUs)
}

func partition(c *codec.Coder, x *cluster.Partition) { codec.Record(c, x, partitionFields) }

func partitionFields(c *codec.Coder, x *cluster.Partition) {
	codec.String(c, &x.Name)
	codec.List(c, &x.Nodes, codec.String)
	codec.Bool(c, &x.Default)
	codec.Bool(c, &x.Down)
	codec.Int(c, &x.MaxTime)
	codec.Int(c, &x.DefaultTime)
	codec.Int(c, &x.MaxNodes)
	codec.List(c, &x.AllowAccounts, codec.String)
	codec.Int(c, &x.Priority)
	codec.Int(c, &x.MemPerCPU)
	codec.Int(c, &x.MemPerGPU)
	codec.Int(c, &x.GPUShare)
	codec.Uint(c, &x.Burst)
}

func qos(c *codec.Coder, x *cluster.QOS) { codec.Record(c, x, qosFields) }

func qosFields(c *codec.Coder, x *cluster.QOS) {
	codec.String(c, &x.Name)
	codec.Int(c, &x.Tier)
	codec.Int(c, &x.Priority)
	codec.Int(c, &x.MaxTime)
	codec.Int(c, &x.UsageExtra)
	codec.List(c, &x.Limits, limitFields)
	codec.List(c, &x.Preempts, codec.String)
	codec.Uint(c, &x.PreemptMode)
	codec.Int(c, &x.PreemptExempt)
	codec.Int(c, &x.PreemptGrace)
	codec.Bool(c, &x.Open)
	codec.Int(c, &x.DefaultTime)
	codec.Int(c, &x.InactiveWarning)
	codec.Int(c, &x.InactiveLimit)
	codec.Int(c, &x.OutputWarn)
	codec.Int(c, &x.MaxOutput)
	codec.Uint(c, &x.Burst)
	codec.Int(c, &x.BurstValue)
	codec.Int(c, &x.BurstMaxWait)
	codec.Int(c, &x.MinOnDemand)
}
