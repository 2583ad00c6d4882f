package reliability

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// The QOS of the large job, and of jobs that may preempt others.
const (
	gangQOS   = "premium"
	urgentQOS = "production"
)

// mostExtra is the most extra nodes of an elastic job.
const mostExtra = 4

// userSignal is SIGUSR1, by which a job that is preempted learns of it.
const userSignal = 10

// slot is a series of jobs of one size: the next is submitted when one has ended. So the cluster is as full
// as the model says.
type slot struct {
	index       int
	nodes       int32
	gpus        int32 // per node
	mean        time.Duration
	saves       bool // it writes checkpoints
	n           uint64
	job         cluster.JobID
	work        time.Duration
	damaged     map[uint32]bool // its checkpoints that cannot be used
	reached     time.Duration   // by the last attempt
	saved       time.Duration   // the newest checkpoint that can be used
	points      map[uint32]time.Duration
	cause       string          // of the last attempt's end; "" in the first
	stalledAt   cluster.Instant // when the last attempt stopped working
	verdict     cluster.Instant // when its end was decided
	eligible    cluster.Instant // when it may start again
	pending     cluster.Instant // since when it is pending
	urgent      bool
	elastic     bool
	firstWorked cluster.Instant // when the first attempt began to work
}

// gang reports whether the slot is the large job.
func (s *slot) gang() bool { return s.index == 0 && s.mean == 0 }

// sizes is the mix of the other jobs by the part of their nodes: nodes, GPUs on each, mean run time.
var sizes = []struct {
	part        float64
	nodes, gpus int32
	mean        time.Duration
}{{0.25, 8, 8, 24 * time.Hour}, {0.2, 4, 8, 12 * time.Hour}, {0.2, 2, 8, 8 * time.Hour}, {0.25, 1, 8, 8 * time.Hour}, {0.1, 1, 4, 8 * time.Hour}}

// addSlots divides the nodes among jobs.
func (x *simulation) addSlots() {
	m := x.m
	if m.Gang > 0 {
		x.slots = append(x.slots, &slot{nodes: int32(m.Gang), gpus: int32(m.GPUs), saves: true})
	}
	free := float64(m.Nodes - m.Gang - m.Spare + m.Excess)
	left := free
	for i, size := range sizes {
		each := float64(size.nodes) * float64(min(size.gpus, int32(m.GPUs))) / float64(m.GPUs)
		count := int(free*size.part/each + 1e-9)
		if i == len(sizes)-2 { // jobs of one node take what does not divide evenly
			count = int(left - free*sizes[len(sizes)-1].part + 1e-9)
		}
		for range count {
			left -= each
			x.slots = append(x.slots, &slot{index: len(x.slots), nodes: size.nodes, gpus: min(size.gpus, int32(m.GPUs)), mean: size.mean, saves: size.nodes > 1})
		}
	}
}

// submit submits the next job of a slot.
func (x *simulation) submit(s *slot) error {
	s.n++
	r := x.streams.For(streamJobs, uint64(s.index), s.n)
	*s = slot{index: s.index, nodes: s.nodes, gpus: s.gpus, mean: s.mean, saves: s.saves, n: s.n, damaged: map[uint32]bool{}, points: map[uint32]time.Duration{}, pending: x.Now}
	spec := cluster.JobSpec{
		Name: "job", Owner: cluster.Identity{User: fmt.Sprintf("user%d", s.index%8), UID: 10_001 + uint32(s.index%8), GID: 10_001}, Requeue: true,
		Request: cluster.Request{Nodes: s.nodes, GPUsPerNode: s.gpus, TasksPerNode: 1, CPUsPerTask: s.gpus},
		Retry:   cluster.Retry{Limit: 10, AnyExit: true},
	}
	if s.gang() {
		spec.Name, spec.QOS, spec.TimeLimit, s.work = "training", gangQOS, 2*x.m.Days, cluster.Never.Sub(x.Now)
	} else {
		s.work = min(max(faults.Within(r, s.mean), 10*time.Minute), 3*s.mean)
		spec.TimeLimit = 4 * s.mean
		if s.elastic = s.gpus == int32(x.m.GPUs) && faults.Yes(x.streams.For(streamElastic, uint64(s.index), s.n), x.m.Elastic); s.elastic {
			spec.Request.MaxNodes, spec.Elastic = s.nodes+mostExtra, cluster.Elastic{Step: 1}
		}
		if s.urgent = faults.Yes(r, x.m.Urgent); s.urgent {
			spec.QOS = urgentQOS
		}
	}
	if s.saves {
		spec.CheckpointDir = "/checkpoints/%j"
		spec.CheckpointSignal = cluster.WarnSignal{Number: userSignal, Before: 2 * time.Minute}
	}
	answer, err := x.Apply(&command.SubmitJobs{Actor: command.Actor{Identity: spec.Owner, Source: "simulation"}, Jobs: []command.Submission{{Spec: spec}}})
	if err != nil {
		return err
	}
	a, ok := answer.(*command.Submitted)
	if !ok {
		return sim.RefusalError(answer)
	}
	s.job = a.First[0]
	x.slotOf[s.job] = s
	x.r.Jobs++
	return nil
}

// program is the program of an attempt, from the instant at which all its tasks run.
type program struct {
	slot    *slot
	id      sim.TaskID
	hosts   []*host
	started cluster.Instant // of the attempt
	done    time.Duration   // progress until since
	since   cluster.Instant // it works since then; 0: it does not
	stalled *failure        // it will not work again
	ending  bool            // it saves its work since it is preempted
	version int             // of its next event
	number  int             // of its checkpoints in this attempt
}

// progress returns how far the program has come.
func (p *program) progress(now cluster.Instant) time.Duration {
	if p.since == 0 {
		return p.done
	}
	return p.done + now.Sub(p.since)
}

// pause stops the work of a program, and voids its next event.
func (p *program) pause(now cluster.Instant) {
	p.done, p.since = p.progress(now), 0
	p.version++
}

// later schedules the next event of a program; a pause voids it.
func (x *simulation) later(p *program, d time.Duration, do func() error) {
	p.version++
	version := p.version
	x.In(d, func() error {
		if p.version != version || x.programs[p.id.Job] != p {
			return nil
		}
		return do()
	})
}

// jobChanged follows a job: its nodes start and stop its tasks, and its program begins and ends.
func (x *simulation) jobChanged(old, j *cluster.Job) error {
	s := x.slotOf[j.ID]
	if s == nil || old == nil {
		return nil
	}
	if old.State != j.State || old.Attempt != j.Attempt {
		alloc := j.Alloc
		if alloc == nil {
			alloc = old.Alloc
		}
		for i := 0; alloc != nil && i < len(alloc.Nodes); i++ {
			x.wakeHost(x.named[alloc.Nodes[i].Node])
		}
	}
	if old.Members != nil && j.Members != nil && old.Attempt == j.Attempt && old.Members != j.Members {
		x.membersChanged(old, j)
	}
	if old.State.HasAllocation() && !j.State.HasAllocation() {
		x.attemptEnded(s, old, j)
	}
	switch {
	case old.State == cluster.Pending && j.State == cluster.Configuring:
		delete(x.preemptors, j.ID)
		x.recordStart(s)
	case old.State == cluster.Configuring && j.State == cluster.Running:
		x.begin(s, j)
	case j.Preempting != nil && old.Preempting == nil:
		x.followNotice(x.programs[j.ID])
	case j.State == cluster.Pending && old.State != cluster.Pending:
		s.pending, s.eligible = x.Now, j.Eligible
	case j.State.Final():
		return x.jobEnded(s, j)
	}
	if j.State == cluster.Pending && j.Hold != cluster.NotHeld && old.Hold == cluster.NotHeld {
		x.held(s, j)
	}
	return nil
}

// membersChanged wakes the nodes that an elastic job had or has.
func (x *simulation) membersChanged(old, j *cluster.Job) {
	if n := len(j.Alloc.Nodes) - len(old.Alloc.Nodes); n > 0 {
		x.r.Joined += n
	} else {
		x.r.Left -= n
	}
	for _, a := range slices.Concat(old.Alloc.Nodes, j.Alloc.Nodes) {
		x.wakeHost(x.named[a.Node])
	}
}

// jobEnded schedules the submission of the next job of a slot.
func (x *simulation) jobEnded(s *slot, j *cluster.Job) error {
	delete(x.slotOf, j.ID)
	delete(x.programs, j.ID)
	delete(x.preemptors, j.ID)
	if j.State == cluster.Completed {
		x.r.Completed++
	} else {
		x.r.Failed++
		if s.gang() {
			x.r.GangFailed++
		}
	}
	x.In(time.Second, func() error { return x.submit(s) })
	return nil
}

// held makes an operator release a job that the state holds.
func (x *simulation) held(s *slot, j *cluster.Job) {
	x.r.Held++
	if s.gang() {
		x.r.GangHeld++
	}
	x.In(x.m.Operator, func() error {
		_, err := x.Apply(&command.UpdateJobs{Actor: sim.Administrator(), Jobs: []cluster.JobRef{j.Ref()}, Action: command.ReleaseJobs})
		return err
	})
}

// begin begins the program of an attempt: it prepares itself, and then works.
func (x *simulation) begin(s *slot, j *cluster.Job) {
	p := &program{slot: s, id: sim.TaskOf(j, 0), started: j.Started}
	for i := range j.Alloc.Nodes {
		p.hosts = append(p.hosts, x.named[j.Alloc.Nodes[i].Node])
	}
	if c := j.Checkpoint(j.Resume); c != nil {
		p.done = time.Duration(c.Step) * time.Second
	}
	x.programs[j.ID] = p
	x.later(p, x.m.Load, func() error { return x.workOn(p) })
	x.stallAtOnce(p)
}

// stallAtOnce stalls a program that began on a node which has failed.
func (x *simulation) stallAtOnce(p *program) {
	for _, h := range p.hosts {
		if t := h.tasks[p.id]; h.failed != nil && h.failed.cause != causeMaintenance && t != nil && t.hitBy(h.failed) && !(h.failed.sense == bySilent && h.failed.flap) {
			x.stall(p, h.failed, h)
			return
		}
		if x.leavesDown[h.leaf] && len(p.hosts) > 1 {
			x.stall(p, &failure{cause: causeLeaf, gpu: -1, sense: byExit}, h)
			return
		}
	}
}

// workOn makes a program begin to work. It resumed from the newest checkpoint that can be used.
func (x *simulation) workOn(p *program) error {
	s := p.slot
	if p.done < s.saved {
		return fmt.Errorf("%w: attempt %d of job %d resumes at %s, its newest good checkpoint is at %s", ErrViolation, p.id.Attempt, p.id.Job, p.done, s.saved)
	}
	p.since = x.Now
	x.recordWork(p)
	return x.proceed(p)
}

// proceed schedules the next checkpoint or the end of a program that works.
func (x *simulation) proceed(p *program) error {
	s := p.slot
	p.since = x.Now
	if left := s.work - p.done; !s.saves || left <= x.m.Interval {
		x.later(p, left, func() error {
			p.pause(x.Now)
			return x.exit(p, 0)
		})
		return nil
	}
	x.later(p, x.m.Interval, func() error {
		p.pause(x.Now)
		x.later(p, x.m.Block, func() error {
			if err := x.commit(p); err != nil {
				return err
			}
			x.r.lose(causeWrites, p.gpus(), x.m.Block)
			return x.proceed(p)
		})
		return nil
	})
	return nil
}

func (p *program) gpus() float64 { return float64(p.slot.nodes) * float64(p.slot.gpus) }

// commit commits a checkpoint of a program.
func (x *simulation) commit(p *program) error {
	s := p.slot
	p.number++
	j, _ := x.State.Peek().Job(p.id.Job)
	dir := fmt.Sprintf("/checkpoints/%d/a%d-%d", p.id.Job, p.id.Attempt, p.number)
	answer, err := x.Apply(&command.CommitCheckpoint{
		Actor: command.Actor{Identity: j.Spec.Owner, Source: "simulation"}, Job: p.id.Job, Attempt: p.id.Attempt,
		Checkpoint: cluster.Checkpoint{Step: int64(p.done / time.Second), Dir: dir, Files: int64(s.nodes), Bytes: 1 << 40, Digest: sha256.Sum256([]byte(dir)), State: cluster.CheckpointVerified},
	})
	if err != nil {
		return err
	}
	a, ok := answer.(*command.CheckpointCommitted)
	if !ok {
		return sim.RefusalError(answer)
	}
	x.r.Checkpoints++
	s.points[a.Number] = p.done.Truncate(time.Second)
	if faults.Yes(x.streams.For(streamCheckpoints, uint64(p.id.Job), uint64(a.Number)), x.m.Damaged) {
		s.damaged[a.Number] = true
		return nil
	}
	s.saved = s.points[a.Number]
	return nil
}

// exit makes the script of a program exit.
func (x *simulation) exit(p *program, status int32) error {
	h := p.hosts[0]
	t := h.tasks[p.id]
	if t == nil {
		return nil
	}
	x.finish(h, p.id, t, cluster.Task{Cause: cluster.Exited, Exit: cluster.Exit{Code: status}})
	return x.report(h)
}

// followNotice makes a program that is preempted save its work, and exit.
func (x *simulation) followNotice(p *program) {
	if p == nil || p.stalled != nil || p.ending {
		return
	}
	p.ending = true
	works := p.since != 0
	p.pause(x.Now)
	if p.slot.cause == "" {
		p.slot.stalledAt = x.Now
	}
	x.later(p, x.m.Block, func() error {
		if works && p.slot.saves {
			if err := x.commit(p); err != nil {
				return err
			}
		}
		return x.exit(p, 1)
	})
}

// stallOn stalls the programs that a failure of a node hits.
func (x *simulation) stallOn(h *host, f *failure) {
	for _, id := range h.order() {
		p := x.programs[id.Job]
		if p == nil || p.id.Attempt != id.Attempt || !h.tasks[id].hitBy(f) || f.cause == causeLeaf && len(p.hosts) == 1 {
			continue
		}
		x.stall(p, f, h)
	}
}

// stall stops the work of a program. It exits when it notices the failure, unless its script was on a node that
// is off. An elastic one goes on without a node that the state takes for lost.
func (x *simulation) stall(p *program, f *failure, h *host) {
	if p.stalled != nil || p.slot.elastic && h != p.hosts[0] && (f.sense == bySilent || f.sense == byEvent) {
		return
	}
	p.pause(x.Now)
	p.stalled = f
	if p.slot.cause == "" {
		p.slot.stalledAt = x.Now
	}
	var after time.Duration
	switch {
	case f.cause == causeLeaf:
		after = x.hostTime(h, 5*time.Second, x.m.PeersAfter)
	case f.sense == byEvent:
		return
	case f.sense == bySilent && (len(p.hosts) == 1 || p.hosts[0] == h):
		return
	case f.sense == bySilent:
		after = x.hostTime(h, 5*time.Second, x.m.PeersAfter)
	case f.sense == byHang:
		after = x.m.HangsFor
	default:
		after = x.m.ExitAfter
	}
	x.later(p, after, func() error { return x.exit(p, 1) })
}

// attemptEnded records the end of an attempt, which frees its nodes.
func (x *simulation) attemptEnded(s *slot, old, j *cluster.Job) {
	p := x.programs[j.ID]
	delete(x.programs, j.ID)
	outcome, detail := j.State, j.Detail
	if n := len(j.Attempts); j.State == cluster.Pending && n > 0 {
		outcome, detail = j.Attempts[n-1].Outcome, j.Attempts[n-1].Detail
	}
	s.verdict = old.Ended
	damaged := slices.ContainsFunc(old.Tasks.List(), func(t cluster.Task) bool { return t.Cause == cluster.CheckpointFailed })
	if damaged { // attempts that resumed from it may have committed others
		s.saved = 0
		if c := j.ResumePoint(); c != nil && !s.damaged[c.Number] {
			s.saved = s.points[c.Number]
		}
	}
	x.r.MostPreempted = max(x.r.MostPreempted, int(j.Preemptions(x.Now)))
	x.recordEnd(s, old, p, attemptEnd{outcome, detail, damaged})
}

// attemptEnd is how an attempt ended.
type attemptEnd struct {
	outcome cluster.JobState
	detail  string
	damaged bool // its checkpoint was
}
