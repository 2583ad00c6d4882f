package squeue

import (
	"cmp"
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

// view is what the fields need in addition to the job.
type view struct {
	*listing
	clock slurmcmd.Clock
}

// field writes one property of a job: by its letter of -o, or by a name of -O.
type field struct {
	letter byte
	names  string // of -O, separated by blanks
	title  string
	write  func(v *view, j *slurmcmd.Job) string
}

func text(of func(j *slurmcmd.Job) string) func(*view, *slurmcmd.Job) string {
	return func(_ *view, j *slurmcmd.Job) string { return of(j) }
}

func number(of func(j *slurmcmd.Job) int64) func(*view, *slurmcmd.Job) string {
	return func(_ *view, j *slurmcmd.Job) string { return strconv.FormatInt(of(j), 10) }
}

func fixed(word string) func(*view, *slurmcmd.Job) string {
	return func(*view, *slurmcmd.Job) string { return word }
}

func instant(of func(j *greylagv1.Job) time.Time, absent string) func(*view, *slurmcmd.Job) string {
	return func(v *view, j *slurmcmd.Job) string { return v.clock.Format(of(j.Job), absent) }
}

var allFields = slices.Concat(identityFields(), stateFields(), timeFields(), sizeFields(), placeFields(), otherFields())

// letters and names list the fields, for the documentation.
func letters() string {
	list := make([]byte, len(allFields))
	for i, f := range allFields {
		list[i] = f.letter
	}
	return "Letters of `-o`: " + slurmcmd.ListLetters(list) + ", and `%all`."
}

func names() string {
	list := make([]string, len(allFields))
	for i, f := range allFields {
		list[i] = f.names
	}
	return "Fields of `-O`, in any case and with or without dashes: " + slurmcmd.ListNames(list) + "."
}

// fieldOf finds a field by its letter; nil if unknown.
func fieldOf(letter byte) *field {
	i := slices.IndexFunc(allFields, func(f field) bool { return f.letter == letter && letter != 0 })
	if i < 0 {
		return nil
	}
	return &allFields[i]
}

// fieldNamed finds a field by a name of -O; nil if unknown.
func fieldNamed(name string) *field {
	i := slices.IndexFunc(allFields, func(f field) bool { return hasName(f.names, name) })
	if i < 0 {
		return nil
	}
	return &allFields[i]
}

// hasName reports whether a name of -O is among the names of a field.
func hasName(names, name string) bool {
	return slices.Contains(strings.Fields(names), slurmcmd.PlainName(name))
}

func fieldsOf(columns []slurmcmd.Column) []*field {
	fields := make([]*field, len(columns))
	for i, c := range columns {
		if fields[i] = fieldOf(c.Letter); c.Name != "" {
			fields[i] = fieldNamed(c.Name)
		}
	}
	return fields
}

// allColumns returns those of %all: every letter, separated by bars.
func allColumns() []slurmcmd.Column {
	var columns []slurmcmd.Column
	for _, f := range allFields {
		if f.letter != 0 {
			columns = append(columns, slurmcmd.Column{Letter: f.letter, After: "|"})
		}
	}
	columns[len(columns)-1].After = ""
	return columns
}

func identityFields() []field {
	return []field{
		{'a', "account", "ACCOUNT", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.Account) })},
		{'i', "jobarrayid", "JOBID", text((*slurmcmd.Job).ID)},
		{'A', "jobid", "JOBID", number(func(j *slurmcmd.Job) int64 { return int64(j.Id) })},
		{'F', "arrayjobid", "ARRAY_JOB_ID", number(func(j *slurmcmd.Job) int64 { return int64(j.BaseID()) })},
		{'K', "arraytaskid", "ARRAY_TASK_ID", text(func(j *slurmcmd.Job) string { return cmp.Or(j.IndexText(), "N/A") })},
		{'j', "name", "NAME", text(func(j *slurmcmd.Job) string { return j.Name })},
		{'u', "username", "USER", text(func(j *slurmcmd.Job) string { return j.User })},
		{'U', "userid", "UID", number(func(j *slurmcmd.Job) int64 { return int64(j.Uid) })},
		{'g', "groupname", "GROUP", text(func(j *slurmcmd.Job) string { return slurmcmd.GroupName(j.Gid) })},
		{'G', "groupid", "GROUP", number(func(j *slurmcmd.Job) int64 { return int64(j.Gid) })},
		{'P', "partition", "PARTITION", text((*slurmcmd.Job).PartitionText)},
		{'q', "qos", "QOS", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.Qos) })},
		{'k', "comment", "COMMENT", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.Comment) })},
		{'w', "wckey", "WCKEY", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.Wckey) })},
		{'v', "reservation", "RESERVATION", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.Reservation) })},
		{0, "cluster", "CLUSTER", func(v *view, _ *slurmcmd.Job) string { return v.cluster }},
		{0, "hetjobid", "HET_JOB_ID", fixed("N/A")},
		{0, "hetjobidset", "HET_JOB_ID_SET", fixed("N/A")},
		{0, "hetjoboffset", "HET_JOB_OFFSET", fixed("N/A")},
	}
}

func stateFields() []field {
	return []field{
		{'t', "statecompact", "ST", text(func(j *slurmcmd.Job) string { return j.State.Code() })},
		{'T', "state", "STATE", text(func(j *slurmcmd.Job) string { return j.State.String() })},
		{'r', "reason", "REASON", text(func(j *slurmcmd.Job) string { return ui.ReasonText(j.Job) })},
		{'R', "reasonlist", "NODELIST(REASON)", text((*slurmcmd.Job).NodesOrReason)},
		{'E', "dependency", "DEPENDENCY", text((*slurmcmd.Job).DependencyText)},
		{'y', "nice", "NICE", number(func(j *slurmcmd.Job) int64 { return int64(j.Nice) })},
		{'Q', "prioritylong", "PRIORITY", number(nil)},
		{'p', "priority", "PRIORITY", number(nil)},
		{0, "restartcnt", "RESTART_COUNT", number(func(j *slurmcmd.Job) int64 { return int64(j.Restarts) })},
		{0, "requeue", "REQUEUE", fixed("1")},
		{0, "exitcode", "EXIT_CODE", number(func(j *slurmcmd.Job) int64 { return int64(j.ExitCode) })},
		{0, "derivedec", "DERIVED_EC", number(func(j *slurmcmd.Job) int64 { return int64(j.ExitCode) })},
	}
}

func init() { // they need the view, and number has none
	fieldOf('Q').write = func(v *view, j *slurmcmd.Job) string { return strconv.FormatInt(max(v.priority[j.Id], 0), 10) }
	fieldOf('p').write = func(v *view, j *slurmcmd.Job) string {
		const most = 1<<32 - 1
		return strconv.FormatFloat(float64(min(max(v.priority[j.Id], 0), most))/most, 'f', 14, 64)
	}
}

func timeFields() []field {
	used := func(v *view, j *slurmcmd.Job) time.Duration { return ui.Elapsed(j.Job, v.printedAt) }
	return []field{
		{'l', "timelimit", "TIME_LIMIT", text(func(j *slurmcmd.Job) string { return cluster.FormatLimit(j.TimeLimit.AsDuration()) })},
		{'L', "timeleft", "TIME_LEFT", func(v *view, j *slurmcmd.Job) string {
			limit := j.TimeLimit.AsDuration()
			switch {
			case j.State.Final():
				return slurmcmd.Length(0)
			case limit == 0:
				return "UNLIMITED"
			}
			return slurmcmd.Length(limit - used(v, j))
		}},
		{'M', "timeused", "TIME", func(v *view, j *slurmcmd.Job) string { return slurmcmd.Length(used(v, j)) }},
		{'S', "starttime", "START_TIME", instant(ui.StartOf, "N/A")},
		{'e', "endtime", "END_TIME", instant(ui.EndOf, "N/A")},
		{'V', "submittime", "SUBMIT_TIME", instant(func(j *greylagv1.Job) time.Time { return ui.TimeOf(j.Submitted) }, "N/A")},
		{0, "eligibletime", "ELIGIBLE_TIME", instant(func(j *greylagv1.Job) time.Time { return ui.TimeOf(j.Eligible) }, "N/A")},
		{0, "accruetime", "ACCRUE_TIME", instant(func(j *greylagv1.Job) time.Time { return ui.TimeOf(j.Eligible) }, "N/A")},
		{0, "deadline", "DEADLINE", instant(func(j *greylagv1.Job) time.Time { return ui.TimeOf(j.Deadline) }, "N/A")},
		{0, "pendingtime", "PENDING_TIME", func(v *view, j *slurmcmd.Job) string {
			until := ui.TimeOf(j.Started)
			if until.IsZero() {
				until = v.printedAt
			}
			return strconv.FormatInt(int64(until.Sub(ui.TimeOf(j.Submitted))/time.Second), 10)
		}},
		{0, "mintime", "MIN_TIME", fixed("N/A")},
		{0, "lastschedeval", "LAST_SCHED_EVAL", fixed("N/A")},
		{0, "preempttime", "PREEMPT_TIME", fixed("N/A")},
		{0, "resizetime", "RESIZE_TIME", fixed("N/A")},
	}
}

func sizeFields() []field {
	tasks := func(j *slurmcmd.Job) int64 {
		return int64(max(j.Request.GetTasksPerNode(), 1)) * int64(ui.NodeCount(j.Job))
	}
	return []field{
		{'D', "numnodes", "NODES", number(func(j *slurmcmd.Job) int64 { return int64(ui.NodeCount(j.Job)) })},
		{'C', "numcpus", "CPUS", number(func(j *slurmcmd.Job) int64 { return ui.CPUCount(j.Job) })},
		{'c', "mincpus", "MIN_CPUS", number(func(j *slurmcmd.Job) int64 {
			return int64(max(j.Request.GetCpusPerTask(), 1)) * int64(max(j.Request.GetTasksPerNode(), 1))
		})},
		{'m', "minmemory", "MIN_MEMORY", text(func(j *slurmcmd.Job) string {
			size, _ := j.Memory()
			return slurmcmd.SizeText(size)
		})},
		{'d', "mintmpdisk", "MIN_TMP_DISK", text(func(j *slurmcmd.Job) string { return slurmcmd.SizeText(j.TmpPerNode()) })},
		{'b', "trespernode gres", "TRES_PER_NODE", text(func(j *slurmcmd.Job) string { return cmp.Or(j.GresPerNode(), "N/A") })},
		{0, "tresperjob", "TRES_PER_JOB", text(func(j *slurmcmd.Job) string { return cmp.Or(j.GPUsInAll(), "N/A") })},
		{0, "trespertask", "TRES_PER_TASK", fixed("N/A")}, {0, "trespersocket", "TRES_PER_SOCKET", fixed("N/A")},
		{0, "tresperstep", "TRES_PER_STEP", fixed("N/A")}, {0, "tresbind", "TRES_BIND", fixed("N/A")}, {0, "tresfreq", "TRES_FREQ", fixed("N/A")},
		{0, "tresalloc tres", "TRES_ALLOC", text(func(j *slurmcmd.Job) string { return cmp.Or(j.AllocatedTRES(), j.RequestedTRES()) })},
		{0, "cpuspertask", "CPUS_PER_TASK", number(func(j *slurmcmd.Job) int64 { return int64(max(j.Request.GetCpusPerTask(), 1)) })},
		{0, "cpuspertres", "CPUS_PER_TRES", fixed("N/A")}, {0, "mempertres", "MEM_PER_TRES", fixed("N/A")},
		{0, "numtasks", "TASKS", number(tasks)},
		{0, "maxcpus", "MAX_CPUS", fixed("0")}, {0, "maxnodes", "MAX_NODES", number(func(j *slurmcmd.Job) int64 { return int64(max(j.Request.GetNodes(), j.Request.GetMaxNodes())) })},
		{0, "ntpernode", "NTASKS_PER_NODE", number(func(j *slurmcmd.Job) int64 { return int64(max(j.Request.GetTasksPerNode(), 1)) })},
		{0, "ntpercore", "NTASKS_PER_CORE", fixed("N/A")}, {0, "ntpersocket", "NTASKS_PER_SOCKET", fixed("N/A")}, {0, "ntperboard", "NTASKS_PER_BOARD", fixed("N/A")},
		{'H', "sockets", "SOCKETS_PER_NODE", fixed("*")}, {'I', "cores", "CORES_PER_SOCKET", fixed("*")}, {'J', "threads", "THREADS_PER_CORE", fixed("*")},
		{'z', "sct", "S:C:T", fixed("*:*:*")}, {'X', "corespec", "CORE_SPEC", fixed("N/A")},
		{'W', "licenses", "LICENSES", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.LicenceText()) })},
	}
}

func placeFields() []field {
	return []field{
		{'N', "nodelist nodes", "NODELIST", text((*slurmcmd.Job).NodeList)},
		{'B', "batchhost", "EXEC_HOST", text(func(j *slurmcmd.Job) string { return cmp.Or(j.BatchHost(), "n/a") })},
		{'n', "reqnodes", "REQ_NODES", text(func(j *slurmcmd.Job) string { return slurmcmd.Hosts(j.Request.GetNodeList()) })},
		{'x', "excnodes", "EXC_NODES", text(func(j *slurmcmd.Job) string { return slurmcmd.Hosts(j.Request.GetExclude()) })},
		{'Y', "schednodes", "SCHEDNODES", func(v *view, j *slurmcmd.Job) string {
			var names []string
			for _, h := range v.planned[j.Ref].GetHosts() {
				names = append(names, h.Node)
			}
			return slurmcmd.OrNull(slurmcmd.Hosts(names))
		}},
		{'f', "feature features", "FEATURES", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(cluster.FormatFeatures(j.Request.GetFeatures())) })},
		{0, "clusterfeature", "CLUSTER_FEATURES", fixed(slurmcmd.Null)}, {0, "prefer", "PREFER", fixed(slurmcmd.Null)},
		{'h', "oversubscribe", "OVER_SUBSCRIBE", text(func(j *slurmcmd.Job) string {
			if j.Request.GetExclusive() {
				return "NO"
			}
			return "OK"
		})},
		{'O', "contiguous", "CONTIGUOUS", fixed("0")},
		{0, "reqswitch", "REQ_SWITCH", number(func(j *slurmcmd.Job) int64 { return int64(j.Request.GetSwitches()) })},
		{0, "wait4switch", "WAIT4SWITCH", number(func(j *slurmcmd.Job) int64 { return max(j.Request.GetSwitchWait().GetSeconds(), 0) })},
	}
}

func otherFields() []field {
	return []field{
		{'o', "command", "COMMAND", text((*slurmcmd.Job).CommandLine)},
		{'Z', "workdir", "WORK_DIR", text(func(j *slurmcmd.Job) string { return j.WorkDir })},
		{0, "stdout", "STDOUT", text(func(j *slurmcmd.Job) string { return j.Output(false) })},
		{0, "stderr", "STDERR", text(func(j *slurmcmd.Job) string { return j.Output(true) })},
		{0, "stdin", "STDIN", fixed("/dev/null")},
		{0, "container", "CONTAINER", text(func(j *slurmcmd.Job) string { return j.Image })}, {0, "containerid", "CONTAINER_ID", fixed("")},
		{0, "allocnodes", "ALLOC_NODES", text(func(j *slurmcmd.Job) string { return j.SubmitHost })},
		{0, "allocsid", "ALLOC_SID", text(func(j *slurmcmd.Job) string { return fmt.Sprintf("%s:0", j.SubmitHost) })},
		{0, "batchflag", "BATCH_FLAG", fixed("1")}, {0, "reboot", "REBOOT", fixed("0")}, {0, "profile", "PROFILE", fixed("Not")},
		{0, "admincomment", "ADMIN_COMMENT", text(func(j *slurmcmd.Job) string { return slurmcmd.OrNull(j.AdminComment) })}, {0, "systemcomment", "SYSTEM_COMMENT", fixed(slurmcmd.Null)},
		{0, "burstbuffer", "BURST_BUFFER", fixed(slurmcmd.Null)}, {0, "burstbufferstate", "BURST_BUFFER_STATE", fixed(slurmcmd.Null)},
		{0, "network", "NETWORK", fixed(slurmcmd.Null)}, {0, "mcslabel", "MCSLABEL", fixed("N/A")}, {0, "delayboot", "DELAY_BOOT", fixed("00:00:00")},
		{0, "cpufreq", "CPU_FREQ", fixed("N/A")}, {0, "associd", "ASSOC_ID", fixed("0")}, {0, "origin", "ORIGIN", fixed("NA")}, {0, "resvport", "RESV_PORTS", fixed(slurmcmd.Null)},
	}
}
