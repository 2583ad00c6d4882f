package plan

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// keepPromises books promises where they were, the earliest first, and after them those of jobs that
// request more now. A promise that cannot be booked there is broken or slips.
func (p *Pass) keepPromises() {
	var list []priorPromise
	for _, e := range p.fullPlan.jobs {
		e.Class.jobs = append(e.Class.jobs, e)
		prior, promise := p.fullPlan.prior[e.Job.ID], e.Job.Promise
		if prior.attempt != e.Job.Attempt { // it has started since
			prior = priorPlan{}
		}
		if e.Broken = prior.broken; e.Broken != "" {
			continue
		}
		e.changed = prior.changed
		if prior.promised { // perhaps not committed yet
			if promise = prior.plan; prior.spec != e.Job.Spec {
				e.changed = p.res.changeReason(prior.spec, e.Job.Spec)
			}
		}
		if promise != nil && e.changed != demoted {
			list = append(list, priorPromise{e, promise, prior})
		}
	}
	slices.SortStableFunc(list, func(a, b priorPromise) int { return cmp.Compare(a.promise.At, b.promise.At) })
	slips := p.slips
	if !slips {
		list, slips = p.stayOrSlip(list)
	}
	for _, changed := range []bool{false, true} {
		for _, x := range list {
			if changed == (x.changed != "") {
				p.keep(x.Entry, x.promise, &x.prior, slips)
			}
		}
	}
}

// priorPromise is a promise to keep, and what was planned for its job.
type priorPromise struct {
	*Entry
	promise *cluster.Promise
	prior   priorPlan
}

// stayOrSlip books the promises that can be kept where they are, and returns the others. When one cannot
// although its nodes are available, all are booked within the leeway, if possible. When a job that should
// have left its nodes blocks one, it books none and reports that all slip.
func (p *Pass) stayOrSlip(all []priorPromise) (list []priorPromise, slips bool) {
	list = p.stay(slices.Clone(all))
	near := false
	for i := range list {
		x := &list[i]
		near = near || x.changed == "" && p.unavailable(x.Entry, x.promise) == ""
		p.slips = p.slips || p.overdue(x.Entry, x.promise, p.res.leaves) != nil
	}
	if !p.slips && !near {
		return list, false
	}
	p.unbookAll(all)
	if p.slips {
		return all, true
	}
	list = nil
	for i := range all {
		if x := &all[i]; x.changed != "" {
			list = append(list, *x)
		} else if s, choice, ok := p.near(x.Entry, x.promise, &x.prior); ok && s.At.Sub(x.promise.At) <= Leeway {
			p.keepAt(x.Entry, x.promise, s, choice)
		} else {
			p.unbookAll(all)
			return p.stay(all), false
		}
	}
	return list, false
}

// unbookAll removes the promises that this pass has booked.
func (p *Pass) unbookAll(all []priorPromise) {
	for i := range all {
		if e := all[i].Entry; e.At > 0 {
			p.bookings.Unbook(e)
			p.promises.release(e)
			e.Promised, e.promised = false, 0
		}
	}
}

// stay books the promises that can be kept where they are, so that none gives way to one whose node is
// lost, and returns the others. Those that could use GPUs of several pools come last: a new leader does
// not know which they had.
func (p *Pass) stay(list []priorPromise) []priorPromise {
	for _, multiPool := range []bool{false, true} {
		for i := range list {
			x := &list[i]
			if x.changed != "" || multiPool != x.Class.multiPool || p.Snap.Now.Sub(x.promise.At) > slack {
				continue
			}
			if s, choice, ok := p.kept(x.Entry, x.promise, x.promise.At, &x.prior); ok {
				p.promises.make(x.Entry)
				p.bookings.Book(x.Entry, s, choice)
			}
		}
	}
	return slices.DeleteFunc(list, func(x priorPromise) bool { return x.At > 0 })
}

// keep books a promise on its hosts, else on others at the same time or within the leeway. If that is
// impossible, it is broken; if promises slip, it is delayed as little as possible.
func (p *Pass) keep(e *Entry, promise *cluster.Promise, prior *priorPlan, slips bool) {
	s, choice, ok := p.near(e, promise, prior)
	if !ok || s.At.Sub(promise.At) > Leeway {
		e.Broken = p.BrokenReason(e, promise)
	}
	if !ok && slips {
		s, choice, ok = p.bookings.findPromised(e.Class, max(promise.At, p.Snap.Now), cluster.Never)
	}
	if ok {
		p.keepAt(e, promise, s, choice)
	}
}

// keepAt books the start of a promise.
func (p *Pass) keepAt(e *Entry, promise *cluster.Promise, s backfill.Start, choice int) {
	e.promised = promise.At
	p.promises.make(e)
	p.bookings.Book(e, s, choice)
}

// near returns a start at the time of a promise or within the leeway; now, if that time has passed.
func (p *Pass) near(e *Entry, promise *cluster.Promise, prior *priorPlan) (backfill.Start, int, bool) {
	s, choice, ok := p.samePlace(e, promise, prior)
	if !ok {
		s, choice, ok = p.bookings.findPromised(e.Class, max(promise.At, p.Snap.Now), promise.At.Add(Leeway)+1)
	}
	return s, choice, ok
}

// samePlace returns a start at the time of a promise, or now if that has passed: on its hosts, else on
// others. A pass that comes a moment late leaves the start where it was, else its end would delay the
// next job.
func (p *Pass) samePlace(e *Entry, promise *cluster.Promise, prior *priorPlan) (backfill.Start, int, bool) {
	at := promise.At
	if p.Snap.Now.Sub(at) > slack {
		at = p.Snap.Now
	}
	if s, choice, ok := p.kept(e, promise, at, prior); ok {
		return s, choice, true
	}
	at = max(at, p.Snap.Now)
	return p.bookings.findPromised(e.Class, at, at+1)
}

// kept returns the start that a promise names, if its hosts still have what the job needs: from the pools
// of the prior plan, if that is known.
func (p *Pass) kept(e *Entry, promise *cluster.Promise, at cluster.Instant, prior *priorPlan) (backfill.Start, int, bool) {
	var hosts []int
	var gpus []int32
	for _, share := range promise.Hosts {
		h, _, ok := p.res.hostOf(e.Job.Spec, share.Node)
		if !ok {
			return backfill.Start{}, 0, false
		}
		hosts, gpus = append(hosts, h), append(gpus, share.GPUs)
	}
	for i := range e.Class.Options {
		o := &e.Class.Options[i]
		if o.Partition != promise.Partition {
			continue
		}
		for choice := 2*i + 1; choice >= 2*i; choice-- { // with locality, if those hosts have it
			w := e.Class.want(choice)
			if w == nil {
				continue
			}
			give, asked := given(&w.Need, gpus)
			if !asked {
				continue
			}
			shares, ok := p.bookings.Profile.Shares(w, promise.Kind, at, hosts, give)
			if same := prior.same(e, p.res, shares, choice); ok && same != nil && p.bookings.Profile.Fits(w, at, same) {
				shares = same
			}
			if ok && p.bookings.Profile.Fits(w, at, shares) {
				return backfill.Start{At: at, Kind: promise.Kind, Shares: shares}, choice, true
			}
		}
	}
	return backfill.Start{}, 0, false
}

// same returns shares with the pools chosen last time, if the job's request and the hosts' pools are the
// same; nil where that is unknown, or each host has one pool. A promise does not name its pools, and
// another job may need those that a new choice would take.
func (m *priorPlan) same(e *Entry, g *Resources, shares []backfill.HostShare, choice int) []backfill.HostShare {
	if len(m.shares) != len(shares) || m.spec != e.Job.Spec || m.choice%2 != choice%2 {
		return nil
	}
	var list []backfill.HostShare
	for i := range shares {
		is := g.Hosts[shares[i].Host]
		if len(is.Pools) < 2 {
			continue
		}
		k := i
		if m.hosts[m.shares[k].Host].Name != is.Name { // the order changed
			k = slices.IndexFunc(m.shares, func(s backfill.HostShare) bool { return m.hosts[s.Host].Name == is.Name })
		}
		if k < 0 || m.shares[k].GPUs != shares[i].GPUs || !slices.Equal(m.hosts[m.shares[k].Host].Pools, is.Pools) {
			return nil
		}
		if list == nil {
			list = slices.Clone(shares)
		}
		list[i].Amount.GPUs = m.shares[k].Amount.GPUs
	}
	return list
}

// given returns how many GPUs each host of a promise gives to the present request, which may be smaller;
// false when the request does not fit that many hosts.
func given(need *topology.NodeRequest, gpus []int32) ([]int32, bool) {
	if need.Nodes > 0 && len(gpus) != int(need.Nodes) {
		return nil, false
	}
	if need.PerNode >= 0 {
		return slices.Repeat([]int32{need.PerNode}, len(gpus)), true
	}
	sum := int32(0)
	for _, n := range gpus {
		sum += n
	}
	return gpus, sum == need.Total
}
