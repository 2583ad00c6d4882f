package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/cluster"
)

// Bounds of a node's report.
const (
	maxNodeName    = 256
	maxNodeGPUs    = 1024
	maxNodeCPUs    = 1 << 16
	maxNodeMemory  = 1 << 50
	maxNodeWords   = 256 // features
	maxReportTasks = 1 << 16
)

// reportDiff is the change that a report makes.
type reportDiff struct {
	refusal *command.Refusal
	node    *cluster.Node // nil without a change
	jobs    []taskChange
	late    []credits.LateReport
	proven  []cluster.JobID // jobs without tasks on the node that could still run
	lease   *cluster.Lease  // with the notice that the cloud takes the node back; nil without a new one
}

// taskChange is a job with the task of a rank as reported, not yet advanced.
type taskChange struct {
	job  *cluster.Job
	rank int
}

// report applies a node's report of its tasks. Phases only grow, so a late or repeated report
// changes nothing. O((tasks of the node) log n).
func (s *State) report(c *command.ReportTasks) command.Result {
	n := s.reportDiffOf(c)
	if n.refusal != nil {
		return n.refusal
	}
	if n.node != nil {
		if old, _ := s.nodes.Get(c.Node); c.Conditions != nil {
			s.takeConditions(old.Conditions, n.node, c.Conditions)
		}
		s.putNode(n.node)
	}
	for _, x := range n.jobs {
		s.putTask(x)
	}
	for _, late := range n.late {
		s.credits.ApplyLateReport(s.now, late)
	}
	for _, id := range n.proven {
		s.proveJob(id, c.Node)
	}
	if n.lease != nil {
		s.noticeReclaim(n.lease.ID, c.Reclaim)
	}
	s.endAdopted(c.Node)
	return &command.Done{Version: s.index}
}

// putTask stores a job with the reported task, and moves it as far as its tasks allow. If it stays in its
// state, only the node of the task is notified. O(log n + tasks / 16).
func (s *State) putTask(x taskChange) {
	old, _ := s.holding.Get(x.job.ID)
	lost := x.job.Tasks.At(x.rank).Cause == cluster.TaskLost
	s.advance(x.job, x.rank)
	if x.job.State == cluster.Running && x.job.Alloc != old.Alloc { // a node has left it
		s.checkActivity(x.job)
	} else if x.job.State == cluster.Running {
		now, before := x.job.Tasks.At(x.rank), old.Tasks.At(x.rank)
		if old.State != cluster.Running || now.Inactive != before.Inactive || now.IdleGPUs != before.IdleGPUs || now.Output != before.Output {
			s.checkActivity(x.job)
		}
	}
	s.putResized(old, x.job, lost)
	if s.unwatched || x.job.State != old.State || x.job.Members != old.Members {
		return
	}
	s.effects.Changed[len(s.effects.Changed)-1].Node = x.job.Tasks.At(x.rank).Node // the change that put has added
}

// reportDiffOf compares a report with the state, which does not change.
func (t *tables) reportDiffOf(c *command.ReportTasks) reportDiff {
	old, known := t.nodes.Get(c.Node)
	switch {
	case !known:
		return reportDiff{refusal: command.Refusef(command.NotFound, "node %q is not registered", c.Node)}
	case c.Epoch != old.Epoch:
		return reportDiff{refusal: command.Refusef(command.Conflict, "node %q is registered under epoch %d, not %d", c.Node, old.Epoch, c.Epoch)}
	case len(c.Tasks) > maxReportTasks:
		return reportDiff{refusal: command.Refusef(command.InvalidArgument, "a report of %d tasks, at most %d", len(c.Tasks), maxReportTasks)}
	}
	if why := gpuFault(c.GPUs); why != "" {
		return reportDiff{refusal: command.Refuse(command.InvalidArgument, why, "")}
	}
	var result reportDiff
	seen := make(map[cluster.JobID]none, len(c.Tasks))
	var leftovers int32
	for i := range c.Tasks {
		r := &c.Tasks[i]
		j, found := t.holding.Get(r.Job)
		rank := -1
		if found && j.Attempt == r.Attempt {
			if rank = t.rankOf(j.ID, c.Node); rank >= 0 && !r.OfGrant(j.GrantOf(rank)) {
				rank = -1
			}
		}
		if _, duplicate := seen[r.Job]; duplicate && rank >= 0 {
			continue
		}
		if rank < 0 || j.Tasks.At(rank).Phase == cluster.TaskClean {
			if r.Task.Phase < cluster.TaskClean {
				leftovers++
			}
			if late, is := t.credits.LateReportOf(c.Node, r); is {
				result.late = append(result.late, late)
			}
			continue
		}
		seen[r.Job] = none{}
		task, grew := t.merge(j, rank, r)
		if r.Stuck && task.Phase == cluster.TaskEnded { // the rest of it keeps the node out of service
			task.Phase, grew = cluster.TaskClean, true
			leftovers++
		}
		steps, ended := mergeSteps(j.Steps, rank, r.Steps, t.now)
		if grew || ended {
			x := withTask(j, rank, task)
			x.job.Steps = steps
			result.jobs = append(result.jobs, x)
		}
	}
	for k, rank := range t.onNode.From(nodeJob{c.Node, 0}) {
		if k.node != c.Node || c.Seen == 0 { // it has received no job yet, so none is missing
			break
		}
		if _, reported := seen[k.id]; reported {
			continue
		}
		j, _ := t.holding.Get(k.id)
		if task := j.Tasks.At(rank); j.GrantOf(rank) <= c.Seen && task.Phase < cluster.TaskClean {
			result.jobs = append(result.jobs, withTask(j, rank, gone(*task, "the task is no longer on the node")))
		}
	}
	slices.SortFunc(result.jobs, func(a, b taskChange) int { return cmp.Compare(a.job.ID, b.job.ID) })
	result.node = changed(old, c, leftovers)
	result.proven = provenBy(old, c)
	if l, known := t.leases.Get(old.Rental.Lease); known && c.Reclaim > 0 {
		result.lease = t.leaseEnv().Reclaimed(l, c.Reclaim)
	}
	return result
}

// SameGrant reports whether a task that a node reports belongs to the job's current attempt.
func (v *View) SameGrant(node string, r *command.TaskReport) bool {
	j, found := v.holding.Get(r.Job)
	if !found || j.Attempt != r.Attempt {
		return false
	}
	rank := v.rankOf(j.ID, node)
	return rank >= 0 && r.OfGrant(j.GrantOf(rank))
}

// changed returns the node as reported; nil if it did not change.
func changed(old *cluster.Node, c *command.ReportTasks, leftovers int32) *cluster.Node {
	fault := command.Sanitize(c.Fault)
	sameHealth := c.Conditions == nil || slices.Equal(old.Conditions, sanitizeConditions(c.Conditions))
	if old.Fault == fault && old.Orphans == leftovers && (c.GPUs == nil || slices.Equal(old.GPUs, c.GPUs)) && sameHealth {
		return nil
	}
	n := *old
	n.Fault, n.Orphans = fault, leftovers
	if c.GPUs != nil {
		n.GPUs = c.GPUs
	}
	return &n
}

// rankOf returns the position of a node in a job's allocation; -1 if it is not in it. O(log n).
func (x *nodeTables) rankOf(id cluster.JobID, node string) int {
	if rank, found := x.onNode.Get(nodeJob{node, id}); found {
		return rank
	}
	return -1
}

// withTask returns a copy of j with another task.
func withTask(j *cluster.Job, rank int, task cluster.Task) taskChange {
	c := *j
	c.Tasks = j.Tasks.With(rank, task)
	return taskChange{&c, rank}
}

// merge returns the task after a report, and whether the report advances it.
func (t *tables) merge(j *cluster.Job, rank int, said *command.TaskReport) (cluster.Task, bool) {
	task, r := *j.Tasks.At(rank), said.Task
	if r.Phase == cluster.TaskWanted && task.Phase == cluster.TaskWanted { // what its start waits for
		before := task.Message
		task.Message = command.Sanitize(r.Message)
		return task, task.Message != before
	}
	if r.Phase <= task.Phase {
		return t.gauge(j, rank, r)
	}
	task.GPU = t.used(j, rank, r)
	task.Inactive, task.IdleGPUs, task.Output = 0, 0, 0
	if task.Phase < cluster.TaskEnded {
		task.Cause, task.Exit, task.Message = r.Cause, r.Exit, command.Sanitize(r.Message)
		task.Ran = max(0, said.Ran)
	}
	if task.Started == 0 {
		task.Started = r.Started
	}
	if task.Ended == 0 {
		task.Ended = r.Ended
	}
	task.Memory, task.CPUTime = max(task.Memory, r.Memory), max(task.CPUTime, r.CPUTime)
	task.User = max(task.User, r.User)
	never := task.Phase == cluster.TaskWanted && r.Phase >= cluster.TaskClean && r.Cause == cluster.NoCause
	task.Phase = min(r.Phase, cluster.TaskClean)
	if task.Copied = min(r.Copied, cluster.CopyFailed); task.Copied == cluster.CopyFailed {
		task.Message = command.Sanitize(r.Message)
	}
	switch {
	case task.Cause > cluster.MaxTaskCause:
		task.Cause = cluster.TaskLost
	case never && j.State != cluster.Completing:
		task.Cause, task.Message = cluster.TaskLost, "the node does not know the task"
	}
	return task, true
}

// gaugeSpacing is the growth of the known time of each GPU of a running task that is worth a log
// entry; after long runs, a sixteenth. So the log grows with the logarithm of a job's length. Jobs
// of many nodes, whose changes cost more, are updated less often.
const gaugeSpacing = int64(time.Minute / time.Millisecond)

// gauge returns a running task with its GPU usage so far, and whether the growth is worth a log
// entry. That follows from the report alone: the log's clock may stand still.
func (t *tables) gauge(j *cluster.Job, rank int, r cluster.Task) (cluster.Task, bool) {
	task, gpus := *j.Tasks.At(rank), int64(len(j.Alloc.Nodes[rank].GPUs))
	if r.Phase != cluster.TaskStarted || task.Phase != cluster.TaskStarted {
		return task, false
	}
	was := task
	task.Inactive, task.IdleGPUs = min(r.Inactive, cluster.InactiveForLimit), min(max(0, r.IdleGPUs), int32(gpus))
	task.Output = min(r.Output, cluster.MaxOutputLevel)
	changed := task.Inactive != was.Inactive || task.IdleGPUs != was.IdleGPUs || task.Output != was.Output
	if gpus == 0 {
		return task, changed
	}
	least := int64(j.Tasks.Len()/64) * gaugeSpacing // the first of a small job at once
	if task.GPU.Known() {
		least = max(least+gaugeSpacing, task.GPU.KnownMs/gpus/16)
	}
	if more := max(0, r.GPU.KnownMs) - task.GPU.KnownMs; more <= 0 || more/gpus < least {
		return task, changed
	}
	task.GPU = t.used(j, rank, r)
	return task, true
}

// used returns the GPU usage of a task after a report. Impossible values are cut: more time than
// the GPUs had since the job started, or more memory than they have.
func (t *tables) used(j *cluster.Job, rank int, r cluster.Task) cluster.GPUUse {
	a, old := &j.Alloc.Nodes[rank], j.Tasks.At(rank).GPU
	if len(a.GPUs) == 0 {
		return old
	}
	most := cluster.Bytes(0)
	if n, known := t.nodes.Get(a.Node); known {
		for _, g := range a.GPUs {
			if int(g) < len(n.GPUs) {
				most = max(most, n.GPUs[g].Memory)
			}
		}
	}
	if most == 0 {
		most = maxNodeMemory
	}
	millis := int64(max(0, t.now.Sub(j.Started)) / time.Millisecond)
	return old.Later(r.GPU.Within(int64(len(a.GPUs))*millis, most))
}

// gone returns a task about which nothing more can become known. What was known of its end is kept.
func gone(t cluster.Task, why string) cluster.Task {
	if t.Phase < cluster.TaskEnded {
		t.Cause, t.Message = cluster.TaskLost, why
	}
	t.Phase = cluster.TaskClean
	return t
}

// loseTasks marks all tasks on a node as lost. Unless they are proven to have ended, the next attempts of their jobs
// wait for proof.
func (s *State) loseTasks(node, why string, proven bool) {
	var lost []taskChange
	for k, rank := range s.onNode.From(nodeJob{node, 0}) {
		if k.node != node {
			break
		}
		j, _ := s.holding.Get(k.id)
		if task := j.Tasks.At(rank); task.Phase < cluster.TaskClean {
			lost = append(lost, withTask(j, rank, gone(*task, why)))
		}
	}
	for _, x := range lost {
		if !proven {
			s.awaitProof(x.job, node)
		}
		s.putTask(x)
	}
}

// gpuFault returns what is wrong with a list of GPUs; "" if nothing is.
func gpuFault(gpus []cluster.GPU) string {
	if len(gpus) > maxNodeGPUs {
		return "more than 1024 GPUs on one node"
	}
	for i, g := range gpus {
		if g.Index != int32(i) || g.Memory < 0 || g.Memory > maxNodeMemory {
			return "the GPUs of a node are not listed by index, or have an impossible memory size"
		}
		if strings.ContainsRune(g.Type+g.ParentType, '@') { // the name of a part of a GPU
			return "a GPU has a type with @"
		}
	}
	return ""
}
