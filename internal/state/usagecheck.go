package state

import "github.com/greylag/greylag/pkg/cluster"

// checkUsage checks that exactly the jobs that run count, each at one rate.
func (x *checking) checkUsage() {
	rates := map[cluster.AssociationKey]map[string]int64{}
	for id, c := range x.charges.All() {
		if j, found := x.holding.Get(id); !found || !runs(j) || x.shared().Resolve(j.Spec.Association()) != c.AssociationKey {
			x.fault("job %d counts for %s in account %q and does not run for them", id, c.User, c.Account)
		}
		if rates[c.AssociationKey] == nil {
			rates[c.AssociationKey] = map[string]int64{}
		}
		r := rates[c.AssociationKey]
		r[""] += c.Rate
		r[cluster.ResourceWall]++
		for _, a := range c.Amounts {
			r[a.Resource] += a.Count
		}
	}
	running := 0
	for _, j := range x.holding.All() {
		if runs(j) {
			running++
		}
	}
	if running != x.charges.Len() {
		x.fault("%d jobs run, %d count", running, x.charges.Len())
	}
	for key, u := range x.usages.All() {
		if key != u.AssociationKey || u.Billed.Rate != rates[key][""] || u.Billed.Value < 0 || u.Billed.At > x.now {
			x.fault("%s in account %q uses %+v a second, want %d", key.User, key.Account, u.Billed, rates[key][""])
		}
		for _, r := range u.Raw {
			if r.Usage.Rate != rates[key][r.Resource] || r.Usage.Value < 0 {
				x.fault("%s in account %q uses %d of %s, want %d", key.User, key.Account, r.Usage.Rate, r.Resource, rates[key][r.Resource])
			}
		}
	}
	forgotten := 0
	for key, u := range x.usages.All() {
		if at := x.fadesAt(u); at != cluster.Never && x.fading.Has(faded{at, key}) {
			forgotten++
		}
	}
	if forgotten != x.fading.Len() {
		x.fault("%d usages fade, %d are listed", forgotten, x.fading.Len())
	}
}
