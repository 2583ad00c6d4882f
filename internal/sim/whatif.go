package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// Changes are applied to a saved cluster before it continues.
type Changes struct {
	Jobs   []cluster.JobSpec // submitted at once, each by its own user
	Add    []Addition
	Remove []string // nodes, whose jobs are lost with them
	Policy *cluster.Policy
	// Expected lets jobs last as long as the saved cluster expects of such jobs, if it does, and
	// not until their time limits. It holds for both runs.
	Expected bool
}

// Addition is more nodes, copies of one that has GPUs of a type.
type Addition struct {
	Count int
	Type  string
}

// Forecast is the start of one pending job.
type Forecast struct {
	Job    cluster.JobID // 0 for one that was added
	Name   string
	User   string
	Before cluster.Instant // without the changes; 0: never, or not there
	After  cluster.Instant
	Why    string // why it would never start
}

// maxForecast is the run time of a job without a time limit.
const maxForecast = 365 * 24 * time.Hour

// ErrSnapshot is wrapped if the saved cluster cannot be read.
var ErrSnapshot = errors.New("read the snapshot")

// WhatIf continues a saved cluster in virtual time, once without and once with changes, and returns
// the start of each pending job. Jobs end at their time limit, or at their expected run time. The
// snapshot is what a controller streams. The answer is in order of IDs, added jobs last.
func WhatIf(snapshot []byte, c *Changes, o Options) ([]Forecast, cluster.Instant, error) {
	before, now, err := continueSaved(snapshot, &Changes{Expected: c.Expected}, o)
	if err != nil {
		return nil, 0, err
	}
	after := before
	if len(c.Jobs)+len(c.Add)+len(c.Remove) > 0 || c.Policy != nil {
		if after, _, err = continueSaved(snapshot, c, o); err != nil {
			return nil, 0, err
		}
	}
	starts := map[cluster.JobID]cluster.Instant{}
	for i := range before { // it has no added jobs
		starts[before[i].ID] = before[i].Start
	}
	var out []Forecast
	for i := range after {
		r := &after[i]
		f := Forecast{Job: r.ID, Name: r.Job.Spec.Name, User: r.Job.Spec.Owner.User, Before: starts[r.ID], After: r.Start}
		if r.Start == 0 {
			f.Why = r.Reason
		}
		if added := i < len(c.Jobs); added {
			f.Job, f.Before = 0, 0
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b Forecast) int { return cmp.Compare(a.Job-1, b.Job-1) })
	return out, now, nil
}

// continueSaved runs a saved cluster until nothing more can happen, and returns the results of the
// jobs that were pending.
func continueSaved(snapshot []byte, c *Changes, o Options) ([]Result, cluster.Instant, error) {
	v, err := Continue(snapshot, o.Check)
	if err != nil {
		return nil, 0, err
	}
	if err := v.Change(c); err != nil {
		return nil, 0, err
	}
	now, lasts := v.Now, RunTimes(v.State.View(), c.Expected)
	jobs := make([]Job, len(c.Jobs))
	for i := range c.Jobs {
		jobs[i] = Job{Name: "added", Submit: now, Run: lasts(&c.Jobs[i]), Spec: &c.Jobs[i]}
	}
	r := NewReplayer(v, jobs, o)
	r.adoptJobs(lasts)
	if err := errors.Join(r.processInstant(), r.runPasses()); err != nil {
		return nil, 0, err
	}
	if err := r.run(); err != nil {
		return nil, 0, err
	}
	added := len(jobs)
	kept := slices.DeleteFunc(r.Results[added:], func(x Result) bool { return !x.waits })
	return r.Results[:added+len(kept)], now, nil
}

// Continue returns the saved cluster of a snapshot.
func Continue(snapshot []byte, check bool) (*Virtual, error) {
	s, err := state.Decode(bytes.NewReader(snapshot))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return resume(s, check), nil
}

// RunTimes returns the run times of the jobs of a saved cluster: their time limits, or what it expects.
func RunTimes(v *state.View, expected bool) func(*cluster.JobSpec) time.Duration {
	if expected {
		return expectedRunTime(v)
	}
	return limitOf
}

// EndOf returns when a job of a saved cluster ends that has an allocation: after its expected run time, or at its limit if it has run for
// longer.
func (v *Virtual) EndOf(j *cluster.Job, lasts func(*cluster.JobSpec) time.Duration) cluster.Instant {
	end := j.Started.Add(lasts(j.Spec))
	switch {
	case j.State == cluster.Completing:
		return v.Now
	case end <= v.Now:
		end = j.Started.Add(limitOf(j.Spec))
	}
	return max(v.Now, end)
}

// expectedRunTime returns the expected run time of jobs, at most their limit; the limit if the
// state expects none.
func expectedRunTime(v *state.View) func(*cluster.JobSpec) time.Duration {
	known := v.RunTimes()
	return func(spec *cluster.JobSpec) time.Duration {
		limit := limitOf(spec)
		if d, ok := known(spec); ok && d > 0 {
			return min(d, limit)
		}
		return limit
	}
}

// adoptJobs adds the jobs of a saved cluster.
func (r *Replayer) adoptJobs(lasts func(*cluster.JobSpec) time.Duration) {
	r.saved = true
	for j := range r.State.View().Jobs(0) {
		at := len(r.Results)
		r.ResultOf[j.ID] = at
		job := &Job{Name: j.Ref().String(), Submit: j.Submitted, Run: lasts(j.Spec), Spec: j.Spec}
		res := Result{Job: job, ID: j.ID, Attempt: j.Attempt, Waited: true, waits: j.State == cluster.Pending}
		if !res.waits {
			res.Start, res.Nodes = j.Started, j.Alloc.Nodes
			r.ends.Push(ending{r.EndOf(j, lasts), at})
		}
		r.Results = append(r.Results, res)
	}
}

func limitOf(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return maxForecast
	}
	return spec.TimeLimit
}

// Change applies the changes, all at the instant of the snapshot.
func (v *Virtual) Change(c *Changes) error {
	if c.Policy != nil {
		if err := v.Must(&command.ApplyPolicy{Actor: Administrator(), Policy: *c.Policy}); err != nil {
			return err
		}
	}
	for _, name := range c.Remove {
		if err := v.remove(name); err != nil {
			return err
		}
	}
	n := 0
	for _, a := range c.Add {
		like, err := v.template(a)
		if err != nil {
			return err
		}
		for range a.Count {
			n++
			node := copyNode(like, fmt.Sprintf("added%05d", n))
			if err := v.add(&node); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a node as if it had failed: jobs that may run again are pending again.
func (v *Virtual) remove(name string) error {
	n, known := v.State.View().Node(name)
	if !known {
		return fmt.Errorf("%w: no node %q", ErrRefused, name)
	}
	dead := command.NodeLiveness{Node: name, Epoch: n.Epoch, Liveness: cluster.Dead}
	if err := v.Must(&command.SetLiveness{Nodes: []command.NodeLiveness{dead}}); err != nil {
		return err
	}
	delete(v.Epochs, name)
	return v.Must(&command.UpdateNodes{Actor: Administrator(), Names: []string{name}, Action: command.RemoveNodes, Reason: "what if", Force: true})
}

// template returns the first node by name that has GPUs of a type.
func (v *Virtual) template(a Addition) (*cluster.Node, error) {
	if a.Count < 1 || a.Count > maxNodes {
		return nil, fmt.Errorf("%w: %d nodes cannot be added (1 to %d)", ErrRefused, a.Count, maxNodes)
	}
	types := map[string]bool{}
	for n := range v.State.View().Nodes() {
		for _, g := range n.GPUs {
			if types[g.Type] = true; g.Type == a.Type {
				return n, nil
			}
		}
		if len(n.GPUs) == 0 && a.Type == "cpu" {
			return n, nil
		}
	}
	var known []string
	for t := range types {
		known = append(known, t)
	}
	slices.Sort(known)
	return nil, fmt.Errorf("%w: no node has GPUs of type %q to add more like it; there are: %s", ErrRefused, a.Type, strings.Join(known, ", "))
}

// copyNode returns a copy of a node with NVLink domains of its own.
func copyNode(like *cluster.Node, name string) cluster.Node {
	n := cluster.Node{
		Name: name, BootID: "simulated", CPUs: like.CPUs, Memory: like.Memory, Features: like.Features, Region: like.Region, Gres: like.Gres,
		GPUs: slices.Clone(like.GPUs),
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.UUID, g.Fault = fmt.Sprintf("GPU-%s-%d", name, i), ""
		if g.Domain != "" {
			g.Domain = name + "/" + g.Domain
		}
	}
	return n
}
