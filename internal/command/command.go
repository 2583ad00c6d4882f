// Package command is the closed set of changes that can be made to the
// replicated state, what each answers, and their versioned encoding.
//
// It decides how a change is written into a log entry and read back, from the
// change alone. It never decides whether a change is allowed: the state does,
// when it applies it.
package command

import (
	"fmt"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Command is one change to the state. The set of implementations is closed:
// those of this file.
type Command interface{ kind() kind }

type kind uint16

const (
	kindInit kind = iota + 1
	kindSubmitJobs
	kindCancelJobs
	kindUpdateJobs
	kindRegisterNode
	kindReportTasks
	kindSetLiveness
	kindUpdateNodes
	kindCommitPlan
	kindTick
	kindApplyPolicy
	kindCreateToken
	kindUseToken
	kindPutBlob
	kindEditAccounts
	kindSetTopology
	kindChangeCredits
	kindMeterJobs
	kindRecordMember
	kindRetireMember
	kindRestored
	kindRecordCertificate
	kindRevokeCertificates
	kindRotateCA
	kindCreateStep
	kindSignalStep
	kindSetCron
	kindUpdateCron
	kindRecordCron
	kindAttachStep
	kindSetSecret
	kindDeleteSecrets
	kindResealSecrets
	kindCommitCheckpoint
	kindSetCheckpoint
	kindFenceNode
	kindSetOffers
	kindUpdateLeases
	kindEndLeases
)

// Role is what an actor may do.
type Role uint8

// The roles, each allowed all that the one before it is.
const (
	RoleUser Role = iota
	RoleOperator
	RoleAdmin
)

// Actor is the user who asked for a change, as the API authenticated them.
type Actor struct {
	Identity cluster.Identity
	Role     Role
	Source   string // address it came from
}

// Has reports whether the actor has at least the role.
func (a Actor) Has(least Role) bool { return a.Role >= least }

// Owns reports whether the actor is the user, by name and number: a number that two hosts
// give to two people makes neither the other.
func (a Actor) Owns(owner cluster.Identity) bool {
	return a.Identity.User == owner.User && a.Identity.UID == owner.UID
}

// RequestID makes a change idempotent: the same Key with the same Payload is
// answered as the first time, with another Payload it is refused. The zero
// value asks for no such guarantee.
type RequestID struct {
	Key     [16]byte // of caller, operation and the client's request id
	Payload [16]byte // of what was asked
}

// Init names a new cluster. It is refused when the state has a name already.
type Init struct {
	ClusterID string
	Policy    cluster.Policy
}

// SubmitJobs stores jobs: all of them or none.
type SubmitJobs struct {
	Request RequestID
	Actor   Actor
	Jobs    []Submission
	// Blobs are the scripts and environments that Jobs name by digest and the
	// state does not have yet.
	Blobs [][]byte
	// Filtered describes what the submission filter of the site changed, for the audit journal.
	Filtered string
}

// Submission is one job or one array.
type Submission struct {
	Spec  cluster.JobSpec
	Array []IndexRange // empty when it is no array
	Held  bool
	// DefaultTime asks for the partition's default time limit.
	DefaultTime bool
}

// IndexRange is the array indices First, First+Step, ... up to and including Last.
type IndexRange struct{ First, Last, Step int32 }

// CancelJobs ends jobs, or sends them a signal when Signal is not 0. An id of
// an array with [cluster.NoIndex] means all of its elements.
type CancelJobs struct {
	Request   RequestID
	Actor     Actor
	Jobs      []cluster.JobRef
	Signal    int32
	BatchOnly bool
}

// UpdateAction is what UpdateJobs does.
type UpdateAction uint8

// The actions.
const (
	SetFields UpdateAction = iota + 1
	HoldJobs
	ReleaseJobs
	RequeueJobs
	SetAdminComment // also of ended jobs that the state keeps
	RequeueHeldJobs // requeues jobs, and holds them from then on
)

// UpdateJobs changes jobs. A nil field is left as it is.
type UpdateJobs struct {
	Request    RequestID
	Actor      Actor
	Jobs       []cluster.JobRef
	Action     UpdateAction
	TimeLimit  *time.Duration
	Partition  *string
	QOS        *string
	Name       *string
	Nice       *int32
	Comment    *string
	ArrayLimit *int32
	Account    *string
	// Of jobs that wait; 0 takes away a time, no conditions those that there are.
	Begin, Deadline          *cluster.Instant
	Depends                  *[]cluster.Dependency
	Reservation              *string
	Nodes, GPUsPerNode, GPUs *int32
	// TimeLimitBy is added to a time limit; it is not given together with TimeLimit.
	TimeLimitBy time.Duration
	// Each of the amounts of memory replaces the others.
	MemPerNode, MemPerCPU, MemPerGPU *cluster.Bytes
	NodeList, Features               *[]string
	AdminComment                     string // of SetAdminComment
}

// CreateStep starts a step of a running job.
type CreateStep struct {
	Request RequestID
	Actor   Actor
	Job     cluster.JobID
	Step    cluster.StepSpec
}

// AttachStep connects the node of a step with a terminal to another program of the user.
type AttachStep struct {
	Request RequestID
	Actor   Actor
	Job     cluster.JobID
	Step    uint32
	Contact cluster.StepContact
}

// SignalStep sends a signal to the tasks of a step; without a signal it ends the step.
type SignalStep struct {
	Request RequestID
	Actor   Actor
	Job     cluster.JobID
	Step    uint32
	Signal  int32
}

// RegisterNode describes a node that has dialled in. Only the fields that a node
// knows of itself are read from Node.
type RegisterNode struct {
	Node cluster.Node
	// Checked reports that the node has checked itself: its Conditions are complete.
	Checked bool
	// Issued is the issue time of the certificate with which the node authenticated.
	Issued cluster.Instant
	// Instance is the cloud's name of a leased node, as it says.
	Instance string
}

// ReportTasks is the full set of tasks on a node. Seen is the version of the
// wanted set that the node had acted on: a task that was wanted at that version
// and is not in the report is not on the node.
type ReportTasks struct {
	Node  string
	Epoch uint64
	Seen  uint64
	Tasks []TaskReport
	Fault string
	GPUs  []cluster.GPU // nil when unchanged
	// Conditions are those of the node; nil when it has not checked itself yet.
	Conditions []cluster.Condition
	Reclaim    cluster.Instant // the deadline of the cloud's notice that it takes the node back; 0 without one
}

// TaskReport is one task as its node sees it.
type TaskReport struct {
	Job     cluster.JobID
	Attempt cluster.Attempt
	Task    cluster.Task
	Ran     time.Duration // of one that is over: how long the node had it, as its daemon counted
	Granted uint64        // log index that granted the attempt: see cluster.Job; 0 where the node has no record of it
	Steps   []StepReport  // those wanted that have ended there
	Stuck   bool          // its processes outlive SIGKILL: its job does not wait for them
}

// StepReport is how a step ended on a node.
type StepReport struct {
	Step        uint32
	Exit        cluster.Exit // the worst of its tasks there
	OutOfMemory bool
	Memory      cluster.Bytes
	CPUTime     time.Duration
	User        time.Duration // within CPUTime
}

// OfGrant reports whether the task belongs to the attempt that a log entry granted. After a restore
// from a backup the same job and attempt can be granted a second time; log indexes are never used
// twice.
func (r *TaskReport) OfGrant(granted uint64) bool { return r.Granted == granted || r.Granted == 0 }

// SetLiveness records which nodes the leader hears.
type SetLiveness struct {
	Nodes []NodeLiveness
}

// NodeLiveness is how one node is heard.
type NodeLiveness struct {
	Node     string
	Epoch    uint64
	Liveness cluster.Liveness
	// RebootLate says that a node which was asked to reboot did not return within RebootTimeout.
	RebootLate bool
}

// FenceNode records a run of the fence program for a node: it is proven to run no task, unless Failure is set.
type FenceNode struct {
	Node    string
	Since   cluster.Instant // of the wait that it is for; it is void for another one
	Failure string
}

// NodeAction is what UpdateNodes does.
type NodeAction uint8

// The actions.
const (
	DrainNodes NodeAction = iota + 1
	ResumeNodes
	RemoveNodes
	RebootNodes         // drain them, and reboot each when its jobs have ended
	RebootNodesWhenIdle // reboot each at the first moment without jobs
	CancelReboots
	ConfirmFenced // they are off, or cut off, as the operator has checked
)

// UpdateNodes drains, resumes or forgets nodes.
type UpdateNodes struct {
	Request     RequestID
	Actor       Actor
	Names       []string
	Action      NodeAction
	Reason      string
	Force       bool // remove a silent node though it has jobs
	StayDrained bool // keep a node drained after its reboot
}

// CommitPlan carries out what a scheduling pass decided. Each start is checked
// against the state as it is now.
type CommitPlan struct {
	Plan cluster.Plan
}

// Tick lets time pass: limits, deadlines, begin times and retentions fall due. Form has
// the journal of credits written in that form from now on, by all replicas from the same
// entry of the log; 0 leaves it.
type Tick struct{ Form uint8 }

// ApplyPolicy replaces the policy.
type ApplyPolicy struct {
	Request RequestID
	Actor   Actor
	Policy  cluster.Policy
	Expect  uint64 // version that must be in force; 0 means any
}

// TokenKind is the role that a join token gives to a host.
type TokenKind uint8

// The kinds.
const (
	NodeToken TokenKind = iota + 1
	ControllerToken
	AuthToken
)

// String returns the role that the token gives, as certificates name it.
func (k TokenKind) String() string {
	switch k {
	case NodeToken:
		return "node"
	case ControllerToken:
		return "controller"
	case AuthToken:
		return "auth"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// CreateToken stores the hash of a join token.
type CreateToken struct {
	Request RequestID
	Actor   Actor
	Hash    cluster.Digest
	Kind    TokenKind
	Expires cluster.Instant
	Name    string // of the host that may use it; "" for any unused name
	Replace bool   // the name may be in use; its existing certificates are revoked
	Uses    uint32 // hosts that may join with it
}

// UseToken consumes a join token.
type UseToken struct {
	Hash cluster.Digest
	Kind TokenKind
	Name string // of the program that joins, and its request
	// Certificate is what the program gets.
	Certificate Certificate
	Instance    string // of a leased node: its name in the cloud
}

// PutBlob stores one part of a script or an environment that is too large for the
// command that names it. Parts come in order from offset 0; the blob is there when
// Size bytes are, and have the digest.
type PutBlob struct {
	Digest cluster.Digest
	Size   int64
	Offset int64
	Part   []byte
}

// Restored records that the state was restored from a backup. gctld restore proposes it
// once, before any controller serves the restored cluster.
type Restored struct {
	Taken   cluster.Instant // when the backup was made
	History bool            // the backup holds finished jobs and journals, too
}

func (*Init) kind() kind         { return kindInit }
func (*SubmitJobs) kind() kind   { return kindSubmitJobs }
func (*CancelJobs) kind() kind   { return kindCancelJobs }
func (*UpdateJobs) kind() kind   { return kindUpdateJobs }
func (*RegisterNode) kind() kind { return kindRegisterNode }
func (*ReportTasks) kind() kind  { return kindReportTasks }
func (*SetLiveness) kind() kind  { return kindSetLiveness }
func (*UpdateNodes) kind() kind  { return kindUpdateNodes }
func (*FenceNode) kind() kind    { return kindFenceNode }
func (*CommitPlan) kind() kind   { return kindCommitPlan }
func (*Tick) kind() kind         { return kindTick }
func (*ApplyPolicy) kind() kind  { return kindApplyPolicy }
func (*CreateToken) kind() kind  { return kindCreateToken }
func (*UseToken) kind() kind     { return kindUseToken }
func (*PutBlob) kind() kind      { return kindPutBlob }
func (*CreateStep) kind() kind   { return kindCreateStep }
func (*SignalStep) kind() kind   { return kindSignalStep }
func (*AttachStep) kind() kind   { return kindAttachStep }
func (*Restored) kind() kind     { return kindRestored }
