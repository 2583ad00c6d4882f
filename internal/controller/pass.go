package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// debounce is the delay that merges simultaneous changes, such as a burst of submissions.
	debounce = 5 * time.Millisecond
	// restFreed and restQueued are how many times its duration a pass is followed by rest, so that a long queue leaves
	// processor time to requests of users. Freed resources are filled soon; new jobs may wait.
	restFreed, restQueued = 4, 9
	// verdictSpacing is the interval between updates of the reasons of pending jobs: one costs as
	// much in the log as a start.
	verdictSpacing = time.Second
	// maxVerdicts is the number of verdicts per update.
	maxVerdicts = 10_000
	// chunkStarts and chunkBytes limit one CommitPlan; so does chunkVerdicts, since other commands
	// wait while one is applied.
	chunkStarts   = 256
	chunkVerdicts = 2_000
	chunkBytes    = 256 << 10
)

// passes runs a scheduling pass after each change that could let a job start, one at a time.
func (t *term) passes() {
	changed := t.replica.hub.subscribe("", matters)
	defer changed.Close()
	freed := t.replica.hub.subscribe("", frees)
	defer freed.Close()
	p := pass{term: t, planner: schedule.NewPlanner(), owed: map[cluster.JobID]cluster.Verdict{}}
	wait := time.Duration(0) // a new leader begins with a pass
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed.C():
			timer.Stop()
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
		if !p.rest(freed.C()) {
			return
		}
		for _, rang := range []*Subscription{changed, freed} { // this pass covers changes up to now
			select {
			case <-rang.C():
			default:
			}
		}
		wait = p.run()
	}
}

// matters reports whether a change can let a job start, or start sooner.
func matters(c *state.Change) bool {
	if c.Kind != state.JobChanged || c.Old == nil || c.New == nil {
		return true
	}
	if c.Old.Spec != c.New.Spec || c.Old.State.HasAllocation() != c.New.State.HasAllocation() || c.New.State.Final() {
		return true
	}
	if c.New.Members != nil && (c.Old.Members != c.New.Members || c.Old.State != c.New.State) { // an elastic job that may grow
		return true
	}
	// A verdict of a pending job alone does not matter.
	return c.New.State == cluster.Pending &&
		(c.Old.Hold != c.New.Hold || c.Old.Eligible != c.New.Eligible || c.New.Reason == cluster.ReasonNone)
}

// frees reports whether a change can let a job start that was already in the queue.
func frees(c *state.Change) bool {
	switch {
	case c.Kind != state.JobChanged || c.New == nil:
		return true
	case c.Old == nil:
		return false
	}
	return c.Old.State.HasAllocation() && (!c.New.State.HasAllocation() || c.Old.Alloc != c.New.Alloc)
}

// pass runs the scheduling of one term.
type pass struct {
	*term
	ended    time.Time     // end of the last pass
	took     time.Duration // duration of its decision
	verdicts time.Time     // time of the last update
	planner  *schedule.Planner
	owed     map[cluster.JobID]cluster.Verdict // not sent yet
}

// rest waits until the next pass may begin: longer if nothing is freed. It returns false if the
// term has ended.
func (p *pass) rest(freed <-chan struct{}) bool {
	gather, soon, late := time.After(debounce), time.After(p.due(restFreed)), time.After(p.due(restQueued))
	for {
		select {
		case <-p.ctx.Done():
			return false
		case <-freed:
			freed, late = nil, soon
		case <-late:
			select {
			case <-gather:
				return true
			case <-p.ctx.Done():
				return false
			}
		}
	}
}

// due returns the time until a pass may begin that waits times the duration of the last pass.
func (p *pass) due(times time.Duration) time.Duration {
	return time.Until(p.ended.Add(times * p.took))
}

// run runs one pass and returns the delay of the next one without a change.
func (p *pass) run() time.Duration {
	began := time.Now()
	snap := p.replica.View().Snapshot()
	snap.Now = max(snap.Now, cluster.InstantOf(p.cfg.Clock()))
	d := p.planner.Pass(snap)
	p.ended = time.Now()
	p.took = p.ended.Sub(began)
	wait := time.Hour
	if d.Wake != cluster.Never {
		wait = min(wait, max(d.Wake.Sub(snap.Now), debounce))
	}
	if p.ration(&d.Plan) {
		wait = min(wait, max(p.verdicts.Add(verdictSpacing).Sub(p.ended), debounce))
	}
	if d.More {
		wait = debounce
	}
	err := p.commit(&d.Plan)
	p.cfg.Observer.Passed(d.Stats.Full, p.took, err != nil)
	if err != nil {
		p.pause(time.Second, "commit plan", err)
		return debounce // the state has the outcome
	}
	return wait
}

// ration keeps in the plan the verdicts that may be sent now, the oldest jobs first, and reports
// whether more remain.
func (p *pass) ration(plan *cluster.Plan) (more bool) {
	for _, v := range plan.Verdicts {
		if old, untold := p.owed[v.Job]; untold && v.Broken == "" {
			v.Broken = old.Broken
		}
		p.owed[v.Job] = v
	}
	for i := range plan.Starts {
		delete(p.owed, plan.Starts[i].Job)
	}
	plan.Verdicts = nil
	switch {
	case len(p.owed) == 0:
		return false
	case p.ended.Sub(p.verdicts) < verdictSpacing:
		return true
	}
	p.verdicts = p.ended
	for _, id := range slices.Sorted(maps.Keys(p.owed)) {
		if len(plan.Verdicts) == maxVerdicts {
			return true
		}
		plan.Verdicts = append(plan.Verdicts, p.owed[id])
		delete(p.owed, id)
	}
	return false
}

// commit proposes a plan in parts, the starts first.
func (p *pass) commit(plan *cluster.Plan) error {
	for !plan.Empty() {
		piece := cut(plan)
		result, _, err := p.Propose(p.ctx, &command.CommitPlan{Plan: piece})
		if err != nil {
			return err
		}
		switch r := result.(type) {
		case *command.Committed:
			p.cfg.Observer.Started(len(r.Started), len(r.Stale))
			for _, s := range r.Stale {
				p.log.Debug("decision no longer fits", "job", s.Job, "why", s.Why)
			}
		case *command.Refusal:
			return r
		}
	}
	return nil
}

// cut removes from the plan what fits into one command, and returns it.
func cut(plan *cluster.Plan) cluster.Plan {
	piece := cluster.Plan{Index: plan.Index, Policy: plan.Policy}
	bytes, n := 0, 0
	for n < len(plan.Starts) && n < chunkStarts && bytes < chunkBytes {
		for _, a := range plan.Starts[n].Placement.Nodes {
			bytes += 32 + len(a.Node) + 2*len(a.GPUs)
		}
		n++
	}
	piece.Starts, plan.Starts = plan.Starts[:n], plan.Starts[n:]
	if len(plan.Starts) > 0 {
		return piece
	}
	piece.Evictions, plan.Evictions = plan.Evictions, nil
	piece.Reclaims, plan.Reclaims = plan.Reclaims, nil
	piece.Grants, plan.Grants = plan.Grants, nil
	piece.Launches, plan.Launches = plan.Launches, nil
	n = 0
	for n < len(plan.Verdicts) && n < chunkVerdicts && bytes < chunkBytes {
		bytes += 32 + len(plan.Verdicts[n].Detail)
		n++
	}
	piece.Verdicts, plan.Verdicts = plan.Verdicts[:n], plan.Verdicts[n:]
	return piece
}
