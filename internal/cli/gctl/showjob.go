package gctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// showJobs prints jobs; an unknown one does not hide the others.
func (t commands) showJobs(ctx context.Context, c ui.Cluster, args []string) error {
	refs, err := ui.Refs(args)
	if err != nil {
		return err
	}
	var found []*greylagv1.Job
	var asOf *greylagv1.AsOf // of the last answer
	var missing error
	for _, ref := range refs {
		answer, err := c.Jobs().GetJob(ctx, &greylagv1.GetJobRequest{Job: ref, Read: t.Read()})
		if err != nil {
			if len(refs) == 1 {
				return err
			}
			if ui.NoAnswer(err) { // nor for the others
				missing = err
				break
			}
			t.Finish(ctx, err)
			missing = ui.Exit(ui.Failed)
			continue
		}
		found, asOf = append(found, answer.Jobs...), answer.AsOf
	}
	t.TellStale(asOf)
	if t.JSON {
		all := []ui.JobJSON{}
		for _, j := range found {
			all = append(all, ui.JobOf(j))
		}
		if err := t.WriteJSON(struct {
			Jobs []ui.JobJSON `json:"jobs"`
		}{all}); err != nil {
			return err
		}
		return missing
	}
	for _, j := range found {
		if err := t.Facts("job "+j.Ref, t.jobFacts(j)); err != nil {
			return err
		}
	}
	return missing
}

func (t commands) jobFacts(j *greylagv1.Job) [][2]string {
	facts := [][2]string{
		{"name", j.Name}, {"user", fmt.Sprintf("%s (%d), group %d", j.User, j.Uid, j.Gid)}, {"account", j.Account},
		{"partition", j.Partition}, {"reservation", j.Reservation}, {"qos", j.Qos}, {"state", t.stateText(j)}, {"warning", t.warningText(j)}, {"held by", wire.Word(j.Hold)}, {"cancelled by", j.Requester},
		{"exit", exitText(j)}, {"attempt", attemptText(j)}, {"last attempt", lastAttemptText(j)}, {"requests", requestText(j.Request)}, {"elastic", ui.ElasticText(j)}, {"burst", ui.BurstText(j)},
		{"time limit", cluster.FormatLimit(j.TimeLimit.AsDuration())},
		{"submitted", t.FormatTime(j.Submitted)}, {"from host", j.SubmitHost}, {"not before", t.FormatTime(j.Begin)}, {"deadline", t.FormatTime(j.Deadline)}, {"nice", niceText(j.Nice)},
		{"waits for", dependsText(j)},
	}
	if j.State == greylagv1.JobState_JOB_STATE_PENDING {
		planned := t.FormatTime(j.Planned)
		if j.Promised {
			planned += ", promised"
		}
		facts = append(facts, [2]string{"planned start", planned})
	} else {
		facts = append(facts, [2]string{"started", t.FormatTime(j.Started)})
	}
	facts = append(facts, limitFacts(j, t.Now())...)
	facts = append(facts, [2]string{"ended", t.FormatTime(j.Ended)}, [2]string{"lien", asideText(t, j)}, [2]string{"charged", chargedText(j)})
	if j.ArrayId != 0 {
		facts = append(facts, [2]string{"array", fmt.Sprintf("%d, index %d", j.ArrayId, j.ArrayIndex)})
	}
	for rank, n := range j.Nodes {
		facts = append(facts, [2]string{fmt.Sprintf("node %d", rank), nodeUse(n)})
	}
	facts = append(facts, t.leavingFacts(j)...)
	facts = append(facts, [2]string{"GPUs busy", busyText(ui.GPUUseOf(j.Tasks), j)}, [2]string{"idle GPUs", t.idleText(j)})
	for _, task := range j.Tasks {
		if task.Message != "" || task.ExitCode != 0 || task.ExitSignal != 0 || task.MemoryPeak != 0 || task.GpuKnownMs != 0 && len(j.Tasks) > 1 {
			facts = append(facts, [2]string{"on " + task.Node, taskText(task)})
		}
	}
	for _, step := range j.Steps {
		facts = append(facts, [2]string{fmt.Sprintf("step %s.%s", j.Ref, cluster.FormatStep(step.Id)), t.stepText(step)})
	}
	facts = append(facts, [][2]string{
		{"image", j.Image}, {"command", j.Command}, {"arguments", strings.Join(j.Args, " ")}, {"directory", j.WorkDir}, {"output", ui.OutputPath(j, j.Output)}, {"error output", ui.OutputPath(j, j.Error)},
	}...)
	if len(j.MailTypes) > 0 {
		facts = append(facts, [2]string{"notifies", cmp.Or(j.MailUser, j.User) + " of " + strings.Join(ui.MailWords(j), ", ")})
	}
	facts = append(facts, [2]string{"secrets", strings.Join(j.Secrets, ", ")}, [2]string{"mounts", strings.Join(ui.MountWords(j), ", ")})
	facts = append(facts, [2]string{"stage in", strings.Join(ui.StagingWords(j.StageIn), ", ")}, [2]string{"stage out", strings.Join(ui.StagingWords(j.StageOut), ", ")})
	facts = append(facts, [2]string{"checkpoints", t.checkpointText(j)}, [2]string{"checkpoint signal", ui.SignalText(j)}, [2]string{"at the limit", atLimitText(j)}, [2]string{"retries", ui.RetryText(j)})
	if len(j.UnfencedNodes) > 0 {
		facts = append(facts, unfencedFact(j))
	}
	for _, a := range j.AvoidedNodes {
		facts = append(facts, [2]string{"avoids", fmt.Sprintf("%s until %s, attempt %d failed there", a.Node, t.FormatTime(a.Until), a.Attempt)})
	}
	for _, p := range ui.JobProperties() {
		facts = append(facts, [2]string{strings.ToLower(p.Name), p.Of(j)})
	}
	if j.AdminComment != "" {
		facts = append(facts, [2]string{"admin comment", j.AdminComment})
	}
	return facts
}

// unfencedFact says on which lost nodes tasks of a job may still run. Only its next attempt waits for proof.
func unfencedFact(j *greylagv1.Job) [2]string {
	nodes := hostlist.Compress(j.UnfencedNodes)
	if s := j.State; s == greylagv1.JobState_JOB_STATE_RUNNING || s == greylagv1.JobState_JOB_STATE_CONFIGURING {
		return [2]string{"lost nodes", nodes + " (not fenced: the task may still be running); the job continues without them"}
	}
	return [2]string{"waits for", "proof that its last attempt does not run on " + nodes}
}

// warningText describes what the user of a running job should know; "" for nothing.
func (t commands) warningText(j *greylagv1.Job) string {
	if j.Warning == "" {
		return ""
	}
	return j.Warning + "; since about " + t.FormatTime(j.WarningSince)
}

// idleText describes how long GPUs of a job had no program; "" if no node noticed any.
func (t commands) idleText(j *greylagv1.Job) string {
	if j.IdleGpus == nil {
		return ""
	}
	idle := wire.ReadIdle(j.IdleGpus)
	if idle.GPUs == 0 && idle.Ms == 0 {
		return ""
	}
	text := accounting.IdleText(&idle, cluster.InstantOf(t.Now()))
	if idle.GPUs > 0 {
		text += fmt.Sprintf(" so far, %d now", idle.GPUs)
	}
	return text
}

// leavingFacts lists the nodes that leave an elastic job.
func (t commands) leavingFacts(j *greylagv1.Job) (facts [][2]string) {
	for _, x := range j.Members.GetList() {
		if x.Leaves != nil {
			facts = append(facts, [2]string{"leaves", fmt.Sprintf("%s at %s: %s", x.Node, t.FormatTime(x.Leaves), x.Why)})
		}
	}
	return facts
}

// atLimitText describes what happens at the time limit of a job that may continue then.
func atLimitText(j *greylagv1.Job) string {
	if !j.RequeueAtLimit {
		return ""
	}
	return "requeued if this attempt has a checkpoint of a later step"
}

// stepText describes a step of a job.
func (t commands) stepText(step *greylagv1.Step) string {
	tasks, gpus := int32(0), 0
	var nodes []string
	for _, n := range step.Nodes {
		tasks, gpus, nodes = tasks+n.Tasks, gpus+len(n.Gpus), append(nodes, n.Node)
	}
	words := []string{fmt.Sprintf("%s %s on %s, tasks %d, GPUs %d", step.Name, wire.Word(step.State), hostlist.Compress(nodes), tasks, gpus)}
	if step.ExitCode != 0 || step.ExitSignal != 0 {
		words = append(words, fmt.Sprintf("exit %d:%d", step.ExitCode, step.ExitSignal))
	}
	if step.Requester != "" {
		words = append(words, "ended by "+step.Requester)
	}
	words = append(words, "started "+t.FormatTime(step.Started))
	if step.Ended != nil {
		words = append(words, "ran "+cluster.FormatElapsed(step.Ended.AsTime().Sub(step.Started.AsTime())))
	}
	return strings.Join(words, ", ")
}

// checkpointText describes the newest checkpoint of a job that is not damaged; "" for a job without any and
// without a directory for them.
func (t commands) checkpointText(j *greylagv1.Job) string {
	text, damaged := "", 0
	for _, k := range j.Checkpoints {
		if k.State == greylagv1.CheckpointState_CHECKPOINT_STATE_DAMAGED {
			damaged++
			continue
		}
		text = fmt.Sprintf("%d of %s", k.Number, t.FormatTime(k.Committed))
		if k.Step != nil {
			text += fmt.Sprintf(", step %d", *k.Step)
		}
	}
	switch {
	case text == "" && damaged == 0 && j.CheckpointDir == "":
		return ""
	case text == "":
		text = "none"
	}
	if damaged > 0 {
		text += fmt.Sprintf("; %d damaged", damaged)
	}
	if j.Resume != 0 {
		text += fmt.Sprintf("; resumed from %d", j.Resume)
	}
	if j.CheckpointDir != "" {
		text += "; in " + ui.OutputPath(j, j.CheckpointDir)
	}
	return text
}

// dependsText lists the dependencies of a job.
func dependsText(j *greylagv1.Job) string {
	words := ui.DependencyWords(j.Depends)
	if len(words) > 1 && j.Depends[0].Any {
		return "one of " + strings.Join(words, ", ")
	}
	return strings.Join(words, ", ")
}

// busyText describes how busy the GPUs of a job were, and their memory use.
func busyText(u cluster.GPUUse, j *greylagv1.Job) string {
	if !slices.ContainsFunc(j.Nodes, func(n *greylagv1.NodeAllocation) bool { return len(n.Gpus) > 0 }) {
		return ""
	}
	var words []string
	if u.Known() {
		words = append(words, fmt.Sprintf("%s %% of %s of GPU time", ui.BusyPercent(u), cluster.FormatElapsed(time.Duration(u.KnownMs)*time.Millisecond)))
	}
	if u.MemoryKnown {
		words = append(words, fmt.Sprintf("at most %d MiB of memory per GPU", u.MemoryPeak/cluster.MiB))
	}
	return strings.Join(words, ", ")
}

// asideText describes a job's lien, and how long it lasts while the job runs.
func asideText(t commands, j *greylagv1.Job) string {
	if j.Lien == 0 {
		return ""
	}
	text := tool.FormatCredits(j.Lien) + " credits"
	if len(j.PaidIn) > 0 {
		text += ", only for partition " + strings.Join(j.PaidIn, ", ")
	}
	if j.FundedUntil != nil {
		text += ", sufficient until " + t.FormatTime(j.FundedUntil)
	}
	return text
}

func chargedText(j *greylagv1.Job) string {
	if j.Charged == 0 {
		return ""
	}
	return tool.FormatCredits(j.Charged) + " credits"
}

func (t commands) stateText(j *greylagv1.Job) string {
	text := wire.Word(j.State)
	if j.Reason != greylagv1.Reason_REASON_UNSPECIFIED && j.Reason != greylagv1.Reason_REASON_NONE {
		text += ", " + wire.Word(j.Reason)
	}
	detail := j.Detail
	if wire.Word(j.State) == cluster.Pending.String() {
		detail = ui.WaitText(j, t.FormatTime)
	}
	if detail != "" {
		text += ": " + detail
	}
	return text
}

func exitText(j *greylagv1.Job) string {
	state, err := cluster.ParseJobState(wire.Word(j.State))
	switch {
	case err != nil || !state.Final() || j.Started == nil:
		return ""
	case j.ExitSignal != 0:
		return ui.SignalWords(j.ExitSignal)
	}
	return fmt.Sprintf("status %d", j.ExitCode)
}

// failureText describes the exit of a script that failed or was stopped; "" for exit status 0.
func failureText(code, signal int32) string {
	switch {
	case signal != 0:
		return ui.SignalWords(signal)
	case code != 0:
		return fmt.Sprintf("exit status %d", code)
	}
	return ""
}

func attemptText(j *greylagv1.Job) string {
	if j.Restarts == 0 {
		return ""
	}
	text := fmt.Sprintf("%d, %s", j.Attempt, ui.Count(int64(j.Restarts), "restart"))
	if causes := wire.ReadRestartCauses(j.RestartCauses).Words(); causes != "" {
		text += ": " + causes
	}
	return text
}

// lastAttemptText describes how the attempt before the current or next one ended; "" if the job's state does.
func lastAttemptText(j *greylagv1.Job) string {
	a := j.LastAttempt
	if a == nil || a.Nodes == "" && a.Detail != "" && strings.Contains(j.Detail, a.Detail) {
		return ""
	}
	text := fmt.Sprintf("%d, %s", a.Attempt, wire.Word(a.Outcome))
	if exit := failureText(a.ExitCode, a.ExitSignal); exit != "" {
		text += ", " + exit
	}
	if a.Nodes != "" {
		text += ", on " + a.Nodes
	}
	if a.Detail != "" && strings.Contains(j.Detail, a.Detail) {
		return text
	}
	if a.Detail != "" {
		text += ": " + a.Detail
	}
	return text
}

// memoryWords describes the source of a job's memory when it requested no size.
func memoryWords(q *greylagv1.Request) []string {
	switch source, _ := cluster.ParseMemorySource(wire.Word(q.GetMemory())); source {
	case cluster.MemoryAll:
		return []string{"all memory of each node"}
	case cluster.MemoryShare:
		by := "CPUs"
		if q.GetGpus() > 0 || q.GetGpusPerNode() > 0 {
			by = "GPUs"
		}
		return []string{"its share of each node's memory, by " + by}
	case cluster.MemoryOfPartition:
		return []string{"memory by the partition's default"}
	}
	return nil
}

func requestText(q *greylagv1.Request) string {
	var words []string
	add := func(n int32, noun, rest string) {
		if n > 1 {
			noun += "s"
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s%s", n, noun, rest))
		}
	}
	gpu := strings.TrimSpace(strings.Join(q.GetGpuTypes(), " or ") + " GPU")
	if most := q.GetMaxNodes(); most > 0 {
		words = append(words, fmt.Sprintf("%d to %d nodes", q.GetNodes(), most))
	} else {
		add(q.GetNodes(), "node", "")
	}
	add(q.GetGpus(), gpu, " in total")
	add(q.GetGpusPerNode(), gpu, " per node")
	if share := ui.ShareWords(q); share != "" {
		words = append(words, share)
	}
	add(q.GetTasksPerNode(), "task", " per node")
	add(q.GetCpusPerTask(), "CPU", " per task")
	for _, m := range []struct {
		n    int64
		what string
	}{{q.GetMemPerNode(), "node"}, {q.GetMemPerCpu(), "CPU"}, {q.GetMemPerGpu(), "GPU"}} {
		if m.n > 0 {
			words = append(words, fmt.Sprintf("%s memory per %s", cluster.Bytes(m.n), m.what))
		}
	}
	words = append(words, memoryWords(q)...)
	words = append(words, ui.PlaceWords(q)...)
	if len(q.GetFeatures()) > 0 {
		words = append(words, "features "+cluster.FormatFeatures(q.GetFeatures()))
	}
	if len(q.GetNodeList()) > 0 {
		words = append(words, "on "+strings.Join(q.GetNodeList(), ","))
	}
	if len(q.GetExclude()) > 0 {
		words = append(words, "not on "+strings.Join(q.GetExclude(), ","))
	}
	if q.GetExclusive() {
		words = append(words, "exclusive")
	}
	return strings.Join(words, ", ")
}

func nodeUse(n *greylagv1.NodeAllocation) string {
	words := []string{n.Node}
	if len(n.Gpus) > 0 {
		words = append(words, "GPUs "+strings.Trim(strings.ReplaceAll(fmt.Sprint(n.Gpus), " ", ","), "[]"))
	}
	if n.Cpus > 0 {
		words = append(words, ui.Count(int64(n.Cpus), "CPU"))
	}
	if n.Memory > 0 {
		words = append(words, cluster.Bytes(n.Memory).String()+" memory")
	}
	return strings.Join(words, ", ")
}

// taskWords has the phases and causes of tasks that people read in other words than programs.
var taskWords = map[string]string{
	"wanted": "not started yet", "clean": "cleaned up", "memory": "killed for memory", "launch": "could not be started",
	"node": "node fault", "gpu": "GPU fault", "image": "image not available", "lost": "exit status lost",
}

func taskText(task *greylagv1.Task) string {
	phase, cause := wire.Word(task.Phase), wire.Word(task.Cause)
	words := []string{cmp.Or(taskWords[phase], phase)}
	if task.Cause != greylagv1.TaskCause_TASK_CAUSE_UNSPECIFIED {
		words = append(words, cmp.Or(taskWords[cause], cause))
	}
	switch {
	case task.ExitSignal != 0:
		words = append(words, ui.SignalWords(task.ExitSignal))
	case task.Phase == greylagv1.TaskPhase_TASK_PHASE_ENDED || task.Phase == greylagv1.TaskPhase_TASK_PHASE_CLEAN:
		words = append(words, fmt.Sprintf("status %d", task.ExitCode))
	}
	if task.MemoryPeak > 0 {
		words = append(words, fmt.Sprintf("at most %d MiB memory", task.MemoryPeak>>20))
	}
	if cpu := task.CpuTime.AsDuration(); cpu > 0 {
		words = append(words, cpu.Round(time.Millisecond).String()+" CPU time")
	}
	if percent := ui.BusyPercent(ui.GPUUseOf([]*greylagv1.Task{task})); percent != "" {
		words = append(words, "GPUs "+percent+" % busy")
	}
	if task.Message != "" {
		words = append(words, task.Message)
	}
	return strings.Join(words, ", ")
}

// niceText returns the nice value of a job, or "" for the usual 0.
func niceText(nice int32) string {
	if nice == 0 {
		return ""
	}
	return strconv.Itoa(int(nice))
}

// limitFacts returns the latest end of a running job by its time limit, and the time left until then.
func limitFacts(j *greylagv1.Job, now time.Time) [][2]string {
	limit := j.TimeLimit.AsDuration()
	if wire.Word(j.State) != cluster.Running.String() || j.Started == nil || cluster.FormatLimit(limit) == "UNLIMITED" {
		return nil
	}
	end := j.Started.AsTime().Add(limit)
	return [][2]string{
		{"latest end", end.In(now.Location()).Format(ui.TimeLayout)},
		{"time left", cluster.FormatElapsed(max(end.Sub(now), 0))},
	}
}
