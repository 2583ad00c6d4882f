package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// requestClass is the jobs that ask for the same: what is learned in looking for a start for
// one of them is used for the others.
type requestClass struct {
	spec            *cluster.JobSpec // of one of them
	specs           []*cluster.JobSpec
	offered         *entry          // of them, the last that was queued in a sweep and waits there; nil for none
	before          cluster.Instant // an instant by which all ahead of that one are planned to start
	hears           bool            // is about to be offered something
	selfOverlapping bool            // a start of theirs can be in its own way
	multiPool       bool            // a node may give them GPUs of one pool or another
	opens           bool            // a host has become able to take a share of theirs at once, and they have not all been asked since
	judged          uint64          // number of the pass that found out whether it fits now
	fits            bool
	kept            string // by which reservations alone it is kept back; judged with fits
	options         []option
	cut             bool            // the search for what could serve it ever was bounded
	never           verdict         // why none of them can ever start; the zero verdict when they can
	need            string          // what its jobs need, in words; "" until somebody asks
	refused         string          // the partitions that refuse its jobs, in words
	jobs            []*entry        // eligible, in order of rank
	latest          cluster.Instant // no planned start of theirs is later; at least that
}

// option is one way to serve a class: in one of its partitions.
type option struct {
	part *part
	near *backfill.Want // with the connectivity it asks for; nil when it asks for none
	any  *backfill.Want // without; nil when the connectivity is a must
	wait time.Duration  // how much later than any it may start to be near
}

// classKey is all that decides when and where a job can start.
type classKey struct {
	partition, others, reservation         string
	limit, wait                            time.Duration
	nodes, perNode, gpus, tasks, cpus      int32
	switches                               int32
	connect                                cluster.Connect
	memPerNode, memPerCPU, memPerGPU       cluster.Bytes
	gpuMemory                              cluster.Bytes
	memFrom                                cluster.MemorySource
	exclusive                              bool
	types, features, nodeList, excludeList string
	licences, regions                      string
	maxPrice                               int64
	account                                string // "" where none of its partitions has a list of accounts
}

// classOf finds or founds the class of a job.
func (p *Planner) classOf(r *pass, job *cluster.Job) *requestClass {
	if c, ok := p.bySpec[job.Spec]; ok {
		return c
	}
	key := p.ground.classKeyOf(job.Spec)
	c, ok := p.classes[key]
	if !ok {
		c = &requestClass{spec: job.Spec}
		p.prepareSearches(r, c)
		p.classes[key] = c
	}
	p.bySpec[job.Spec] = c
	c.specs = append(c.specs, job.Spec)
	return c
}

// classKeyOf returns the key of a job's class. It has the account where a partition lists accounts.
func (g *resources) classKeyOf(spec *cluster.JobSpec) classKey {
	key := keyOf(spec)
	restricts := func(name string) bool {
		part := g.parts[name]
		return part != nil && len(part.AllowAccounts) > 0
	}
	if slices.ContainsFunc(partitions(spec), restricts) {
		key.account = spec.Account
	}
	return key
}

// keyOf returns the key by all that a job asks for.
func keyOf(spec *cluster.JobSpec) classKey {
	q := &spec.Request
	key := classKey{
		partition: spec.Partition, others: join(spec.Others), reservation: spec.Reservation,
		limit: spec.TimeLimit, wait: q.SwitchWait, switches: q.Switches, connect: q.Connect,
		nodes: q.Nodes, perNode: q.GPUsPerNode, gpus: q.GPUs, tasks: q.TasksPerNode, cpus: q.CPUsPerTask,
		memPerNode: q.MemPerNode, memPerCPU: q.MemPerCPU, memPerGPU: q.MemPerGPU, gpuMemory: q.GPUMemory, memFrom: q.MemFrom,
		exclusive: q.Exclusive, regions: join(q.Regions), maxPrice: q.MaxPrice,
		types: join(q.GPUTypes), features: join(q.Features), nodeList: join(q.NodeList), excludeList: join(q.Exclude),
	}
	for _, l := range q.Licences {
		key.licences += l.Name + "\x00" + strconv.Itoa(int(l.Count)) + "\x00"
	}
	return key
}

func join(words []string) string { return strings.Join(words, "\x00") }

// prepareSearches prepares the searches of a class: one option for each partition that does not refuse it.
func (p *Planner) prepareSearches(r *pass, c *requestClass) {
	need := topology.NeedOf(&c.spec.Request)
	for _, name := range partitions(c.spec) {
		if x, refuses := p.ground.refusalBy(c.spec, name); refuses {
			c.refused += fmt.Sprintf("; not in partition %q, which %s", name, x.says)
			continue
		}
		o := p.option(r, c, need, p.ground.parts[name])
		if p.canEver(&o) {
			c.options = append(c.options, o)
			c.selfOverlapping, c.multiPool = c.selfOverlapping || o.selfOverlapping(), c.multiPool || o.multiPool()
		} else {
			c.cut = c.cut || o.bounded()
			p.unequip(&o)
		}
	}
	if len(c.options) == 0 {
		c.never = p.impossible(r, c, need)
	}
}

// needs says what the jobs of the class ask for.
func (c *requestClass) needs() string {
	if c.need == "" {
		need := topology.NeedOf(&c.spec.Request)
		c.need = needs(&need)
	}
	return c.need
}

// unequip forgets the searches of an option.
func (p *Planner) unequip(o *option) {
	for _, w := range [...]*backfill.Want{o.near, o.any} {
		if w != nil {
			p.profile.Drop(w)
		}
	}
}

// bounded reports whether a search for the option gave up.
func (o *option) bounded() bool {
	return o.near != nil && o.near.Bounded() || o.any != nil && o.any.Bounded()
}

// selfOverlapping reports whether a start by the option can be in its own way.
func (o *option) selfOverlapping() bool {
	return o.near != nil && o.near.SelfOverlapping() || o.any != nil && o.any.SelfOverlapping()
}

// multiPool reports whether a node may serve the option in several ways.
func (o *option) multiPool() bool {
	return o.near != nil && o.near.MultiPool() || o.any != nil && o.any.MultiPool()
}

func (p *Planner) canEver(o *option) bool {
	return o.near != nil && p.profile.FitsEmpty(o.near) || o.any != nil && p.profile.FitsEmpty(o.any)
}

func (p *Planner) option(r *pass, c *requestClass, need topology.Need, part *part) option {
	q := &c.spec.Request
	need.Most = part.MaxNodes
	o := option{part: part, wait: q.SwitchWait}
	lasts, where := p.ground.holdTime(c.spec), backfill.Where{Hosts: p.ground.allowed(c.spec, part)}
	var licences []backfill.Licence
	for _, l := range q.Licences {
		row, known := p.ground.licences[l.Name]
		if !known {
			return option{}
		}
		licences = append(licences, backfill.Licence{Row: row, Count: l.Count})
	}
	loose := need
	loose.Linked = false
	several := need.Nodes != 1
	near := where
	switch leaf := min(1, len(p.ground.levels)-1); {
	case q.Connect == cluster.ConnectNVLink && several:
		near.Domains, near.Most = p.ground.levels[0], 1
		if q.Switches > 0 && leaf > 0 {
			near.Domains, near.Groups = within(near.Domains, p.ground.levels[leaf])
			near.Most = q.Switches
		}
	case q.Connect == cluster.ConnectLeaf && several && leaf > 0:
		near.Domains, near.Most = p.ground.levels[leaf], 1
	case q.Switches > 0 && several && leaf > 0:
		near.Domains, near.Most = p.ground.levels[leaf], q.Switches
	case !need.Linked:
		o.any = p.profile.Want(loose, lasts, where, licences...)
		o.any.Owner = c
		return o
	}
	o.near = p.profile.Want(need, lasts, near, licences...)
	o.near.Owner = c
	if q.SwitchWait >= 0 {
		o.wait = min(o.wait, cmpOr(r.snap.Policy.Scheduling.MaxSwitchWait, o.wait))
		o.any = p.profile.Want(loose, lasts, where, licences...)
		o.any.Owner = c
	}
	return o
}

func cmpOr(a, b time.Duration) time.Duration {
	if a != 0 {
		return a
	}
	return b
}

// want is the search that found a start of the option.
func (c *requestClass) want(choice int) *backfill.Want {
	o := &c.options[choice/2]
	if choice%2 == 1 {
		return o.near
	}
	return o.any
}

// limit is before when a start has to be: one that is near, if the job would wait to have its
// nodes near each other, and any other. The latter is sooner where the job has one that is
// near already: as much as it would wait for that.
type limit struct{ near, loose cluster.Instant }

// limitOf is when a start has to be to be better than one that a job of the class has.
func (c *requestClass) limitOf(at cluster.Instant, choice int) limit {
	l := limit{at, at}
	if o := &c.options[choice/2]; choice%2 == 1 && o.any != nil {
		l.loose = at.Add(-o.wait)
	}
	return l
}

// admits reports whether a start is before the limit.
func (l limit) admits(s *backfill.Start, choice int) bool {
	if choice%2 == 1 {
		return s.At < l.near
	}
	return s.At < l.loose
}

// find looks for the earliest start of the class: in the partition named first among
// equally early ones, and near if that does not cost more than its wait.
func (p *Planner) find(c *requestClass, from, before cluster.Instant, look searcher) (backfill.Start, int, bool) {
	return p.findWithin(c, from, limit{before, before}, look)
}

// better is a start that is earlier than the one an entry has, or as much earlier as it would
// wait to be near.
func (p *Planner) better(e *entry, look searcher) (backfill.Start, int, bool) {
	return p.findWithin(e.class, p.profile.Now(), e.class.limitOf(e.at, e.choice), look)
}

func (p *Planner) findWithin(c *requestClass, from cluster.Instant, within limit, look searcher) (backfill.Start, int, bool) {
	var best backfill.Start
	choice, found := 0, false
	take := func(s backfill.Start, i int) {
		best, choice, found = s, i, true
		within = c.limitOf(s.At, i)
	}
	for i := range c.options {
		o := &c.options[i]
		near := within.near
		if o.any != nil {
			if s, ok := look(p.profile, o.any, from, within.loose); ok {
				take(s, 2*i)
				near = min(near, s.At.Add(o.wait)+1)
			} else if within.loose == near {
				continue // what is not there at all is not there near
			}
		}
		if o.near == nil {
			continue
		}
		if s, ok := look(p.profile, o.near, from, near); ok {
			take(s, 2*i+1)
		}
	}
	return best, choice, found
}

// searcher is a way to search: [backfill.Profile.Earliest], which remembers, or
// [backfill.Profile.Search], which does not.
type searcher func(p *backfill.Profile, w *backfill.Want, from, before cluster.Instant) (backfill.Start, bool)

// insert puts an entry among those of its class.
func (c *requestClass) insert(e *entry) {
	n := len(c.jobs)
	if n == 0 || c.jobs[n-1].rank.compare(&e.rank) < 0 {
		c.jobs = append(c.jobs, e)
		return
	}
	i, _ := slices.BinarySearchFunc(c.jobs, e, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	c.jobs = slices.Insert(c.jobs, i, e)
}

// remove takes an entry out.
func (c *requestClass) remove(e *entry) {
	i, found := slices.BinarySearchFunc(c.jobs, e, func(a, b *entry) int { return a.rank.compare(&b.rank) })
	if found && c.jobs[i] == e {
		c.jobs = slices.Delete(c.jobs, i, i+1)
	}
}
