package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// CreditAction is what a change of credits does.
type CreditAction uint8

// The actions.
const (
	GrantCredits CreditAction = iota + 1
	VoidBucket                // void the rest of a bucket
	SetPrice                  // of a GPU type, from an instant on
	SetBudget                 // of an account or of a user in it
	RefundJob                 // refund a part of what an attempt was charged
	CorrectJob                // charge an attempt more
	ClosePeriod               // close a period
)

// String names the action as keys and the audit journal do; "" for an unknown one.
func (a CreditAction) String() string {
	names := [...]string{GrantCredits: "grant", VoidBucket: "void", SetPrice: "price", SetBudget: "budget", RefundJob: "refund", CorrectJob: "correct", ClosePeriod: "close"}
	if int(a) >= len(names) {
		return ""
	}
	return names[a]
}

// ChangeCredits is one change of credits by a person or their program. Which fields
// count depends on the action; Account with User "" is the account itself.
type ChangeCredits struct {
	Request   RequestID
	Actor     Actor
	Action    CreditAction
	Account   string
	User      string
	Amount    accounting.Credits // of the grant, price, refund, correction; the budget's limit
	Effective cluster.Instant    // 0: now. The end of a period, exclusive
	// Of a grant.
	Class    accounting.BucketClass
	Expires  cluster.Instant
	Priority int32
	Scope    accounting.BucketScope
	Cutoff   bool
	Code     string
	Redeems  int64 // lang:ok grants that a promotion code is good for
	// Of the rest.
	Bucket   accounting.BucketID
	GPUType  string
	Hard     bool
	Window   accounting.Window
	Job      cluster.JobID
	Attempt  cluster.Attempt // 0: the last one
	Corrects uint64
	Period   string
	Key      string // the change's own name, one in the cluster for each action; "" for none
	Note     string // why
}

// MeterJobs reports how long tasks have run, as their nodes count.
type MeterJobs struct {
	Samples []JobSample
}

// JobSample is what the nodes of one attempt agree on.
type JobSample struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Epoch   uint64 // of the counting: another one begins at 0
	Number  uint64 // within the epoch, from 1
	GPUms   int64  // GPU-milliseconds so far
	Segment uint32 // of the bill, from 0
}

// Credited answers ChangeCredits.
type Credited struct {
	accounting.Receipt
	Index uint64
	Seq   uint64          // of the newest journal entry
	Head  accounting.Hash // of that entry
}

func (*ChangeCredits) kind() kind { return kindChangeCredits }
func (*MeterJobs) kind() kind     { return kindMeterJobs }
func (*Credited) result()         {}

func changeCreditsFields(c *codec.Coder, x *ChangeCredits) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.Uint(c, &x.Action)
	codec.String(c, &x.Account)
	codec.String(c, &x.User)
	codec.Int(c, &x.Amount)
	codec.Int(c, &x.Effective)
	codec.Uint(c, &x.Class)
	codec.Int(c, &x.Expires)
	codec.Int(c, &x.Priority)
	codec.Record(c, &x.Scope, scopeFields)
	codec.Bool(c, &x.Cutoff)
	codec.String(c, &x.Code)
	codec.Int(c, &x.Redeems)
	codec.Uint(c, &x.Bucket)
	codec.String(c, &x.GPUType)
	codec.Bool(c, &x.Hard)
	codec.Uint(c, &x.Window)
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Uint(c, &x.Corrects)
	codec.String(c, &x.Period)
	codec.String(c, &x.Key)
	codec.String(c, &x.Note)
}

func scopeFields(c *codec.Coder, x *accounting.BucketScope) {
	codec.List(c, &x.GPUTypes, codec.String)
	codec.List(c, &x.Partitions, codec.String)
	codec.List(c, &x.QOS, codec.String)
	codec.Int(c, &x.Permille)
	codec.Int(c, &x.PerJob)
}

func meterJobsFields(c *codec.Coder, x *MeterJobs) { codec.List(c, &x.Samples, jobSample) }

func jobSample(c *codec.Coder, x *JobSample) { codec.Record(c, x, jobSampleFields) }

func jobSampleFields(c *codec.Coder, x *JobSample) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
	codec.Uint(c, &x.Epoch)
	codec.Uint(c, &x.Number)
	codec.Int(c, &x.GPUms)
	codec.Uint(c, &x.Segment)
}

func creditPolicyFields(c *codec.Coder, x *cluster.CreditPolicy) {
	codec.Bool(c, &x.On)
	codec.List(c, &x.Partitions, codec.String)
	codec.Int(c, &x.LienWindow)
	codec.Bool(c, &x.Floating)
	codec.Int(c, &x.FaultRefund)
}
