package faultsim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// specKey is the fields in which the requests of a workload differ here.
type specKey struct {
	of      *cluster.JobSpec
	qos     string
	elastic bool
}

// specOf returns a job's request: it may run again, has an account if jobs cost something, and some
// are in the QOS that preempts.
func (x *faultSim) specOf(i int) *cluster.JobSpec {
	k := specKey{of: x.Jobs[i].Spec}
	if faults.Yes(x.streams.For(faults.Users, uint64(i), 1), x.Faults.Preempt) {
		k.qos = x.preemptor()
	}
	if r := &k.of.Request; r.Nodes > 0 && r.GPUsPerNode > 0 {
		k.elastic = faults.Yes(x.streams.For(faults.Users, uint64(i), 3), x.Faults.Elastic)
	}
	spec := x.specs[k]
	if spec == nil {
		s := *k.of
		s.Requeue, s.QOS = true, cmp.Or(k.qos, s.QOS)
		if k.elastic {
			s.Request.MaxNodes, s.Elastic = s.Request.Nodes+2, cluster.Elastic{Step: 1}
		}
		if len(x.Prices) > 0 {
			s.Account = cmp.Or(s.Account, noAccount)
		}
		spec = &s
		x.specs[k] = spec
	}
	return spec
}

// noAccount is the account of jobs without one in their log, if jobs cost something.
const noAccount = "default"

// preemptor returns a QOS that may preempt the default one.
func (x *faultSim) preemptor() string {
	p := x.State.Peek().Policy()
	for i := range p.QOS {
		if p.MayPreempt(p.QOS[i].Name, p.DefaultQOS) {
			return p.QOS[i].Name
		}
	}
	return ""
}

// submit submits job i.
func (x *faultSim) submit(i int) error {
	spec := x.specOf(i)
	res := &x.Results[i]
	c := &command.SubmitJobs{Actor: actor(spec), Jobs: []command.Submission{{Spec: *spec}}}
	answer, err := x.send(c, &c.Request)
	if err != nil {
		return err
	}
	switch a := answer.(type) {
	case *command.Submitted:
		res.ID = a.First[0]
		x.ResultOf[res.ID] = i
		x.lastProgress = x.Now
		x.audit.jobs[res.ID] = &history{}
		if r := x.streams.For(faults.Users, uint64(i), 2); faults.Yes(r, x.Faults.Cancel) {
			x.In(faults.Within(r, x.Jobs[i].Run+time.Hour), func() error { return x.userAction(res.ID, spec, r) })
		}
	case *command.Refusal:
		res.Reason = "refused: " + a.Message
		x.Done++
	}
	return nil
}

func actor(spec *cluster.JobSpec) command.Actor {
	return command.Actor{Identity: spec.Owner, Source: "simulation"}
}

// userAction performs a random action of a user on a job.
func (x *faultSim) userAction(id cluster.JobID, spec *cluster.JobSpec, r *rand.Rand) error {
	refs := []cluster.JobRef{{ID: id, Index: cluster.NoIndex}}
	update := func(c *command.UpdateJobs) error {
		x.count("job_changes")
		c.Actor, c.Jobs = actor(spec), refs
		_, err := x.send(c, &c.Request)
		return err
	}
	switch r.IntN(8) {
	case 0:
		if err := update(&command.UpdateJobs{Action: command.HoldJobs}); err != nil {
			return err
		}
		x.In(faults.Within(r, time.Hour), func() error { return update(&command.UpdateJobs{Action: command.ReleaseJobs}) })
		return nil
	case 1:
		return update(&command.UpdateJobs{Action: command.RequeueJobs})
	case 2, 3:
		limit := max(time.Minute, spec.TimeLimit/2)
		if r.IntN(3) == 0 { // only operators may extend the limit of a running job
			limit = spec.TimeLimit * 2
		}
		return update(&command.UpdateJobs{Action: command.SetFields, TimeLimit: &limit})
	case 4:
		if n := len(x.accounts); n > 0 {
			account := x.accounts[r.IntN(n)]
			return update(&command.UpdateJobs{Action: command.SetFields, Account: &account})
		}
	}
	x.count("cancellations")
	c := &command.CancelJobs{Actor: actor(spec), Jobs: refs}
	_, err := x.send(c, &c.Request)
	return err
}

// request is a request and its answer.
type request struct {
	again  func(twist byte) (command.Result, error)
	answer []byte
	kept   bool
}

// send sends a request as a client does, with an ID of its own; some are repeated.
func (x *faultSim) send(c command.Command, id *command.RequestID) (command.Result, error) {
	if err := x.Must(&command.Tick{}); err != nil { // handle what is due first: it is no effect of the request
		return nil, err
	}
	x.requests++
	sum := sha256.Sum256(command.Encode(c))
	*id = command.RequestID{Payload: [16]byte(sum[:16])}
	binary.BigEndian.PutUint64(id.Key[:], x.requests)
	id.Key[15] = 'g'
	first, err := x.Apply(c)
	if err != nil {
		return nil, err
	}
	_, refused := first.(*command.Refusal)
	x.last = &request{answer: plainAnswer(first), kept: !refused, again: func(twist byte) (command.Result, error) {
		was := id.Payload
		id.Payload[0] ^= twist
		x.repeating = true
		r, err := x.Apply(c)
		x.repeating = false
		id.Payload = was
		return r, err
	}}
	if streams := x.streams.Of(faults.Requests); faults.Yes(streams, x.Faults.Duplicate) {
		asked := x.last
		x.In(time.Duration(streams.Int64N(int64(10*time.Minute))), func() error { return x.repeat(asked) })
	}
	return first, nil
}

// repeat delivers a request again: the answer is the first one, and the same ID with another
// payload is refused. A refused request is not repeated, since it may have become possible.
func (x *faultSim) repeat(a *request) error {
	if !a.kept {
		return nil
	}
	x.count("requests_delivered_twice")
	r, err := a.again(0)
	if err != nil {
		return err
	}
	if got := plainAnswer(r); string(got) != string(a.answer) {
		return x.Blame(x.latest(), fmt.Errorf("%w: I11: a request that came twice was answered %+v the second time", ErrViolation, r))
	}
	if r, err = a.again(1); err != nil {
		return err
	}
	if no, is := r.(*command.Refusal); !is || no.Code != command.Mismatch {
		return x.Blame(x.latest(), fmt.Errorf("%w: I11: a request id that was used before was taken with something else in it: %+v", ErrViolation, r))
	}
	return nil
}

// plainAnswer encodes an answer without the fields that differ when it is repeated.
func plainAnswer(r command.Result) []byte {
	switch a := r.(type) {
	case *command.Submitted:
		c := *a
		c.Again = false
		r = &c
	case *command.Outcomes:
		c := *a
		c.Again = false
		r = &c
	case *command.Credited:
		r = &command.Credited{Receipt: a.Receipt}
		r.(*command.Credited).Again = false
	}
	return command.EncodeResult(r)
}

// record stores the change of a job, and notifies its nodes.
func (x *faultSim) record(c command.Command, old, j *cluster.Job) {
	at, known := x.ResultOf[j.ID]
	if !known {
		return
	}
	res := &x.Results[at]
	if old != nil && old.State.HasAllocation() && !j.State.HasAllocation() {
		x.recordAttempt(res, old, j)
	}
	if j.Alloc != nil {
		for i := range j.Alloc.Nodes {
			if h := x.hosts[j.Alloc.Nodes[i].Node]; h != nil {
				x.In(oneWay, func() error { return x.sync(h) })
			}
		}
	}
	if old != nil && old.Members != nil && j.Members != nil && old.Attempt == j.Attempt {
		x.recordMembers(old, j)
	}
	switch {
	case j.State == cluster.Configuring && (old == nil || old.State == cluster.Pending):
		x.summary.Attempts++
		x.lastProgress = x.Now
		res.Start, res.Nodes, res.Attempt = x.Now, j.Alloc.Nodes, j.Attempt
	case j.State == cluster.Pending && j.Promise == nil && !planned(c):
		res.LatestPromise = 0 // its own user gave up the promise
	case j.State.Final():
		res.End, res.Reason = x.Now, j.State.String()
		delete(x.ResultOf, j.ID)
		x.Done++
		x.lastProgress = x.Now
	}
}

// recordMembers counts changes of the nodes of an elastic job, and notifies those that have left it.
func (x *faultSim) recordMembers(old, j *cluster.Job) {
	for _, a := range old.Alloc.Nodes {
		if slices.ContainsFunc(j.Alloc.Nodes, func(b cluster.NodeAllocation) bool { return a.Node == b.Node }) {
			continue
		}
		x.count("nodes_left_jobs")
		if h := x.hosts[a.Node]; h != nil {
			x.In(oneWay, func() error { return x.sync(h) })
		}
	}
	if len(j.Alloc.Nodes) > len(old.Alloc.Nodes) {
		x.count("nodes_joined_jobs")
	}
}

func planned(c command.Command) bool {
	_, is := c.(*command.CommitPlan)
	return is
}

// recordAttempt counts an attempt that ended.
func (x *faultSim) recordAttempt(res *sim.Result, old, j *cluster.Job) {
	outcome, since, until := j.State, j.Started, j.Ended
	if n := len(j.Attempts); j.State == cluster.Pending && n > 0 {
		last := j.Attempts[n-1]
		outcome, since, until = last.Outcome, last.Started, last.Ended
	}
	hours := float64(old.Spec.Request.TotalGPUs()) * until.Sub(since).Hours()
	x.summary.GPUHours += hours
	switch outcome {
	case cluster.NodeFailed:
		x.summary.Lost++
	case cluster.Preempted:
		x.summary.Preempted++
	}
	if j.State == cluster.Pending {
		x.summary.Requeued++
	}
	if j.State == cluster.Pending || outcome == cluster.NodeFailed || outcome == cluster.Preempted {
		x.summary.GPUHoursLost += hours
	}
	if j.State == cluster.Pending {
		res.Start, res.End, res.Nodes, res.LatestPromise = 0, 0, nil, 0
	}
}

// simulateTask schedules the end of a task: most end as the log says, some fail. It depends on the
// job and the attempt alone.
func (x *faultSim) simulateTask(h *host, id sim.TaskID, t *hostTask, j *cluster.Job) {
	at, known := x.ResultOf[id.Job]
	if !known {
		return
	}
	r := x.streams.For(faults.Attempts, uint64(at), uint64(id.Attempt))
	run, how := x.Jobs[at].Run, taskEnd{cause: cluster.Exited}
	if faults.Yes(r, x.Faults.Fail) {
		part := time.Duration(r.Float64() * float64(run))
		switch kind := r.IntN(6); {
		case kind == 0:
			run, how = part, taskEnd{cause: cluster.MemoryKilled, message: "out of memory"}
		case kind == 1:
			run, how = 0, taskEnd{cause: cluster.LaunchFailed, message: "no such directory"}
		case kind == 2: // it hangs
			run = run + 2*j.Spec.TimeLimit
		case kind == 3 && j.Tasks.Len() > 1 && t.rank == 1:
			run, how = part, taskEnd{cause: cluster.NodeFault, message: "the runtime failed"}
		default:
			run, how.code = part, 1
		}
		if t.rank == 0 {
			x.count("attempts_that_failed")
		}
	}
	if t.rank > 0 && how.cause != cluster.NodeFault {
		return // it ends with the script, which runs on the first node
	}
	x.In(run, func() error {
		x.finish(h, id, t, how)
		return x.report(h)
	})
}
