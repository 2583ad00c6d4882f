package command

import (
	"time"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// The fields of each command. The package codec says how they may grow.

func initFields(c *codec.Coder, x *Init) {
	codec.String(c, &x.ClusterID)
	codec.Record(c, &x.Policy, PolicyFields)
}

func requestIDFields(c *codec.Coder, x *RequestID) {
	codec.Fixed(c, x.Key[:])
	codec.Fixed(c, x.Payload[:])
}

func actorFields(c *codec.Coder, x *Actor) {
	identityFields(c, &x.Identity)
	codec.Uint(c, &x.Role)
	codec.String(c, &x.Source)
}

func submitFields(c *codec.Coder, x *SubmitJobs) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Jobs, submission)
	codec.List(c, &x.Blobs, codec.Bytes)
	codec.String(c, &x.Filtered)
}

func submission(c *codec.Coder, x *Submission) { codec.Record(c, x, submissionFields) }

func submissionFields(c *codec.Coder, x *Submission) {
	codec.Record(c, &x.Spec, SpecFields)
	codec.List(c, &x.Array, RangeFields)
	codec.Bool(c, &x.Held)
	codec.Bool(c, &x.DefaultTime)
}

// RangeFields are those of an array's range of indices.
func RangeFields(c *codec.Coder, x *IndexRange) {
	codec.Int(c, &x.First)
	codec.Int(c, &x.Last)
	codec.Int(c, &x.Step)
}

func cancelFields(c *codec.Coder, x *CancelJobs) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Jobs, refFields)
	codec.Int(c, &x.Signal)
	codec.Bool(c, &x.BatchOnly)
}

func updateFields(c *codec.Coder, x *UpdateJobs) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Jobs, refFields)
	codec.Uint(c, &x.Action)
	codec.Optional(c, &x.TimeLimit, codec.Int[time.Duration])
	codec.Optional(c, &x.Partition, codec.String)
	codec.Optional(c, &x.QOS, codec.String)
	codec.Optional(c, &x.Name, codec.String)
	codec.Optional(c, &x.Nice, codec.Int[int32])
	codec.Optional(c, &x.Comment, codec.String)
	codec.Optional(c, &x.ArrayLimit, codec.Int[int32])
	codec.Optional(c, &x.Account, codec.String)
	codec.Optional(c, &x.Begin, codec.Int[cluster.Instant])
	codec.Optional(c, &x.Deadline, codec.Int[cluster.Instant])
	codec.Optional(c, &x.Depends, func(c *codec.Coder, list *[]cluster.Dependency) { codec.List(c, list, dependencyFields) })
	codec.Optional(c, &x.Reservation, codec.String)
	codec.Optional(c, &x.Nodes, codec.Int[int32])
	codec.Optional(c, &x.GPUsPerNode, codec.Int[int32])
	codec.Optional(c, &x.GPUs, codec.Int[int32])
	codec.Int(c, &x.TimeLimitBy)
	for _, memory := range [...]**cluster.Bytes{&x.MemPerNode, &x.MemPerCPU, &x.MemPerGPU} {
		codec.Optional(c, memory, codec.Int[cluster.Bytes])
	}
	for _, words := range [...]**[]string{&x.NodeList, &x.Features} {
		codec.Optional(c, words, func(c *codec.Coder, list *[]string) { codec.List(c, list, codec.String) })
	}
	codec.String(c, &x.AdminComment)
}

func registerFields(c *codec.Coder, x *RegisterNode) {
	codec.Record(c, &x.Node, NodeFields)
	codec.Int(c, &x.Issued)
	codec.Bool(c, &x.Checked)
	codec.String(c, &x.Instance)
}

func reportFields(c *codec.Coder, x *ReportTasks) {
	codec.String(c, &x.Node)
	codec.Uint(c, &x.Epoch)
	codec.Uint(c, &x.Seen)
	codec.List(c, &x.Tasks, taskReport)
	codec.String(c, &x.Fault)
	// No GPUs and unchanged GPUs differ.
	there := x.GPUs != nil
	codec.Bool(c, &there)
	codec.List(c, &x.GPUs, gpu)
	if c.Reading() && there && x.GPUs == nil {
		x.GPUs = []cluster.GPU{}
	}
	checked := x.Conditions != nil
	codec.Bool(c, &checked)
	codec.List(c, &x.Conditions, condition)
	if c.Reading() && checked && x.Conditions == nil {
		x.Conditions = []cluster.Condition{}
	}
	codec.Int(c, &x.Reclaim)
}

func taskReport(c *codec.Coder, x *TaskReport) { codec.Record(c, x, taskReportFields) }

func taskReportFields(c *codec.Coder, x *TaskReport) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Record(c, &x.Task, TaskFields)
	codec.Int(c, &x.Ran)
	codec.Uint(c, &x.Granted)
	codec.List(c, &x.Steps, stepReport)
	codec.Bool(c, &x.Stuck)
}

func restoredFields(c *codec.Coder, x *Restored) {
	codec.Int(c, &x.Taken)
	codec.Bool(c, &x.History)
}

func livenessFields(c *codec.Coder, x *SetLiveness) { codec.List(c, &x.Nodes, nodeLiveness) }

func fenceNodeFields(c *codec.Coder, x *FenceNode) {
	codec.String(c, &x.Node)
	codec.Int(c, &x.Since)
	codec.String(c, &x.Failure)
}

func nodeLiveness(c *codec.Coder, x *NodeLiveness) { codec.Record(c, x, nodeLivenessFields) }

func nodeLivenessFields(c *codec.Coder, x *NodeLiveness) {
	codec.String(c, &x.Node)
	codec.Uint(c, &x.Epoch)
	codec.Uint(c, &x.Liveness)
	codec.Bool(c, &x.RebootLate)
}

func updateNodesFields(c *codec.Coder, x *UpdateNodes) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Names, codec.String)
	codec.Uint(c, &x.Action)
	codec.String(c, &x.Reason)
	codec.Bool(c, &x.Force)
	codec.Bool(c, &x.StayDrained)
}

func planFields(c *codec.Coder, x *CommitPlan) {
	codec.Uint(c, &x.Plan.Index)
	codec.List(c, &x.Plan.Starts, plannedStart)
	codec.List(c, &x.Plan.Verdicts, verdict)
	codec.Uint(c, &x.Plan.Policy)
	codec.List(c, &x.Plan.Evictions, eviction)
	codec.List(c, &x.Plan.Reclaims, reclaim)
	codec.List(c, &x.Plan.Grants, nodeGrant)
	codec.List(c, &x.Plan.Launches, launch)
}

func reclaim(c *codec.Coder, x *cluster.Reclaim) { codec.Record(c, x, reclaimFields) }

func reclaimFields(c *codec.Coder, x *cluster.Reclaim) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Uint(c, &x.Epoch)
	codec.List(c, &x.Nodes, codec.String)
	codec.Uint(c, &x.For)
}

func nodeGrant(c *codec.Coder, x *cluster.NodeGrant) { codec.Record(c, x, nodeGrantFields) }

func nodeGrantFields(c *codec.Coder, x *cluster.NodeGrant) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Uint(c, &x.Epoch)
	codec.List(c, &x.Nodes, nodeAllocation)
}

func eviction(c *codec.Coder, x *cluster.Preemption) { codec.Record(c, x, evictionFields) }

func evictionFields(c *codec.Coder, x *cluster.Preemption) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Uint(c, &x.For)
}

func plannedStart(c *codec.Coder, x *cluster.PlannedStart) {
	codec.Record(c, x, plannedStartFields)
}

func plannedStartFields(c *codec.Coder, x *cluster.PlannedStart) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	AllocationFields(c, &x.Placement)
	codec.String(c, &x.Partition)
}

func verdict(c *codec.Coder, x *cluster.Verdict) { codec.Record(c, x, verdictFields) }

func verdictFields(c *codec.Coder, x *cluster.Verdict) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Reason)
	codec.String(c, &x.Detail)
	codec.Int(c, &x.Planned)
	codec.Optional(c, &x.Promise, promiseFields)
	codec.String(c, &x.Broken)
}

func tickFields(c *codec.Coder, x *Tick) {
	codec.Uint(c, &x.Form)
}

func applyFields(c *codec.Coder, x *ApplyPolicy) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Record(c, &x.Policy, PolicyFields)
	codec.Uint(c, &x.Expect)
}

func createTokenFields(c *codec.Coder, x *CreateToken) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Fixed(c, x.Hash[:])
	codec.Uint(c, &x.Kind)
	codec.Int(c, &x.Expires)
	codec.String(c, &x.Name)
	codec.Bool(c, &x.Replace)
	codec.Uint(c, &x.Uses)
}

func useTokenFields(c *codec.Coder, x *UseToken) {
	codec.Fixed(c, x.Hash[:])
	codec.Uint(c, &x.Kind)
	codec.String(c, &x.Name)
	codec.Record(c, &x.Certificate, CertificateFields)
	codec.String(c, &x.Instance)
}

func putBlobFields(c *codec.Coder, x *PutBlob) {
	codec.Fixed(c, x.Digest[:])
	codec.Int(c, &x.Size)
	codec.Int(c, &x.Offset)
	codec.Bytes(c, &x.Part)
}
