package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Identity is a Unix user as the kernel of a login node knows them.
type Identity struct {
	User string
	UID  uint32
	GID  uint32
}

// JobSpec is what a user submitted. It never changes once the state has it: an
// update makes a new one, so every element of an array and every snapshot may
// share the same pointer.
type JobSpec struct {
	Name        string
	Owner       Identity
	Account     string
	Partition   string
	QOS         string
	Request     Request
	TimeLimit   time.Duration
	Script      Digest   // the batch script's text, kept beside the archive
	Environment Digest   // NUL-separated KEY=VALUE pairs, kept beside the archive
	Args        []string // arguments of the script
	WorkDir     string
	Input       string // "" means /dev/null
	Output      string // pattern with %j %A %a %x %u %N %n %t %r
	Error       string // "" means the same file as Output
	Append      bool   // open output files for append, not truncate
	Image       string // "" means the host's own file system
	ImageDigest string // what Image resolved to at submission, if known
	Requeue     bool   // run again after a node failure or preemption
	Nice        int32  // lowers priority when positive
	Begin       Instant
	Deadline    Instant
	Depends     []Dependency
	ArrayLimit  int32 // most elements that may run at once; 0 means no limit
	ArraySize   int32 // elements in the array; 0 when the job is no array
	Comment     string
	WCKey       string // workload characterization key, for the site's own statistics
	SubmitHost  string
	Signal      WarnSignal
	EveryNode   bool     // the script starts on every node, not on the first alone
	Others      []string // further partitions in which it may run instead of Partition
	Reservation string   // the reservation whose nodes it uses; "" means none
	// QOSByOperator reports that an operator chose QOS, which the job's user may not use.
	QOSByOperator bool
	Command       string // the script's absolute path or the command of --wrap, shown to users
}

// JobText is a text of a specification with its limit in bytes.
type JobText struct {
	Name string // in messages
	Text *string
	Max  int
}

// Texts lists the texts of a specification, except lists. They are checked at submission,
// and equal ones are stored once.
func (s *JobSpec) Texts() [16]JobText {
	return [...]JobText{
		{"job name", &s.Name, maxName}, {"user", &s.Owner.User, maxName}, {"account", &s.Account, maxName},
		{"partition", &s.Partition, maxName}, {"qos", &s.QOS, maxName}, {"comment", &s.Comment, maxName},
		{"wckey", &s.WCKey, maxName}, {"host", &s.SubmitHost, maxName}, {"reservation", &s.Reservation, maxName},
		{"working directory", &s.WorkDir, maxText}, {"input", &s.Input, maxText}, {"output", &s.Output, maxText},
		{"error output", &s.Error, maxText}, {"image", &s.Image, maxText}, {"image digest", &s.ImageDigest, maxText}, {"command", &s.Command, maxText},
	}
}

// AllPartitions returns the partitions in which the job may run, in its order.
func (s *JobSpec) AllPartitions() []string { return append([]string{s.Partition}, s.Others...) }

// WarnSignal is a signal sent some time before the time limit.
type WarnSignal struct {
	Number    int32 // 0 means none
	Before    time.Duration
	BatchOnly bool // only the script itself, not its children
}

// DependencyKind says what about another job is waited for.
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

// Dependency is one condition; all of a job's must hold.
type Dependency struct {
	Kind  DependencyKind
	Job   JobRef        // unset for Singleton
	Delay time.Duration // of After: how long that has to be ago; whole minutes
}

// String is how sbatch writes it: afterok:12_3, after:12+10, singleton.
func (d Dependency) String() string {
	switch {
	case d.Kind == Singleton:
		return d.Kind.String()
	case d.Delay > 0:
		return fmt.Sprintf("%s:%s+%d", d.Kind, d.Job, d.Delay/time.Minute)
	}
	return d.Kind.String() + ":" + d.Job.String()
}

// Hold says who keeps a job back.
type Hold uint8

// The holds. A user may release only their own.
const (
	NotHeld Hold = iota
	HeldByUser
	HeldByAdmin
	HeldForCredits // by nobody: until there are enough
)

// Job is one job as the state knows it. A Job value is never changed in place:
// the state replaces it, so a reader may keep a pointer for as long as it likes.
type Job struct {
	ID        JobID
	Array     JobID // id of the array it belongs to; 0 when it is no element
	Index     int32 // NoIndex when it is no element
	Spec      *JobSpec
	State     JobState
	Outcome   JobState // while COMPLETING: the final state it will take
	Reason    Reason   // why it is pending, or why it ended so
	Detail    string   // one sentence beside Reason; may be empty
	Hold      Hold
	Attempt   Attempt // the current or last run; 0 before the first
	Submitted Instant
	Eligible  Instant  // not before this, after a requeue's back-off or Begin
	Planned   Instant  // the planned start; 0 when there is none
	Promise   *Promise // the planned start that is kept; nil when none is
	Started   Instant  // of this attempt
	Ended     Instant  // when its end was decided
	Alloc     *Allocation
	Tasks     []Task // one a node of Alloc, in its order
	Exit      Exit
	Restarts  int32           // how often it was requeued
	Requester string          // who cancelled it, when somebody did
	Returns   bool            // while COMPLETING: it will be PENDING again, not Outcome
	Warned    bool            // Spec.Signal was sent in this attempt
	Granted   uint64          // log index of the entry that granted Alloc
	Version   uint64          // log index of the last change
	History   []Note          // what was said of its start, oldest first; the newest 16
	Charged   int64           // micro-credits that its attempts came to, less what was given back when they ended
	Partition string          // in which this attempt runs or the last one ran; "" while it waits
	TRES      []Amount        // what the allocation of this attempt or the last one comes to, by resource
	Attempts  []AttemptRecord // earlier ones, oldest first; the newest 16
	Canceller string          // while COMPLETING and Returns: who cancelled it, so that it does not come back
	Causes    RestartCauses   // of Restarts, where they were counted by cause
}

// Association names the association that jobs of the specification belong to, with
// their first partition: whether there is one for that, [AccountTree.Resolve] tells.
func (s *JobSpec) Association() AssociationKey {
	return AssociationKey{Account: s.Account, User: s.Owner.User, Partition: s.Partition}
}

// PartitionList is the partition in which the job runs or ran, and while it waits all
// in which it may, joined by commas as in squeue.
func (j *Job) PartitionList() string {
	switch {
	case j.Partition != "":
		return j.Partition
	case len(j.Spec.Others) == 0:
		return j.Spec.Partition
	}
	return j.Spec.Partition + "," + strings.Join(j.Spec.Others, ",")
}

// InPartition reports whether the job runs or ran in a partition, or while it waits
// whether it may run there.
func (j *Job) InPartition(name string) bool {
	if j.Partition != "" {
		return j.Partition == name
	}
	return j.Spec.Partition == name || slices.Contains(j.Spec.Others, name)
}

// Ref is how users name the job.
func (j *Job) Ref() JobRef {
	if j.Array != 0 {
		return JobRef{ID: j.Array, Index: j.Index}
	}
	return JobRef{ID: j.ID, Index: NoIndex}
}

// Limit is the instant at which the job's time limit passes; 0 when it has not
// started or has no limit.
func (j *Job) Limit() Instant {
	if j.Started == 0 || j.Spec.TimeLimit == 0 {
		return 0
	}
	return j.Started.Add(j.Spec.TimeLimit)
}

// Exit is how a task or a job ended, as wait(2) tells it.
type Exit struct {
	Code   int32
	Signal int32
}

// OK reports exit status 0 without a signal.
func (e Exit) OK() bool { return e == Exit{} }

// Cause says why a task ended, as its node classified it.
type Cause uint8

// The causes.
const (
	NoCause      Cause = iota
	Exited             // by itself, with a code or a signal
	Stopped            // Greylag told it to stop
	MemoryKilled       // the kernel killed it for memory
	LaunchFailed       // the user's fault: no such directory, no such output path, not executable
	NodeFault          // the node's fault: runtime, file system, prolog
	GPUFault           // XID or ECC
	ImageFailed        // the image could not be pulled or unpacked
	TaskLost           // nobody knows how it ended
	maxCause     = TaskLost
)

var causeNames = [...]string{
	NoCause: "", Exited: "exited", Stopped: "stopped", MemoryKilled: "memory",
	LaunchFailed: "launch", NodeFault: "node", GPUFault: "gpu",
	ImageFailed: "image", TaskLost: "lost",
}

// String is a short word for the cause.
func (c Cause) String() string {
	if c > maxCause {
		return "?"
	}
	return causeNames[c]
}

// TaskPhase is how far a task has come on its node. Phases only grow.
type TaskPhase uint8

// The phases.
const (
	TaskWanted  TaskPhase = iota // the node has not said anything about it
	TaskStarted                  // its process runs
	TaskEnded                    // its process is gone
	TaskClean                    // nothing of it is left on the node
)

// Task is what one attempt runs on one node, as last reported.
type Task struct {
	Node    string
	Phase   TaskPhase
	Cause   Cause
	Exit    Exit
	Message string // the node's one-line account, when something went wrong
	Started Instant
	Ended   Instant
	Memory  Bytes         // peak
	CPUTime time.Duration // user and system
	GPU     GPUUse        // of its GPUs; what is known while it runs, and when it has ended all
	User    time.Duration // of CPUTime the user time; 0 where that is not known
	Ran     time.Duration // when it has ended: for how long its node's daemon had it until then, by no clock that is set
}
