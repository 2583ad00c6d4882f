package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Identity is a Unix user as the login node's kernel reports it.
type Identity struct {
	User string
	UID  uint32
	GID  uint32
}

// JobSpec is what a user submitted. The state never changes it in place: an update makes a new one,
// so the elements of an array and all snapshots may share one pointer.
type JobSpec struct {
	Name            string
	Owner           Identity
	Account         string
	Partition       string
	QOS             string
	Request         Request
	TimeLimit       time.Duration
	Script          Digest   // of the batch script's text, which is stored next to the archive
	Environment     Digest   // NUL-separated KEY=VALUE pairs, stored next to the archive
	Args            []string // arguments of the script
	WorkDir         string
	Input           string // "" means /dev/null
	Output          string // pattern with %j %A %a %x %u %N %n %t %r
	Error           string // "" means the same file as Output
	Append          bool   // open output files for append, not truncate
	Image           string // "" means the host's own file system
	ImageDigest     string // what Image resolved to at submission, if known
	Requeue         bool   // run again after a node failure or preemption
	Nice            int32  // lowers priority when positive
	Begin           Instant
	Deadline        Instant
	Depends         []Dependency
	ArrayLimit      int32 // most elements that may run at once; 0 means no limit
	ArraySize       int32 // elements in the array; 0 when the job is no array
	Comment         string
	WCKey           string // workload characterization key, for the site's own statistics
	SubmitHost      string
	Signal          WarnSignal
	EveryNode       bool     // the script starts on every node, not only on the first
	OtherPartitions []string // alternative partitions, in addition to Partition
	Reservation     string   // the reservation whose nodes it uses; "" means none
	// QOSByOperator reports that an operator chose QOS, which the job's user may not use.
	QOSByOperator bool
	Command       string // the script's absolute path or the command of --wrap, shown to users
	MailTypes     MailTypes
	MailUser      string   // address or user name for notifications; "" means the job's user
	Secrets       []string // names of secrets of its owner that its tasks get as files
	Mounts        []Mount  // bind mounts from the node into the container
	CheckpointDir string   // directory of its checkpoints, a pattern; "": none
	FromScratch   bool     // it starts from the beginning when all of its checkpoints are damaged
	Retry         Retry
	// CheckpointSignal asks the program to write a checkpoint: before its time limit, before a preemption, and each
	// CheckpointEvery after its last checkpoint; 0: not then.
	CheckpointSignal WarnSignal
	CheckpointEvery  time.Duration
	// RequeueAtLimit continues a job at its time limit as the next attempt, if it made progress.
	RequeueAtLimit bool
	Elastic        Elastic // whether its number of nodes may change while it runs
	Burst          Burst   // whether it may run on leased nodes
	// StageIn is copied to each node before the script starts there, and StageOut from the first one after it has ended.
	StageIn, StageOut []Staging
}

// JobText is a text of a specification with its limit in bytes.
type JobText struct {
	Name string // in messages
	Text *string
	Max  int
}

// Texts lists the texts of a specification, except lists. They are checked at submission,
// and equal ones are stored once.
func (s *JobSpec) Texts() [18]JobText {
	return [...]JobText{
		{"job name", &s.Name, maxName}, {"user", &s.Owner.User, maxName}, {"account", &s.Account, maxName},
		{"partition", &s.Partition, maxName}, {"qos", &s.QOS, maxName}, {"comment", &s.Comment, maxName},
		{"wckey", &s.WCKey, maxName}, {"host", &s.SubmitHost, maxName}, {"reservation", &s.Reservation, maxName},
		{"working directory", &s.WorkDir, maxText}, {"input", &s.Input, maxText}, {"output", &s.Output, maxText},
		{"error output", &s.Error, maxText}, {"image", &s.Image, maxText}, {"image digest", &s.ImageDigest, maxText}, {"command", &s.Command, maxText},
		{"mail user", &s.MailUser, maxName}, {"checkpoint directory", &s.CheckpointDir, maxText},
	}
}

// AllPartitions returns the partitions in which the job may run, in its order of preference.
func (s *JobSpec) AllPartitions() []string {
	return append([]string{s.Partition}, s.OtherPartitions...)
}

// DependencyKind is the condition on another job.
type DependencyKind uint8

// The kinds, named as sbatch names them.
const (
	After      DependencyKind = iota + 1 // it started or was cancelled
	AfterAny                             // it ended in any way
	AfterOK                              // it ended with exit status 0
	AfterNotOK                           // it ended in any other way
	AfterCorr                            // the element with the same index ended with status 0
	Singleton                            // no other job of this name and user is active
)

var dependencyNames = [...]string{
	After: "after", AfterAny: "afterany", AfterOK: "afterok",
	AfterNotOK: "afternotok", AfterCorr: "aftercorr", Singleton: "singleton",
}

// String is sbatch's word for the kind.
func (k DependencyKind) String() string {
	if k == 0 || int(k) >= len(dependencyNames) {
		return "?"
	}
	return dependencyNames[k]
}

// Satisfied reports whether a dependency of this kind is satisfied once all its jobs have ended, bad of
// them not with status 0.
func (k DependencyKind) Satisfied(bad int) bool {
	switch k {
	case AfterOK, AfterCorr:
		return bad == 0
	case AfterNotOK:
		return bad > 0
	}
	return true
}

// Dependency is one condition of a job. All must be satisfied, or one where they are alternatives.
type Dependency struct {
	Kind  DependencyKind
	Job   JobRef        // unset for Singleton
	Delay time.Duration // of After: the least time since then, in whole minutes
	Any   bool          // it is an alternative: set in all dependencies of a job or in none
}

// String returns sbatch's notation: afterok:12_3, after:12+10, singleton.
func (d Dependency) String() string {
	switch {
	case d.Kind == Singleton:
		return d.Kind.String()
	case d.Delay > 0:
		return fmt.Sprintf("%s:%s+%d", d.Kind, d.Job, d.Delay/time.Minute)
	}
	return d.Kind.String() + ":" + d.Job.String()
}

// AnyOf reports whether one of a job's dependencies is enough.
func AnyOf(list []Dependency) bool { return len(list) > 0 && list[0].Any }

// DependencyText returns dependencies in sbatch's notation: joined by "," if all must hold, by "?"
// if one is enough.
func DependencyText(list []Dependency) string {
	var out strings.Builder
	for i, d := range list {
		switch {
		case i > 0 && d.Any:
			out.WriteByte('?')
		case i > 0:
			out.WriteByte(',')
		}
		out.WriteString(d.String())
	}
	return out.String()
}

// Hold tells whose hold a job is under.
type Hold uint8

// The holds. Users may release only their own.
const (
	NotHeld Hold = iota
	HeldByUser
	HeldByAdmin
	HeldForCredits // by the system: until there are enough credits
)

// Job is one job of the state. A Job value is never changed in place: the state replaces it, so a
// reader may keep the pointer.
type Job struct {
	ID        JobID
	Array     JobID // ID of the array it belongs to; 0 when it is no element
	Index     int32 // NoIndex when it is no element
	Spec      *JobSpec
	State     JobState
	Outcome   JobState // while COMPLETING: its final state
	Reason    Reason   // why it is pending, or why it ended
	Detail    string   // one sentence that details Reason; may be empty
	Hold      Hold
	Attempt   Attempt // the current or last run; 0 before the first
	Submitted Instant
	Eligible  Instant  // earliest start, after a requeue's back-off or Begin
	Planned   Instant  // the planned start; 0 when none exists
	Promise   *Promise // the promised start; nil when none exists
	Started   Instant  // of this attempt
	Ended     Instant  // when its end was decided
	Alloc     *Allocation
	Tasks     *Tasks  // one per node of Alloc, in its order
	Steps     []*Step // of this attempt, in the order in which they were created: see FindStep
	Exit      Exit
	Restarts  int32           // number of requeues
	Requester string          // who cancelled it, if it was cancelled
	Returns   bool            // while COMPLETING: it will be PENDING again, not Outcome
	Warned    bool            // Spec.Signal was sent in this attempt
	Granted   uint64          // log index of the entry that granted Alloc
	Version   uint64          // log index of the last change
	History   []Note          // scheduling notes, oldest first; the newest 16
	Charged   int64           // micro-credits charged for its attempts, less refunds at their ends
	Partition string          // partition of the current or last attempt; "" before the first
	TRES      []Amount        // resources of the current or last attempt's allocation
	Attempts  []AttemptRecord // earlier ones, oldest first; the newest 16
	Canceller string          // while COMPLETING and Returns: who cancelled it, so that it is not requeued
	Causes    RestartCauses   // of Restarts, those counted by cause
	Failures  int32           // cluster failures since an attempt made progress
	// AdminComment is a text of an operator, often of a program that monitors jobs.
	AdminComment string
	Checkpoints  []*Checkpoint // oldest first; the newest 16: see ResumePoint
	Resume       uint32        // number of the checkpoint from which the current attempt resumed; 0: none
	Retries      int32         // attempts that its own failure ended since its last checkpoint
	Preempting   *Preempting   // the notice that the running attempt ends for another job; nil without one
	// Asked is when the current attempt last got CheckpointSignal before an end; 0: not yet. WriteTime is the time
	// from the last CheckpointSignal that a checkpoint followed until that checkpoint; 0: unknown.
	Asked     Instant
	WriteTime time.Duration
	Avoided   []Avoided // nodes on which attempts failed, by name; replaced, never changed
	Unfenced  []string  // nodes that may still run a task of an attempt that has ended, by name; replaced, never changed
	Members   *Members  // of an elastic job with an allocation; else nil
	// Activity is what its nodes have noticed of the current or last attempt; nil for nothing. Replaced, never changed.
	Activity *Activity
	// Preempts is set once others were preempted for the current or next attempt. Its failure soon after its start
	// keeps the job from preempting others until PreemptsFrom.
	Preempts     bool
	PreemptsFrom Instant
}

// Association returns the key of the association that jobs of the specification belong to, with
// their first partition. [AccountTree.Resolve] finds the one that exists.
func (s *JobSpec) Association() AssociationKey {
	return AssociationKey{Account: s.Account, User: s.Owner.User, Partition: s.Partition}
}

// PartitionList returns the partition in which the job runs or ran, and of a pending job all its
// partitions, joined by commas as in squeue.
func (j *Job) PartitionList() string {
	switch {
	case j.Partition != "":
		return j.Partition
	case len(j.Spec.OtherPartitions) == 0:
		return j.Spec.Partition
	}
	return j.Spec.Partition + "," + strings.Join(j.Spec.OtherPartitions, ",")
}

// InPartition reports whether the job runs or ran in a partition, or may run there while pending.
func (j *Job) InPartition(name string) bool {
	if j.Partition != "" {
		return j.Partition == name
	}
	return j.Spec.Partition == name || slices.Contains(j.Spec.OtherPartitions, name)
}

// Ref returns the name that users give the job.
func (j *Job) Ref() JobRef {
	if j.Array != 0 {
		return JobRef{ID: j.Array, Index: j.Index}
	}
	return JobRef{ID: j.ID, Index: NoIndex}
}

// Limit returns the instant of the job's time limit; 0 when it has not started or has no limit.
func (j *Job) Limit() Instant {
	if j.Started == 0 || j.Spec.TimeLimit == 0 {
		return 0
	}
	return j.Started.Add(j.Spec.TimeLimit)
}

// Exit is how a task or a job ended, as wait(2) reports it.
type Exit struct {
	Code   int32
	Signal int32
}

// OK reports exit status 0 without a signal.
func (e Exit) OK() bool { return e == Exit{} }

// Status is the exit status as a shell reports it.
func (e Exit) Status() int32 {
	if e.Signal > 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// Worse returns the worse of two ends: any signal is worse than an exit status, then the higher number.
func (e Exit) Worse(other Exit) Exit {
	if cmp.Or(cmp.Compare(e.Signal, other.Signal), cmp.Compare(e.Code, other.Code)) < 0 {
		return other
	}
	return e
}

// TaskCause is why a task ended, as its node classified it.
type TaskCause uint8

// The causes.
const (
	NoCause            TaskCause = iota
	Exited                       // by itself, with an exit code or a signal
	Stopped                      // stopped by Greylag
	MemoryKilled                 // killed by the kernel for memory
	LaunchFailed                 // the user's fault: no such directory, no such output path, not executable
	NodeFault                    // the node's fault: runtime, file system, prolog
	GPUFault                     // XID or ECC
	ImageFailed                  // the image could not be pulled or unpacked
	TaskLost                     // unknown
	CheckpointFailed             // the checkpoint to resume from is damaged
	OutputExceeded               // killed by its node, since its output was too large
	CredentialsRefused           // S3 refused the credentials of the job, as it would on another node
	MaxTaskCause       = CredentialsRefused
)

var causeNames = [...]string{
	NoCause: "", Exited: "exited", Stopped: "stopped", MemoryKilled: "memory",
	LaunchFailed: "launch", NodeFault: "node", GPUFault: "gpu",
	ImageFailed: "image", TaskLost: "lost", CheckpointFailed: "checkpoint", OutputExceeded: "output", CredentialsRefused: "credentials",
}

// String is a short word for the cause.
func (c TaskCause) String() string {
	if c > MaxTaskCause {
		return "?"
	}
	return causeNames[c]
}

// TaskPhase is a task's progress on its node. Phases only advance.
type TaskPhase uint8

// The phases.
const (
	TaskWanted  TaskPhase = iota // no report from the node yet
	TaskStarted                  // its process runs
	TaskEnded                    // its process has ended
	TaskClean                    // nothing of it is left on the node
)

// Task is the part of one attempt on one node, as last reported.
type Task struct {
	Node     string
	Phase    TaskPhase
	Cause    TaskCause
	Exit     Exit
	Message  string // the node's message when something failed
	Started  Instant
	Ended    Instant
	Memory   Bytes         // peak
	CPUTime  time.Duration // user and system
	GPU      GPUUse        // of its GPUs; partial while it runs, complete when it has ended
	User     time.Duration // user time within CPUTime; 0 where unknown
	Inactive uint8         // while it runs: see InactiveForWarning
	IdleGPUs int32         // while it runs: its GPUs on which no program has run for the time of a warning
	Output   uint8         // while it runs: how often the size for a warning has to be doubled to exceed its output; 0: no warning
	Ran      time.Duration // at its end: how long the node's daemon had run it, measured without a settable clock
	Copied   CopyState     // when it is clean: of the files of StageOut
}

// CopyState is whether the files of StageOut were copied.
type CopyState uint8

// The states.
const (
	NotCopied  CopyState = iota // not tried, or unknown
	Copied                      // all of them
	CopyFailed                  // not all; the message of the task says why
)
