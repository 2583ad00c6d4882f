package slurmcmd

import (
	"os/user"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Number is a number that may be absent or without bound, in the JSON of Slurm.
type Number struct {
	Set      bool  `json:"set"`
	Infinite bool  `json:"infinite"`
	Number   int64 `json:"number"`
}

// Set returns a number.
func Set(n int64) Number { return Number{Set: true, Number: n} }

// Stamped returns a time as seconds since 1970; 0 when it is not set.
func Stamped(t *timestamppb.Timestamp) Number { return Seconds(ui.TimeOf(t)) }

// Seconds returns a time as seconds since 1970; 0 when it is zero.
func Seconds(t time.Time) Number {
	if t.IsZero() {
		return Set(0)
	}
	return Set(t.Unix())
}

// Minutes returns a time limit in minutes.
func Minutes(d time.Duration) Number {
	if d == 0 {
		return Number{Infinite: true}
	}
	return Set(int64((d + time.Minute - 1) / time.Minute))
}

// MetaJSON is the part of all JSON that describes the program and the cluster.
type MetaJSON struct {
	Meta     metaJSON `json:"meta"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

type metaJSON struct {
	Plugin struct {
		Type       string `json:"type"`
		Name       string `json:"name"`
		DataParser string `json:"data_parser"`
	} `json:"plugin"`
	Command []string `json:"command"`
	Slurm   struct {
		Version struct {
			Major string `json:"major"`
			Micro string `json:"micro"`
			Minor string `json:"minor"`
		} `json:"version"`
		Release string `json:"release"`
		Cluster string `json:"cluster"`
	} `json:"slurm"`
}

// Meta returns the description of this run.
func (c *Command) Meta(cluster string) MetaJSON {
	m := MetaJSON{Errors: []string{}, Warnings: []string{}}
	m.Meta.Plugin.DataParser, m.Meta.Command = "data_parser/v0.0.42", append([]string{c.Name()}, c.Args...)
	m.Meta.Slurm.Release = strings.TrimPrefix(Version, "slurm ")
	numbers := strings.Split(m.Meta.Slurm.Release, ".")
	v := &m.Meta.Slurm.Version
	v.Major, v.Minor, v.Micro = numbers[0], numbers[1], numbers[2]
	m.Meta.Slurm.Cluster = cluster
	return m
}

// ExitJSON is how a job ended.
type ExitJSON struct {
	Status     []string `json:"status"`
	ReturnCode Number   `json:"return_code"`
	Signal     struct {
		ID   Number `json:"id"`
		Name string `json:"name"`
	} `json:"signal"`
}

// ExitOf returns how a job ended.
func ExitOf(code, signal int32) ExitJSON {
	e := ExitJSON{Status: []string{"SUCCESS"}, ReturnCode: Set(int64(code))}
	switch {
	case signal != 0:
		e.Status, e.ReturnCode, e.Signal.ID = []string{"SIGNALED"}, Number{}, Set(int64(signal))
	case code != 0:
		e.Status = []string{"ERROR"}
	}
	return e
}

// JobJSON is a job in the JSON of squeue and scontrol.
type JobJSON struct {
	Account          string         `json:"account"`
	AdminComment     string         `json:"admin_comment"`
	ArrayJobID       Number         `json:"array_job_id"`
	ArrayMaxTasks    Number         `json:"array_max_tasks"`
	ArrayTaskID      Number         `json:"array_task_id"`
	ArrayTaskString  string         `json:"array_task_string"`
	BatchFlag        bool           `json:"batch_flag"`
	BatchHost        string         `json:"batch_host"`
	Cluster          string         `json:"cluster"`
	Command          string         `json:"command"`
	Comment          string         `json:"comment"`
	Container        string         `json:"container"`
	CPUs             Number         `json:"cpus"`
	CPUsPerTask      Number         `json:"cpus_per_task"`
	WorkDir          string         `json:"current_working_directory"`
	Deadline         Number         `json:"deadline"`
	Dependency       string         `json:"dependency"`
	DerivedExit      ExitJSON       `json:"derived_exit_code"`
	EligibleTime     Number         `json:"eligible_time"`
	EndTime          Number         `json:"end_time"`
	ExcludedNodes    string         `json:"excluded_nodes"`
	Exit             ExitJSON       `json:"exit_code"`
	Features         string         `json:"features"`
	GresDetail       []string       `json:"gres_detail"`
	GroupID          uint32         `json:"group_id"`
	GroupName        string         `json:"group_name"`
	HetJobID         Number         `json:"het_job_id"`
	HetJobIDSet      string         `json:"het_job_id_set"`
	HetJobOffset     Number         `json:"het_job_offset"`
	Hold             bool           `json:"hold"`
	JobID            uint64         `json:"job_id"`
	Resources        *resourcesJSON `json:"job_resources"`
	State            []string       `json:"job_state"`
	Licenses         string         `json:"licenses"`
	MemoryPerCPU     Number         `json:"memory_per_cpu"`
	MemoryPerNode    Number         `json:"memory_per_node"`
	MinimumCPUs      Number         `json:"minimum_cpus_per_node"`
	Name             string         `json:"name"`
	Nice             int32          `json:"nice"`
	NodeCount        Number         `json:"node_count"`
	Nodes            string         `json:"nodes"`
	Partition        string         `json:"partition"`
	Priority         Number         `json:"priority"`
	QOS              string         `json:"qos"`
	Requeue          bool           `json:"requeue"`
	RequiredNodes    string         `json:"required_nodes"`
	RequiredSwitches int32          `json:"required_switches"`
	RestartCount     int32          `json:"restart_cnt"`
	Reservation      string         `json:"resv_name"`
	StandardError    string         `json:"standard_error"`
	StandardInput    string         `json:"standard_input"`
	StandardOutput   string         `json:"standard_output"`
	StartTime        Number         `json:"start_time"`
	StateDescription string         `json:"state_description"`
	StateReason      string         `json:"state_reason"`
	SubmitTime       Number         `json:"submit_time"`
	Tasks            Number         `json:"tasks"`
	TasksPerNode     Number         `json:"tasks_per_node"`
	TimeLimit        Number         `json:"time_limit"`
	TRESAllocated    string         `json:"tres_alloc_str"`
	TRESPerJob       string         `json:"tres_per_job"`
	TRESPerNode      string         `json:"tres_per_node"`
	TRESRequested    string         `json:"tres_req_str"`
	UserID           uint32         `json:"user_id"`
	UserName         string         `json:"user_name"`
	WCKey            string         `json:"wckey"`
}

type resourcesJSON struct {
	SelectType []string `json:"select_type"`
	Nodes      struct {
		Count      int              `json:"count"`
		SelectType []string         `json:"select_type"`
		List       string           `json:"list"`
		Whole      bool             `json:"whole"`
		Allocation []allocationJSON `json:"allocation"`
	} `json:"nodes"`
	CPUs           int64  `json:"cpus"`
	ThreadsPerCore Number `json:"threads_per_core"`
}

type allocationJSON struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	CPUs  struct {
		Count int32 `json:"count"`
		Used  int32 `json:"used"`
	} `json:"cpus"`
	Memory struct {
		Used      int64 `json:"used"`
		Allocated int64 `json:"allocated"` // MiB
	} `json:"memory"`
	Sockets []string `json:"sockets"`
}

// JobOf converts a job to the JSON of squeue and scontrol.
func JobOf(j *Job, clusterName string) JobJSON {
	q := j.Request
	size, perCPU := j.Memory()
	reason := ui.ReasonText(j.Job)
	out := JobJSON{
		Account: j.Account, ArrayMaxTasks: Set(int64(j.ArrayLimit)), BatchFlag: true, BatchHost: j.BatchHost(), Cluster: clusterName,
		Command: strings.TrimSuffix(j.CommandLine(), Null), Comment: j.Comment, AdminComment: j.AdminComment, Container: j.Image, CPUs: Set(ui.CPUCount(j.Job)),
		CPUsPerTask: Set(int64(max(q.GetCpusPerTask(), 1))), WorkDir: j.WorkDir, Deadline: Stamped(j.Deadline),
		Dependency: strings.TrimSuffix(j.DependencyText(), Null), DerivedExit: ExitOf(j.ExitCode, j.ExitSignal), EligibleTime: Stamped(j.Eligible),
		EndTime: Seconds(ui.EndOf(j.Job)), ExcludedNodes: Hosts(q.GetExclude()), Exit: ExitOf(j.ExitCode, j.ExitSignal), Features: cluster.FormatFeatures(q.GetFeatures()),
		GresDetail: []string{}, GroupID: j.Gid, GroupName: GroupName(j.Gid), HetJobID: Set(0), HetJobOffset: Set(0), Hold: j.Hold != greylagv1.Hold_HOLD_UNSPECIFIED,
		JobID: j.Id, Resources: resourcesOf(j), State: []string{j.State.String()}, Licenses: j.LicenceText(), MinimumCPUs: Set(int64(max(q.GetCpusPerTask(), 1) * max(q.GetTasksPerNode(), 1))),
		Name: j.Name, Nice: j.Nice, NodeCount: Set(int64(ui.NodeCount(j.Job))), Nodes: j.NodeList(), Partition: j.PartitionText(), Priority: Set(0), QOS: j.Qos, Requeue: true,
		RequiredNodes: Hosts(q.GetNodeList()), RequiredSwitches: q.GetSwitches(), RestartCount: j.Restarts, Reservation: j.Reservation,
		StandardError: j.Output(true), StandardInput: "/dev/null", StandardOutput: j.Output(false), StartTime: Seconds(ui.StartOf(j.Job)),
		StateDescription: j.Detail, StateReason: reason, SubmitTime: Stamped(j.Submitted), Tasks: Set(int64(max(q.GetTasksPerNode(), 1)) * int64(ui.NodeCount(j.Job))),
		TasksPerNode: Set(int64(max(q.GetTasksPerNode(), 1))), TimeLimit: Minutes(j.TimeLimit.AsDuration()), TRESAllocated: j.AllocatedTRES(),
		TRESPerJob: j.GPUsInAll(), TRESPerNode: j.GresPerNode(), TRESRequested: j.RequestedTRES(), UserID: j.Uid, UserName: j.User, WCKey: j.Wckey,
	}
	mib := Set(int64(size / cluster.MiB))
	if perCPU {
		out.MemoryPerCPU = mib
	} else {
		out.MemoryPerNode = mib
	}
	if out.ArrayJobID = Set(int64(j.ArrayId)); j.ArrayId != 0 {
		out.ArrayTaskID = Set(int64(j.ArrayIndex))
		if j.Indices != nil {
			out.ArrayTaskID, out.ArrayTaskString = Number{}, j.IndexText()
		}
	}
	return out
}

func resourcesOf(j *Job) *resourcesJSON {
	if !j.HasNodes() {
		return nil
	}
	r := &resourcesJSON{SelectType: []string{"CPU", "MEMORY"}, CPUs: ui.CPUCount(j.Job)}
	r.Nodes.Count, r.Nodes.List, r.Nodes.Whole = len(j.Nodes), j.NodeList(), j.Request.GetExclusive()
	r.Nodes.SelectType = []string{"AVAILABLE"}
	for i, n := range j.Nodes {
		a := allocationJSON{Index: i, Name: n.Node, Sockets: []string{}}
		a.CPUs.Count, a.CPUs.Used, a.Memory.Allocated = n.Cpus, n.Cpus, n.Memory>>20
		r.Nodes.Allocation = append(r.Nodes.Allocation, a)
	}
	return r
}

// never are states of Slurm in which no job here is ever.
const never = " BOOT_FAIL BF REQUEUED RQ RESIZING RS REVOKED RV SUSPENDED S STOPPED ST SPECIAL_EXIT SE STAGE_OUT SO SIGNALING SI RESV_DEL_HOLD RD REQUEUE_HOLD RH REQUEUE_FED RF "

// ParseState reads the name or the code of a state of Slurm. The state is 0 if no job here is ever in it.
func ParseState(word string) (state cluster.JobState, known bool) {
	word = strings.ToUpper(strings.TrimSpace(word))
	if state, err := cluster.ParseJobState(word); err == nil {
		return state, true
	}
	return 0, word != "" && strings.Contains(never, " "+word+" ")
}

// StateList lists the names of the states.
func StateList() string {
	var names []string
	for s := cluster.Pending; s <= cluster.OutOfMemory; s++ {
		names = append(names, s.String())
	}
	return strings.Join(names, ",")
}

// StateName returns the name of a state of the API.
func StateName(s greylagv1.JobState) string { return wire.Word(s) }

// UserName returns the name of the user who runs the program.
func UserName() string {
	u, err := user.Current()
	if err != nil {
		return strconv.Itoa(-1)
	}
	return u.Username
}

// CloneJob returns a copy of a job.
func CloneJob(j *greylagv1.Job) *greylagv1.Job { return proto.CloneOf(j) }
