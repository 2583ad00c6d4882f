package ui

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// JobJSON is a job in the output of --json: a stable contract, documented in docs/man/json.md.
// Fields are only ever added. Times are RFC 3339 in UTC, durations seconds, sizes bytes; unset
// values are left out.
type JobJSON struct {
	ID           uint64           `json:"id"`
	Ref          string           `json:"ref"`
	ArrayID      uint64           `json:"array_id,omitempty"`
	ArrayIndex   *int32           `json:"array_index,omitempty"`
	ArraySize    int32            `json:"array_size,omitempty"`
	ArrayLimit   int32            `json:"array_limit,omitempty"`
	Name         string           `json:"name"`
	User         string           `json:"user"`
	UID          uint32           `json:"uid"`
	GID          uint32           `json:"gid"`
	Account      string           `json:"account,omitempty"`
	Partition    string           `json:"partition"`
	QOS          string           `json:"qos,omitempty"`
	State        string           `json:"state"`
	Reason       string           `json:"reason,omitempty"`
	Detail       string           `json:"detail,omitempty"`
	Hold         string           `json:"hold,omitempty"`
	Attempt      uint32           `json:"attempt"`
	Restarts     int32            `json:"restarts"`
	Causes       *causesJSON      `json:"restart_causes,omitempty"`
	Nice         int32            `json:"nice,omitempty"`
	TimeLimit    *int64           `json:"time_limit,omitempty"` // left out: no limit
	Submitted    *time.Time       `json:"submitted,omitempty"`
	Eligible     *time.Time       `json:"eligible,omitempty"`
	Begin        *time.Time       `json:"begin,omitempty"`
	Deadline     *time.Time       `json:"deadline,omitempty"`
	Planned      *time.Time       `json:"planned,omitempty"`
	Promised     bool             `json:"promised,omitempty"`
	Started      *time.Time       `json:"started,omitempty"`
	Ended        *time.Time       `json:"ended,omitempty"`
	ExitCode     int32            `json:"exit_code"`
	ExitSignal   int32            `json:"exit_signal"`
	Request      *requestJSON     `json:"request,omitempty"`
	Nodes        []nodeUseJSON    `json:"nodes,omitempty"`
	Tasks        []taskJSON       `json:"tasks,omitempty"`
	Steps        []stepJSON       `json:"steps,omitempty"`
	Depends      []string         `json:"depends,omitempty"`
	DependsAny   bool             `json:"depends_any,omitempty"`
	EveryNode    bool             `json:"every_node,omitempty"`
	Image        string           `json:"image,omitempty"`
	Command      string           `json:"command,omitempty"`
	Args         []string         `json:"args,omitempty"`
	WorkDir      string           `json:"work_dir,omitempty"`
	Output       string           `json:"output,omitempty"`
	Error        string           `json:"error,omitempty"`
	Comment      string           `json:"comment,omitempty"`
	AdminComment string           `json:"admin_comment,omitempty"`
	WCKey        string           `json:"wckey,omitempty"`
	MailTypes    []string         `json:"mail_types,omitempty"`
	MailUser     string           `json:"mail_user,omitempty"`
	Secrets      []string         `json:"secrets,omitempty"` // names
	Mounts       []string         `json:"mounts,omitempty"`
	Checkpoint   string           `json:"checkpoint_dir,omitempty"`
	Restart      string           `json:"restart,omitempty"`
	Checkpoints  []CheckpointJSON `json:"checkpoints,omitempty"`
	Resume       uint32           `json:"resume,omitempty"`
	Retry        *retryJSON       `json:"retry,omitempty"`
	CkptSignal   *signalJSON      `json:"checkpoint_signal,omitempty"`
	AtLimit      bool             `json:"requeue_at_limit,omitempty"`
	Elastic      *elasticJSON     `json:"elastic,omitempty"`
	Burst        *burstJSON       `json:"burst,omitempty"`
	StageIn      []stagingJSON    `json:"stage_in,omitempty"`
	StageOut     []stagingJSON    `json:"stage_out,omitempty"`
	WriteTime    float64          `json:"checkpoint_write_time,omitempty"` // seconds
	Avoided      []avoidedJSON    `json:"avoided_nodes,omitempty"`
	Unfenced     []string         `json:"unfenced_nodes,omitempty"`
	LastAttempt  *lastAttemptJSON `json:"last_attempt,omitempty"`
	Warning      string           `json:"warning,omitempty"`
	WarningSince *time.Time       `json:"warning_since,omitempty"`
	Idle         *idleJSON        `json:"idle_gpus,omitempty"`
	SubmitHost   string           `json:"submit_host,omitempty"`
	CancelledBy  string           `json:"cancelled_by,omitempty"`
	Version      uint64           `json:"version,omitempty"`
	Others       []string         `json:"others,omitempty"`
	Reservation  string           `json:"reservation,omitempty"`
	Charged      string           `json:"charged,omitempty"`   // credits
	SetAside     string           `json:"set_aside,omitempty"` // credits
	FundedUntil  *time.Time       `json:"funded_until,omitempty"`
	PaidIn       []string         `json:"paid_in,omitempty"`
}

type requestJSON struct {
	Nodes        int32    `json:"nodes,omitempty"`
	GPUs         int32    `json:"gpus,omitempty"`
	GPUsPerNode  int32    `json:"gpus_per_node,omitempty"`
	GPUTypes     []string `json:"gpu_types,omitempty"`
	TasksPerNode int32    `json:"tasks_per_node,omitempty"`
	CPUsPerTask  int32    `json:"cpus_per_task,omitempty"`
	MemPerNode   int64    `json:"mem_per_node,omitempty"`
	MemPerCPU    int64    `json:"mem_per_cpu,omitempty"`
	MemPerGPU    int64    `json:"mem_per_gpu,omitempty"`
	Memory       string   `json:"memory,omitempty"`
	Features     []string `json:"features,omitempty"`
	NodeList     []string `json:"node_list,omitempty"`
	Exclude      []string `json:"exclude,omitempty"`
	Exclusive    bool     `json:"exclusive,omitempty"`
	GPUMemory    int64    `json:"gpu_memory,omitempty"`
	Connect      string   `json:"connect,omitempty"`
	Switches     int32    `json:"switches,omitempty"`
	SwitchWait   *int64   `json:"switch_wait,omitempty"` // -1: without end
	Licences     []string `json:"licences,omitempty"`    // such as matlab:2
	MaxPrice     string   `json:"max_price,omitempty"`   // credits per GPU hour
	Regions      []string `json:"regions,omitempty"`
	MaxNodes     int32    `json:"max_nodes,omitempty"`
	Gres         []string `json:"gres,omitempty"` // such as nvme:2
	GPUShare     int32    `json:"gpu_share,omitempty"`
	MPS          bool     `json:"mps,omitempty"`
}

type nodeUseJSON struct {
	Node   string  `json:"node"`
	GPUs   []int32 `json:"gpus,omitempty"`
	CPUs   int32   `json:"cpus,omitempty"`
	Memory int64   `json:"memory,omitempty"`
}

// causesJSON counts restarts by cause.
type causesJSON struct {
	NodeFailed int32 `json:"node_failed,omitempty"`
	TaskFailed int32 `json:"task_failed,omitempty"`
	Preempted  int32 `json:"preempted,omitempty"`
	Requeued   int32 `json:"requeued,omitempty"`
	Retried    int32 `json:"retried,omitempty"`
	TimedOut   int32 `json:"timed_out,omitempty"`
	Damaged    int32 `json:"damaged_checkpoint,omitempty"`
	Reclaimed  int32 `json:"reclaimed,omitempty"`
}

type taskJSON struct {
	Node       string     `json:"node"`
	Phase      string     `json:"phase"`
	Cause      string     `json:"cause,omitempty"`
	ExitCode   int32      `json:"exit_code"`
	ExitSignal int32      `json:"exit_signal"`
	Message    string     `json:"message,omitempty"`
	Started    *time.Time `json:"started,omitempty"`
	Ended      *time.Time `json:"ended,omitempty"`
	MemoryPeak int64      `json:"memory_peak,omitempty"`
	CPUTime    float64    `json:"cpu_time,omitempty"`  // seconds
	UserTime   float64    `json:"user_time,omitempty"` // of that
	GPUUseJSON
}

// JobOf converts a job of the API to the form of --json.
func JobOf(j *greylagv1.Job) JobJSON {
	out := JobJSON{
		ID: j.Id, Ref: j.Ref, ArrayID: j.ArrayId, ArraySize: j.ArraySize, ArrayLimit: j.ArrayLimit,
		Name: j.Name, User: j.User, UID: j.Uid, GID: j.Gid, Account: j.Account, Partition: j.Partition, QOS: j.Qos,
		State: wire.Word(j.State), Reason: wire.Word(j.Reason), Detail: j.Detail, Hold: wire.Word(j.Hold), Attempt: j.Attempt, Restarts: j.Restarts, Nice: j.Nice,
		TimeLimit: Seconds(j.TimeLimit), Submitted: Stamp(TimeOf(j.Submitted)), Eligible: Stamp(TimeOf(j.Eligible)),
		Begin: Stamp(TimeOf(j.Begin)), Deadline: Stamp(TimeOf(j.Deadline)), Planned: Stamp(TimeOf(j.Planned)), Promised: j.Promised,
		Started: Stamp(TimeOf(j.Started)), Ended: Stamp(TimeOf(j.Ended)), ExitCode: j.ExitCode, ExitSignal: j.ExitSignal,
		Depends: DependencyWords(j.Depends), DependsAny: len(j.Depends) > 0 && j.Depends[0].Any, EveryNode: j.EveryNode, Image: j.Image, Command: j.Command, Args: j.Args, WorkDir: j.WorkDir,
		Output: OutputPath(j, j.Output), Error: OutputPath(j, j.Error), Comment: j.Comment, AdminComment: j.AdminComment, WCKey: j.Wckey, MailTypes: MailWords(j), MailUser: j.MailUser, Secrets: j.Secrets, Mounts: MountWords(j), SubmitHost: j.SubmitHost, CancelledBy: j.Requester, Version: j.Version,
		Checkpoint: OutputPath(j, j.CheckpointDir), Restart: restartMode(j), Checkpoints: Checkpoints(j), Resume: j.Resume, Retry: writeRetry(j), Avoided: writeAvoided(j), Unfenced: j.UnfencedNodes, LastAttempt: writeLastAttempt(j),
		Warning: j.Warning, WarningSince: Stamp(TimeOf(j.WarningSince)), Idle: writeIdle(j.IdleGpus), CkptSignal: writeSignal(j.CheckpointSignal), AtLimit: j.RequeueAtLimit, Elastic: writeElastic(j), Burst: writeBurst(j.Burst), StageIn: writeStaging(j.StageIn), StageOut: writeStaging(j.StageOut), WriteTime: j.CheckpointWriteTime.AsDuration().Seconds(),
		Others: j.OtherPartitions, Reservation: j.Reservation,
		Charged: CreditsWord(j.Charged), SetAside: CreditsWord(j.Lien), FundedUntil: Stamp(TimeOf(j.FundedUntil)), PaidIn: j.PaidIn,
	}
	if j.ArrayId != 0 {
		out.ArrayIndex = &j.ArrayIndex
	}
	if c := j.RestartCauses; c != nil {
		out.Causes = &causesJSON{c.NodeFailed, c.TaskFailed, c.Preempted, c.Requeued, c.Retried, c.TimedOut, c.DamagedCheckpoint, c.Reclaimed}
	}
	if q := j.Request; q != nil {
		out.Request = &requestJSON{
			q.Nodes, q.Gpus, q.GpusPerNode, q.GpuTypes, q.TasksPerNode, q.CpusPerTask,
			q.MemPerNode, q.MemPerCpu, q.MemPerGpu, wire.Word(q.Memory), q.Features, q.NodeList, q.Exclude, q.Exclusive,
			q.GpuMemory, wire.Word(q.Connect), q.Switches, switchWait(q), licenceWords(q.Licences),
			priceWord(q.MaxPrice), q.Regions, q.MaxNodes, GresWords(q.Gres), q.GpuShare, q.Mps,
		}
	}
	for _, n := range j.Nodes {
		out.Nodes = append(out.Nodes, nodeUseJSON{n.Node, n.Gpus, n.Cpus, n.Memory})
	}
	for _, t := range j.Tasks {
		out.Tasks = append(out.Tasks, taskJSON{
			t.Node, wire.Word(t.Phase), wire.Word(t.Cause), t.ExitCode, t.ExitSignal, t.Message,
			Stamp(TimeOf(t.Started)), Stamp(TimeOf(t.Ended)), t.MemoryPeak, t.CpuTime.AsDuration().Seconds(), t.UserTime.AsDuration().Seconds(),
			WriteGPUUse(t.GpuBusyMs, t.GpuKnownMs, t.GpuMemoryPeakBytes),
		})
	}
	for _, s := range j.Steps {
		out.Steps = append(out.Steps, writeStep(s))
	}
	return out
}

// stepJSON is a step in JSON.
type stepJSON struct {
	ID         uint32         `json:"id"`
	Name       string         `json:"name,omitempty"`
	State      string         `json:"state"`
	Nodes      []stepNodeJSON `json:"nodes"`
	Started    *time.Time     `json:"started,omitempty"`
	Ended      *time.Time     `json:"ended,omitempty"`
	ExitCode   int32          `json:"exit_code"`
	ExitSignal int32          `json:"exit_signal"`
	MemoryPeak int64          `json:"memory_peak"`
	CPUTime    float64        `json:"cpu_time"`
	UserTime   float64        `json:"user_time"`
	Requester  string         `json:"requester,omitempty"`
}

type stepNodeJSON struct {
	Node  string  `json:"node"`
	Tasks int32   `json:"tasks"`
	GPUs  []int32 `json:"gpus,omitempty"`
}

func writeStep(s *greylagv1.Step) stepJSON {
	out := stepJSON{
		ID: s.Id, Name: s.Name, State: wire.Word(s.State), Started: Stamp(TimeOf(s.Started)), Ended: Stamp(TimeOf(s.Ended)),
		ExitCode: s.ExitCode, ExitSignal: s.ExitSignal, MemoryPeak: s.MemoryPeak,
		CPUTime: s.CpuTime.AsDuration().Seconds(), UserTime: s.UserTime.AsDuration().Seconds(), Requester: s.Requester,
	}
	for _, n := range s.Nodes {
		out.Nodes = append(out.Nodes, stepNodeJSON{n.Node, n.Tasks, n.Gpus})
	}
	return out
}

// switchWait returns how long a job waits for its locality; nil when it requests none.
func switchWait(q *greylagv1.Request) *int64 {
	if q.SwitchWait == nil {
		return nil
	}
	s := max(int64(q.SwitchWait.AsDuration()/time.Second), -1)
	return &s
}

// Stamp converts a time for JSON: nil when it is not set.
func Stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Seconds converts a duration for JSON; nil when it is not set, or 0, which means no limit.
func Seconds(d *durationpb.Duration) *int64 {
	if d.AsDuration() == 0 {
		return nil
	}
	s := int64(d.AsDuration() / time.Second)
	return &s
}

// AsOfJSON describes the time and the source of an answer: a stable contract, as all of --json.
type AsOfJSON struct {
	Index      uint64     `json:"index"`
	Time       *time.Time `json:"time,omitempty"`
	Controller string     `json:"controller,omitempty"`
	Stale      bool       `json:"stale,omitempty"`
}

// WriteAsOf converts an answer's freshness to the form of --json.
func WriteAsOf(a *greylagv1.AsOf) AsOfJSON {
	return AsOfJSON{a.GetIndex(), Stamp(TimeOf(a.GetTime())), a.GetController(), a.GetStale()}
}

// OutputPath returns the file that a job writes, on its first node. The node's name stays a pattern until the job
// starts. If every node writes, words that differ between nodes are not expanded.
func OutputPath(j *greylagv1.Job, pattern string) string {
	if pattern == "" {
		return ""
	}
	words := cluster.PathValues{
		Job: cluster.JobID(j.Id), Array: cluster.JobID(j.ArrayId), Index: j.ArrayIndex, Name: j.Name, User: j.User, Restarts: j.Restarts,
	}
	switch {
	case j.EveryNode:
		words.Rank = -1
	case len(j.Nodes) > 0:
		words.Node = j.Nodes[0].Node
	}
	return words.Expand(pattern)
}
