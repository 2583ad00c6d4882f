package backfill

// Fitting says what amounts a want with GPUs of one type could use on each host. It reads no rows: the caller
// says what would be free.
type Fitting struct {
	p *Profile
	w *Want
	k *kindWant
}

// Fittings returns the fittings of a want, one for each type of GPU.
func (p *Profile) Fittings(w *Want) []Fitting {
	list := make([]Fitting, len(w.kinds))
	for i := range w.kinds {
		list[i] = Fitting{p, w, &w.kinds[i]}
	}
	return list
}

// Spread reports whether the want needs a total of GPUs, whatever each host has; else it needs nodes with equal
// amounts.
func (f Fitting) Spread() bool { return f.w.Need.PerNode < 0 }

// Units returns the number of units that the want needs: GPUs of a spread want, else nodes.
func (f Fitting) Units() int32 {
	if f.Spread() {
		return f.w.Need.Total
	}
	return max(f.w.Need.Nodes, 1)
}

// Gives returns how many units a host has in an amount.
func (f Fitting) Gives(h int, free *Amount) int32 {
	d := &f.k.demands[f.p.models[h]]
	switch {
	case !f.w.hosts.Has(h) || !d.fits(free):
		return 0
	case f.Spread():
		return d.gives(free)
	}
	return 1
}

// Useful cuts an amount to what one node of the want can use of it: Gives returns the same for both.
func (f Fitting) Useful(h int, free Amount) Amount {
	d := &f.k.demands[f.p.models[h]]
	most := d.base
	for i := range MaxPools {
		if n := d.mask.Of(i); n > 0 && f.Spread() {
			most.GPUs |= Lane(i, maxLane)
		} else if n > 0 {
			most.GPUs |= Lane(i, d.gpus)
		}
	}
	if d.perGPU > 0 {
		most.Memory = max(most.Memory, free.Memory)
	}
	free.both(&most)
	return free
}

// Groups returns the hosts that may serve the want, in order: those of each domain if all nodes must lie in one,
// else all in one group.
func (f Fitting) Groups() [][]int {
	if f.w.domains == nil || f.w.most != 1 {
		var all []int
		for h := range f.w.hosts.All() {
			all = append(all, h)
		}
		return [][]int{all}
	}
	var groups [][]int
	place := map[int32]int{}
	for h := range f.w.hosts.All() {
		d := f.w.domains[h]
		if d < 0 {
			continue
		}
		i, known := place[d]
		if !known {
			i = len(groups)
			place[d], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], h)
	}
	return groups
}

// Whole reports whether the want fits as a whole into amounts of all hosts: in few enough domains, on few enough
// nodes, with those that it requires. O(hosts).
func (f Fitting) Whole(free []Amount) bool { return f.p.fitsKind(f.w, f.k, free, f.w.hosts) }

// Plain reports whether a group that has the units always fits as a whole.
func (f Fitting) Plain() bool {
	return !f.Spread() && f.w.required == nil && (f.w.domains == nil || f.w.most == 1)
}
