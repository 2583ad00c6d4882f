package burstsim

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/pkg/cluster"
)

// The times of reclaims and checkpoints.
const (
	waveEvery  = 3 * time.Hour
	actWithin  = 30 * time.Second // from the notice until each job of a node is about to end
	saving     = 20 * time.Second // a program writes a checkpoint
	userSignal = 10               // asks it to
)

// wave takes a fifth of all nodes back at once, or all leased nodes if they are fewer.
func (x *simulation) wave() error {
	var leased []string
	for _, i := range x.cloud.All() {
		if m := x.nodes[i.ID]; m != nil && !m.off && i.Reclaim == 0 {
			leased = append(leased, i.ID)
		}
	}
	r := x.streams.Of(faults.Restarts)
	r.Shuffle(len(leased), func(a, b int) { leased[a], leased[b] = leased[b], leased[a] })
	n := (siteNodes + len(leased) + 4) / 5
	if n <= len(leased) {
		x.r.Waves++
	}
	var errs []error
	for _, id := range leased[:min(n, len(leased))] {
		errs = append(errs, x.takeBack(x.cloud.Find(id), false))
	}
	return errors.Join(errs...)
}

// checkReclaimed checks that each job on a node is about to end, or leaves it, some time after the notice.
func (x *simulation) checkReclaimed(m *machine) error {
	if m.off {
		return nil
	}
	for j, rank := range x.State.View().OnNode(m.node.Name) {
		if j.State != cluster.Completing && j.Preempting == nil && !j.Leaving(rank) {
			return fmt.Errorf("%w: job %d has no notice %s after that of node %s", ErrViolation, j.ID, actWithin, m.node.Name)
		}
	}
	return nil
}

// follow counts what happens to an elastic job, and has a program write a checkpoint when it is asked to.
func (x *simulation) follow(old, j *cluster.Job) {
	if old.Members != nil && j.Members != nil && old.Attempt == j.Attempt {
		x.r.Joins += max(0, len(j.Alloc.Nodes)-len(old.Alloc.Nodes))
		for rank := range old.Alloc.Nodes {
			m := x.machines[old.Alloc.Nodes[rank].Node]
			if now := rankOn(j, old.Alloc.Nodes[rank].Node); m != nil && m.reclaim > 0 && now >= 0 && j.State == cluster.Running && !old.Leaving(rank) && j.Leaving(now) {
				x.r.WentOn++
			}
		}
	}
	if j.Asked > old.Asked && j.State == cluster.Running {
		x.In(saving, func() error { return x.save(j) })
	}
}

// rankOn returns the rank of a job on a node; -1 for none.
func rankOn(j *cluster.Job, node string) int {
	return slices.IndexFunc(j.Alloc.Nodes, func(a cluster.NodeAllocation) bool { return a.Node == node })
}

// save commits a checkpoint of an attempt that still runs.
func (x *simulation) save(old *cluster.Job) error {
	j, known := x.State.View().Job(old.ID)
	if !known || j.Attempt != old.Attempt || j.State != cluster.Running {
		return nil
	}
	done := x.Now.Sub(j.Started)
	if c := j.Checkpoint(j.Resume); c != nil {
		done += time.Duration(c.Step) * time.Second
	}
	dir := fmt.Sprintf("/checkpoints/%d/%d", j.ID, x.Index)
	r, err := x.Apply(&command.CommitCheckpoint{
		Actor: command.Actor{Identity: j.Spec.Owner, Source: "simulation"}, Job: j.ID, Attempt: j.Attempt,
		Checkpoint: cluster.Checkpoint{Step: int64(done / time.Second), Dir: dir, Files: 1, Bytes: 1 << 30, Digest: sha256.Sum256([]byte(dir)), State: cluster.CheckpointVerified},
	})
	if _, committed := r.(*command.CheckpointCommitted); committed {
		x.saved[j.ID] = done.Truncate(time.Second)
	}
	return err
}

// resume returns what an attempt that begins need not do again: it resumes from the newest checkpoint, and no earlier attempt
// still runs.
func (x *simulation) resume(j *cluster.Job) (done time.Duration, err error) {
	for _, m := range x.machines {
		for id, t := range m.tasks {
			if id.Job == j.ID && id.Attempt < j.Attempt && t.task.Phase < cluster.TaskEnded && !t.stopping {
				return 0, fmt.Errorf("%w: attempt %d of job %d runs on node %s while attempt %d starts", ErrViolation, id.Attempt, j.ID, m.node.Name, j.Attempt)
			}
		}
	}
	if c := j.Checkpoint(j.Resume); c != nil {
		x.r.Resumed++
		done = time.Duration(c.Step) * time.Second
	}
	if done != x.saved[j.ID] {
		return 0, fmt.Errorf("%w: attempt %d of job %d resumes at %s, its newest checkpoint is at %s", ErrViolation, j.Attempt, j.ID, done, x.saved[j.ID])
	}
	return done, nil
}

// checkLaunches checks that the state accepts each launch that is decided, and that a QOS keeps its share of nodes on demand.
func (x *simulation) checkLaunches(c command.Command, r command.Result) error {
	p, ok := c.(*command.CommitPlan)
	if !ok || len(p.Plan.Launches) == 0 {
		return nil
	}
	l := &p.Plan.Launches[0]
	if done, ok := r.(*command.Committed); ok {
		for _, s := range done.Stale {
			if s.Job == l.Job && !strings.Contains(s.Why, "--burst-max-cost") { // the decision does not know what leases have cost that are gone
				return fmt.Errorf("%w: the launch for job %d is refused: %s", ErrViolation, s.Job, s.Why)
			}
		}
	}
	view := x.State.View()
	j, known := view.Job(l.Job)
	if !known || l.Offer.Market != cluster.Spot {
		return nil
	}
	var all, onDemand int64
	for l := range view.Leases() {
		if of, known := view.Job(l.Job); l.Live() && known && !of.State.Final() && of.Spec.QOS == j.Spec.QOS {
			if all++; l.Offer.Market == cluster.OnDemand {
				onDemand++
			}
		}
	}
	qos, _ := view.Policy().QOSNamed(j.Spec.QOS)
	if onDemand*100 < all*int64(qos.MinOnDemand) {
		return fmt.Errorf("%w: %d of %d nodes of qos %s are on demand, at least %d %% must be", ErrViolation, onDemand, all, qos.Name, qos.MinOnDemand)
	}
	if qos.MinOnDemand > 0 {
		x.r.Shares += int(l.Nodes)
	}
	return nil
}
