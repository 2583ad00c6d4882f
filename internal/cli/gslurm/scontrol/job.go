package scontrol

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// loadJobs begins the message when no controller answers a question about jobs.
const loadJobs = "slurm_load_jobs error: "

func (c command) showJobs(ctx context.Context, args []string) error {
	filter := &greylagv1.Filter{AllStates: true}
	for _, word := range args {
		job, _, _ := strings.Cut(word, ".")
		refs, err := ui.AppendRefs(filter.Jobs, job)
		if err != nil {
			return &ui.UsageError{Problem: "invalid job ID: " + word}
		}
		filter.Jobs = refs
	}
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	defer cl.Close()
	jobs, err := slurmcmd.FetchJobs(ctx, cl, filter, c.Now(), slurmcmd.Whole)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	if len(jobs) == 0 && len(args) > 0 {
		return slurmcmd.UnknownJob
	}
	rows := slurmcmd.Fold(jobs, strings.Contains(strings.Join(args, ""), "_"))
	if c.json {
		return c.jobsJSON(ctx, cl, rows)
	}
	if len(rows) == 0 {
		return c.Write("No jobs in the system\n")
	}
	priorities, err := priorities(ctx, cl, rows)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	var records []record
	for i := range rows {
		records = append(records, c.jobRecord(&rows[i], priorities[rows[i].Id]))
	}
	return c.writeRecords(records)
}

func (c command) jobsJSON(ctx context.Context, cl ui.Cluster, rows []slurmcmd.Job) error {
	name, err := clusterName(ctx, cl)
	if err != nil {
		return slurmcmd.Unreachable(loadJobs, err)
	}
	all := []slurmcmd.JobJSON{}
	for i := range rows {
		all = append(all, slurmcmd.JobOf(&rows[i], name))
	}
	return c.WriteJSON(struct {
		Jobs []slurmcmd.JobJSON `json:"jobs"`
		slurmcmd.MetaJSON
	}{all, c.Meta(name)})
}

func clusterName(ctx context.Context, cl ui.Cluster) (string, error) {
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	return status.GetCluster(), err
}

// priorities fetches the priorities of the pending jobs among rows.
func priorities(ctx context.Context, cl ui.Cluster, rows []slurmcmd.Job) (map[uint64]int64, error) {
	var ids []uint64
	for _, r := range rows {
		if r.State == cluster.Pending {
			ids = append(ids, r.Id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	answer, err := cl.Accounts().ListPriorities(ctx, &greylagv1.ListPrioritiesRequest{Jobs: ids})
	if err != nil {
		return nil, err
	}
	all := make(map[uint64]int64, len(answer.Jobs))
	for _, j := range answer.Jobs {
		all[j.Job] = j.Priority
	}
	return all, nil
}

// jobRecord writes a job as scontrol show job does.
func (c command) jobRecord(j *slurmcmd.Job, priority int64) record {
	k := c.Clock()
	first := pairs("JobId", strconv.FormatUint(j.Id, 10))
	if j.ArrayId != 0 {
		first = append(first, pairs("ArrayJobId", strconv.FormatUint(j.ArrayId, 10), "ArrayTaskId", j.IndexText())...)
		if j.ArrayLimit > 0 {
			first = append(first, pairs("ArrayTaskThrottle", strconv.Itoa(int(j.ArrayLimit)))...)
		}
	}
	exit := fmt.Sprintf("%d:%d", j.ExitCode, j.ExitSignal)
	r := record{
		append(first, "JobName="+j.Name),
		pairs("UserId", fmt.Sprintf("%s(%d)", j.User, j.Uid), "GroupId", fmt.Sprintf("%s(%d)", slurmcmd.GroupName(j.Gid), j.Gid), "MCS_label", "N/A"),
		pairs("Priority", strconv.FormatInt(max(priority, 0), 10), "Nice", strconv.Itoa(int(j.Nice)), "Account", slurmcmd.OrNull(j.Account), "QOS", slurmcmd.OrNull(j.Qos), "WCKey", cmp.Or(j.Wckey, "*")),
		pairs("JobState", j.State.String(), "Reason", ui.ReasonText(j.Job), "Dependency", j.DependencyText()),
		pairs("Requeue", "1", "Restarts", strconv.Itoa(int(j.Restarts)), "BatchFlag", "1", "Reboot", "0", "ExitCode", exit),
	}
	if c.detail {
		r = append(r, pairs("DerivedExitCode", exit))
	}
	deadline := k.Stamp(j.Deadline, "N/A")
	start := ui.StartOf(j.Job)
	r = append(r,
		pairs("RunTime", slurmcmd.LongLength(ui.Elapsed(j.Job, c.Now())), "TimeLimit", limitText(j.TimeLimit.AsDuration()), "TimeMin", "N/A"),
		pairs("SubmitTime", k.Stamp(j.Submitted, "Unknown"), "EligibleTime", k.Stamp(j.Eligible, "Unknown")),
		pairs("AccrueTime", k.Stamp(j.Eligible, "Unknown")),
		pairs("StartTime", k.Format(start, "Unknown"), "EndTime", k.Format(ui.EndOf(j.Job), "Unknown"), "Deadline", deadline),
		pairs("SuspendTime", "None", "SecsPreSuspend", "0", "LastSchedEval", "N/A", "Scheduler", "Backfill"),
		pairs("Partition", j.PartitionText(), "AllocNode:Sid", cmp.Or(j.SubmitHost, "N/A")+":0"),
		pairs("ReqNodeList", slurmcmd.OrNull(slurmcmd.Hosts(j.Request.GetNodeList())), "ExcNodeList", slurmcmd.OrNull(slurmcmd.Hosts(j.Request.GetExclude()))),
		pairs("NodeList", j.NodeList()),
	)
	if j.HasNodes() {
		r = append(r, pairs("BatchHost", j.BatchHost()))
	}
	r = append(r, sizeLines(j)...)
	if c.detail {
		r = append(r, allocationLines(j)...)
	}
	return append(r, fileLines(j)...)
}

// limitText writes a time limit as scontrol does.
func limitText(d time.Duration) string {
	if d == 0 {
		return "UNLIMITED"
	}
	return slurmcmd.LongLength(d)
}

// sizeLines are what the job asks for.
func sizeLines(j *slurmcmd.Job) record {
	q := j.Request
	perNode, perTask := int64(max(q.GetTasksPerNode(), 1)), int64(max(q.GetCpusPerTask(), 1))
	nodes := int64(ui.NodeCount(j.Job))
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	size, perCPU := j.Memory()
	memory := "MinMemoryNode"
	if perCPU {
		memory = "MinMemoryCPU"
	}
	share := "OK"
	if q.GetExclusive() {
		share = "NO"
	}
	return record{
		pairs("NumNodes", numNodes(j, nodes), "NumCPUs", number(ui.CPUCount(j.Job)), "NumTasks", number(perNode*nodes), "CPUs/Task", number(perTask), "ReqB:S:C:T", "0:0:*:*"),
		pairs("ReqTRES", j.RequestedTRES()),
		pairs("AllocTRES", slurmcmd.OrNull(j.AllocatedTRES())),
		pairs("Socks/Node", "*", "NtasksPerN:B:S:C", number(perNode)+":0:*:*", "CoreSpec", "*"),
		pairs("MinCPUsNode", number(perNode*perTask), memory, slurmcmd.SizeText(size), "MinTmpDiskNode", slurmcmd.SizeText(j.TmpPerNode())),
		pairs("Features", slurmcmd.OrNull(cluster.FormatFeatures(q.GetFeatures())), "DelayBoot", "00:00:00"),
		pairs("OverSubscribe", share, "Contiguous", "0", "Licenses", slurmcmd.OrNull(j.LicenceText()), "Network", slurmcmd.Null),
	}
}

// numNodes returns the number of nodes of a job, or the range of one that has none yet.
func numNodes(j *slurmcmd.Job, nodes int64) string {
	if most := j.Request.GetMaxNodes(); most > 0 && !j.HasNodes() {
		return fmt.Sprintf("%d-%d", j.Request.GetNodes(), most)
	}
	return strconv.FormatInt(nodes, 10)
}

// allocationLines are the resources of each node.
func allocationLines(j *slurmcmd.Job) (lines record) {
	if !j.HasNodes() {
		return nil
	}
	for _, n := range j.Nodes {
		gres := ui.GresWords(j.Request.GetGres())
		if len(n.Gpus) > 0 {
			gres = slices.Insert(gres, 0, fmt.Sprintf("gpu:%d(IDX:%s)", len(n.Gpus), ui.AppendIndices(nil, n.Gpus)))
		}
		lines = append(lines, pairs("Nodes", n.Node, "CPU_IDs", fmt.Sprintf("0-%d", max(n.Cpus-1, 0)), "Mem", strconv.FormatInt(n.Memory>>20, 10), "GRES", strings.Join(gres, ",")))
	}
	return lines
}

// fileLines are the script and its files.
func fileLines(j *slurmcmd.Job) record {
	r := record{pairs("Command", j.CommandLine()), pairs("WorkDir", slurmcmd.OrNull(j.WorkDir))}
	if j.Comment != "" {
		r = append(r, pairs("Comment", j.Comment))
	}
	if j.AdminComment != "" {
		r = append(r, pairs("AdminComment", j.AdminComment))
	}
	if j.Image != "" {
		r = append(r, pairs("Container", j.Image))
	}
	if j.Reservation != "" {
		r = append(r, pairs("Reservation", j.Reservation))
	}
	r = append(r, pairs("StdErr", j.Output(true)), pairs("StdIn", "/dev/null"), pairs("StdOut", j.Output(false)))
	if gpus := j.GresPerNode(); gpus != "" {
		r = append(r, pairs("TresPerNode", gpus))
	}
	if gpus := j.GPUsInAll(); gpus != "" {
		r = append(r, pairs("TresPerJob", gpus))
	}
	return r
}
