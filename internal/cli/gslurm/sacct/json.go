package sacct

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/acct"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// jobJSON is a job in the JSON of sacct.
type jobJSON struct {
	Account         string            `json:"account"`
	AllocationNodes int               `json:"allocation_nodes"`
	Array           arrayJSON         `json:"array"`
	Association     associationJSON   `json:"association"`
	Cluster         string            `json:"cluster"`
	Comment         commentJSON       `json:"comment"`
	Constraints     string            `json:"constraints"`
	Container       string            `json:"container"`
	DerivedExit     slurmcmd.ExitJSON `json:"derived_exit_code"`
	Exit            slurmcmd.ExitJSON `json:"exit_code"`
	Flags           []string          `json:"flags"`
	Group           string            `json:"group"`
	Hold            bool              `json:"hold"`
	JobID           uint64            `json:"job_id"`
	Licenses        string            `json:"licenses"`
	Name            string            `json:"name"`
	Nodes           string            `json:"nodes"`
	Partition       string            `json:"partition"`
	QOS             string            `json:"qos"`
	Required        requiredJSON      `json:"required"`
	RestartCount    int32             `json:"restart_cnt"`
	KillUser        string            `json:"kill_request_user"`
	Reservation     struct {
		Name string `json:"name"`
	} `json:"reservation"`
	State     stateJSON  `json:"state"`
	Stderr    string     `json:"stderr"`
	Stdout    string     `json:"stdout"`
	Steps     []stepJSON `json:"steps"`
	Submit    string     `json:"submit_line"`
	Time      timesJSON  `json:"time"`
	TRES      tresJSON   `json:"tres"`
	User      string     `json:"user"`
	WCKey     wckeyJSON  `json:"wckey"`
	Directory string     `json:"working_directory"`
}

type arrayJSON struct {
	JobID  uint64          `json:"job_id"`
	TaskID slurmcmd.Number `json:"task_id"`
	Task   string          `json:"task"`
	Limits struct {
		Max struct {
			Running struct {
				Tasks int32 `json:"tasks"`
			} `json:"running"`
		} `json:"max"`
	} `json:"limits"`
}

type associationJSON struct {
	Account   string `json:"account"`
	Cluster   string `json:"cluster"`
	Partition string `json:"partition"`
	User      string `json:"user"`
}

type commentJSON struct {
	Administrator string `json:"administrator"`
	Job           string `json:"job"`
	System        string `json:"system"`
}

type requiredJSON struct {
	CPUs          int64           `json:"CPUs"`
	MemoryPerCPU  slurmcmd.Number `json:"memory_per_cpu"`
	MemoryPerNode slurmcmd.Number `json:"memory_per_node"`
}

type stateJSON struct {
	Current []string `json:"current"`
	Reason  string   `json:"reason"`
}

type timesJSON struct {
	Elapsed    int64           `json:"elapsed"`
	Eligible   int64           `json:"eligible"`
	End        int64           `json:"end"`
	Start      int64           `json:"start"`
	Submission int64           `json:"submission"`
	Suspended  int64           `json:"suspended"`
	Limit      slurmcmd.Number `json:"limit"`
	Total      struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"total"`
}

type tresJSON struct {
	Allocated []resourceJSON `json:"allocated"`
	Requested []resourceJSON `json:"requested"`
}

type resourceJSON struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	ID    int    `json:"id"`
	Count int64  `json:"count"`
}

type wckeyJSON struct {
	WCKey string   `json:"wckey"`
	Flags []string `json:"flags"`
}

type stepJSON struct {
	Exit  slurmcmd.ExitJSON `json:"exit_code"`
	Nodes struct {
		Count int      `json:"count"`
		Range string   `json:"range"`
		List  []string `json:"list"`
	} `json:"nodes"`
	State []string `json:"state"`
	Step  struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"step"`
	Time timesJSON `json:"time"`
}

// printJSON prints the selected jobs in the schema of sacct --json.
func (c command) printJSON(ctx context.Context, cl ui.Cluster, q acct.Question) error {
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	ask := &greylagv1.StreamHistoryRequest{Filter: q.Filter, StatesInInterval: q.AtTheTime}
	for _, bound := range []struct {
		at   time.Time
		into **timestamppb.Timestamp
	}{{q.Since, &ask.Since}, {q.Until, &ask.Until}} {
		if !bound.at.IsZero() {
			*bound.into = timestamppb.New(bound.at)
		}
	}
	stream, err := cl.History().StreamHistory(ctx, ask)
	if err != nil {
		return err
	}
	defer stream.Close()
	all := []jobJSON{}
	for stream.Receive() {
		for _, p := range stream.Msg().Jobs {
			all = append(all, c.jobOf(p, status.Cluster))
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b jobJSON) int { return cmp.Compare(a.JobID, b.JobID) })
	return c.WriteJSON(struct {
		Jobs []jobJSON `json:"jobs"`
		slurmcmd.MetaJSON
	}{all, c.Meta(status.Cluster)})
}

func (c command) jobOf(p *greylagv1.PastJob, clusterName string) jobJSON {
	row := slurmcmd.Fold([]*greylagv1.Job{p.Job}, true)[0]
	j := &row
	size, perCPU := j.Memory()
	out := jobJSON{
		Account: j.Account, AllocationNodes: len(j.Nodes), Association: associationJSON{j.Account, clusterName, "", j.User}, Cluster: clusterName,
		Comment: commentJSON{Administrator: j.AdminComment, Job: j.Comment}, Constraints: cluster.FormatFeatures(j.Request.GetFeatures()), Container: j.Image,
		DerivedExit: slurmcmd.ExitOf(j.ExitCode, j.ExitSignal), Exit: slurmcmd.ExitOf(j.ExitCode, j.ExitSignal), Flags: []string{},
		Group: slurmcmd.GroupName(j.Gid), Hold: j.Hold != greylagv1.Hold_HOLD_UNSPECIFIED, JobID: j.Id, Licenses: j.LicenceText(), Name: j.Name,
		Nodes: cmp.Or(j.NodeList(), "None assigned"), Partition: j.PartitionText(), QOS: j.Qos, Required: requiredJSON{CPUs: j.RequestedCPUs()},
		RestartCount: j.Restarts, KillUser: j.Requester, State: stateJSON{[]string{baseState(j.State)}, ui.ReasonText(j.Job)},
		Stderr: j.Output(true), Stdout: j.Output(false), Steps: []stepJSON{}, Submit: j.CommandLine(), Time: c.timesOf(p),
		TRES: tresJSON{resources(p.Tres), []resourceJSON{}}, User: j.User, WCKey: wckeyJSON{j.Wckey, []string{}}, Directory: j.WorkDir,
	}
	out.Reservation.Name = j.Reservation
	if mib := slurmcmd.Set(int64(size / cluster.MiB)); perCPU {
		out.Required.MemoryPerCPU = mib
	} else {
		out.Required.MemoryPerNode = mib
	}
	if out.Array.JobID = j.ArrayId; j.ArrayId != 0 {
		out.Array.TaskID = slurmcmd.Set(int64(j.ArrayIndex))
		out.Array.Limits.Max.Running.Tasks = j.ArrayLimit
	}
	if j.HasNodes() {
		s := stepJSON{Exit: out.Exit, State: out.State.Current, Time: out.Time}
		s.Nodes.Count, s.Nodes.Range, s.Nodes.List = 1, j.BatchHost(), []string{j.BatchHost()}
		s.Step.ID, s.Step.Name = strconv.FormatUint(j.Id, 10)+"."+acct.BatchStep, acct.BatchStep
		out.Steps = append(out.Steps, s)
		for _, step := range j.Steps {
			out.Steps = append(out.Steps, c.stepOf(j.Id, step))
		}
	}
	return out
}

func (c command) stepOf(job uint64, step *greylagv1.Step) stepJSON {
	out := stepJSON{Exit: slurmcmd.ExitOf(step.ExitCode, step.ExitSignal), State: []string{slurmcmd.StateName(step.State)}}
	for _, n := range step.Nodes {
		out.Nodes.List = append(out.Nodes.List, n.Node)
	}
	out.Nodes.Count, out.Nodes.Range = len(out.Nodes.List), slurmcmd.Hosts(out.Nodes.List)
	out.Step.ID, out.Step.Name = fmt.Sprintf("%d.%s", job, cluster.FormatStep(step.Id)), step.Name
	end := ui.TimeOf(step.Ended)
	if out.Time.Start, out.Time.End = slurmcmd.Stamped(step.Started).Number, slurmcmd.Stamped(step.Ended).Number; end.IsZero() {
		end = c.Now()
	}
	out.Time.Elapsed = int64(end.Sub(ui.TimeOf(step.Started)) / time.Second)
	used := step.CpuTime.AsDuration()
	out.Time.Total.Seconds, out.Time.Total.Microseconds = int64(used/time.Second), int64(used%time.Second/time.Microsecond)
	return out
}

// baseState returns a state of Slurm's database.
func baseState(s cluster.JobState) string {
	if s.HasAllocation() {
		return cluster.Running.String()
	}
	return s.String()
}

func (c command) timesOf(p *greylagv1.PastJob) timesJSON {
	j := p.Job
	unix := func(t *timestamppb.Timestamp) int64 { return slurmcmd.Stamped(t).Number }
	t := timesJSON{
		Elapsed: int64(ui.Elapsed(j, c.Now()) / time.Second), Eligible: unix(j.Eligible), End: unix(j.Ended), Start: unix(j.Started), Submission: unix(j.Submitted),
		Limit: slurmcmd.Minutes(j.TimeLimit.AsDuration()),
	}
	var used time.Duration
	for _, task := range j.Tasks {
		used += task.CpuTime.AsDuration()
	}
	t.Total.Seconds, t.Total.Microseconds = int64(used/time.Second), int64(used%time.Second/time.Microsecond)
	return t
}

// resources converts allocated resources, with the numbers that Slurm gives to its own.
func resources(list []*greylagv1.ResourceCount) []resourceJSON {
	ids := map[string]int{cluster.ResourceCPU: 1, cluster.ResourceMem: 2, cluster.ResourceNode: 4}
	out := []resourceJSON{}
	for _, r := range list {
		one := resourceJSON{Type: r.Resource, ID: ids[r.Resource], Count: r.Count}
		if r.Resource == cluster.ResourceGPU || strings.HasPrefix(r.Resource, cluster.ResourceGPU+":") {
			one.Type, one.Name, one.ID = "gres", r.Resource, 1001
		} else if name, ok := strings.CutPrefix(r.Resource, cluster.GresResource("")); ok {
			one.Type, one.Name, one.ID = "gres", name, 1002
		}
		out = append(out, one)
	}
	return out
}
