package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// CheckpointOptions is what [CheckpointCosts] assumes.
type CheckpointOptions struct {
	Every   time.Duration // between two checkpoints of each job
	Write   time.Duration // that a checkpoint stops a job for which no time is measured
	Restart time.Duration // from a failure until the job works again, without the repeated work
	Rate    float64       // failures per 1,000 node-days; 0: as the nodes of the cluster failed
}

// CheckpointCost is what regular checkpoints cost one job, and what they save.
type CheckpointCost struct {
	Job      cluster.JobRef
	User     string
	Name     string
	Nodes    int
	GPUs     int
	MTTF     time.Duration // mean time between failures of its nodes
	Now      time.Duration // between its checkpoints so far; 0: it writes none
	Write    time.Duration
	Measured bool    // Write is
	LostNow  float64 // part of its GPU time that checkpoints and failures take
	LostThen float64
	Writes   float64 // part that the checkpoints alone would take
	Saved    float64 // GPU-hours a day; negative: checkpoints cost more
}

// CheckpointCosts returns what checkpoints of all pending and running jobs of a saved cluster would cost and save,
// the largest savings first, and the rate of failures.
func CheckpointCosts(snapshot []byte, o CheckpointOptions) ([]CheckpointCost, float64, error) {
	s, err := state.Decode(bytes.NewReader(snapshot))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if o.Rate == 0 {
		o.Rate = rateOf(s.View())
	}
	var list []CheckpointCost
	for j := range s.View().Jobs(0) {
		if !j.State.Final() {
			list = append(list, o.costOf(j))
		}
	}
	slices.SortStableFunc(list, func(a, b CheckpointCost) int { return cmp.Compare(b.Saved, a.Saved) })
	return list, o.Rate, nil
}

// rateOf returns how often a node of the cluster fails in 1,000 days, as its nodes did.
func rateOf(v *state.View) float64 {
	var nodes []*cluster.Node
	for n := range v.Nodes() {
		nodes = append(nodes, n)
	}
	return float64(cluster.RateOf(nodes, v.Now()).Thousandths()) / 1000
}

func (o *CheckpointOptions) costOf(j *cluster.Job) CheckpointCost {
	r := &j.Spec.Request
	c := CheckpointCost{
		Job: j.Ref(), User: j.Spec.Owner.User, Name: j.Spec.Name, Nodes: int(max(1, r.Nodes)), GPUs: int(r.TotalGPUs()),
		Now: checkpointInterval(j), Write: o.Write,
	}
	if j.Alloc != nil {
		c.Nodes = len(j.Alloc.Nodes)
	}
	if j.WriteTime > 0 {
		c.Write, c.Measured = j.WriteTime, true
	}
	c.MTTF = time.Duration(float64(1000*24*time.Hour) / (o.Rate * float64(c.Nodes)))
	whole := limitOf(j.Spec)
	c.LostNow = lostPart(whole, 0, o.Restart, c.MTTF)
	if c.Now > 0 && c.Now < whole {
		c.LostNow = lostPart(c.Now, c.Write, o.Restart, c.MTTF)
	}
	c.LostThen = c.LostNow
	if o.Every < whole {
		c.LostThen = lostPart(o.Every, c.Write, o.Restart, c.MTTF)
		c.Writes = c.Write.Seconds() / (o.Every + c.Write).Seconds()
	}
	c.Saved = (c.LostNow - c.LostThen) * 24 * float64(c.GPUs)
	return c
}

// lostPart returns the part of its time that a job loses which must work for a time without a failure to keep
// that work, and then writes for a time. Failures are a Poisson process, and each costs a restart too: the mean
// time for the work is e^(restart/mttf) × mttf × (e^((work+write)/mttf) - 1).
func lostPart(work, write, restart, mttf time.Duration) float64 {
	m := mttf.Seconds()
	needed := math.Exp(restart.Seconds()/m) * m * math.Expm1((work+write).Seconds()/m)
	return 1 - work.Seconds()/needed
}

// checkpointInterval returns the median time between the checkpoints of a job within its attempts, else the one
// that it requested; 0 without either.
func checkpointInterval(j *cluster.Job) time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(j.Checkpoints); i++ {
		if a, b := j.Checkpoints[i-1], j.Checkpoints[i]; a.Attempt == b.Attempt {
			gaps = append(gaps, b.Committed.Sub(a.Committed))
		}
	}
	if len(gaps) == 0 {
		return j.Spec.CheckpointEvery
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}
