package burst

import (
	"slices"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxCommits is how many commits a report makes one after another.
const maxCommits = 256

// Report returns what is decided for each candidate: first those for which nodes are leased, in the order of the passes that
// do that, each as if those before it were committed. O(commits × candidates).
func Report(t *Tables, snap *cluster.Snapshot, jobs *eligible.JobList, list []Candidate) (all []Choice) {
	shot, view := *snap, cluster.BurstView{}
	if snap.Burst != nil {
		view = *snap.Burst
	}
	shot.Burst = &view
	list = slices.Clone(list)
	var v *View
	admit := func(c *Candidate) bool {
		_, refused := v.refused[c.Job.ID]
		return !refused
	}
	for len(all) < maxCommits {
		v = t.View(&shot, jobs)
		best, _ := v.best(list, admit)
		if best == nil {
			break
		}
		x := v.Choose(best.Candidate)
		all = append(all, x)
		view = v.with(best, &x)
		list = slices.DeleteFunc(list, func(c Candidate) bool { return c.Job.ID == x.Job })
	}
	v = t.View(&shot, jobs)
	for i := range list {
		all = append(all, v.Choose(&list[i]))
	}
	return all
}

// with returns the view after a choice was committed.
func (v *View) with(best *choice, x *Choice) cluster.BurstView {
	next := *v.view
	next.Leases = slices.Clone(next.Leases)
	for range x.Nodes {
		next.Leases = append(next.Leases, &cluster.Lease{Job: x.Job, For: x.Job, State: cluster.LeasePlanned, Offer: *x.Offer})
	}
	next.Left = make(map[string]int64, len(v.view.Left))
	pays := v.payers(best.Job.Spec.Account)
	for name, left := range v.view.Left {
		if slices.Contains(pays, name) {
			left -= x.Cost
		}
		next.Left[name] = left
	}
	return next
}
