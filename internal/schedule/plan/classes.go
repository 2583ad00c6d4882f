package plan

import (
	"cmp"
	"fmt"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// classes holds the request classes of all eligible jobs.
type classes struct {
	res     *Resources
	profile *backfill.Profile
	byKey   map[classKey]*Class
	bySpec  map[*cluster.JobSpec]*Class
}

func newClasses(r *Resources, profile *backfill.Profile) classes {
	return classes{res: r, profile: profile, byKey: map[classKey]*Class{}, bySpec: map[*cluster.JobSpec]*Class{}}
}

// of finds or creates the class of a job at an instant.
func (t *classes) of(job *cluster.Job, now cluster.Instant) *Class {
	avoids := job.Avoids(now, t.res.Failing)
	shared := len(avoids) == 0 && !t.res.leasees[job.ID] // else other jobs of the specification may use other nodes
	if c, ok := t.bySpec[job.Spec]; ok && shared {
		return c
	}
	key := t.key(job)
	key.avoids = join(avoids)
	c, ok := t.byKey[key]
	if !ok {
		c = t.create(job.Spec, avoids, key.leases.leasee)
		c.key = key
		t.byKey[key] = c
	}
	if shared {
		t.bySpec[job.Spec] = c
		c.specs = append(c.specs, job.Spec)
	}
	return c
}

// key returns the key of a job's class, with the account where a partition lists accounts or has leased nodes.
func (t *classes) key(job *cluster.Job) classKey {
	spec := job.Spec
	key := keyOf(spec)
	for i := -1; i < len(spec.OtherPartitions); i++ {
		name := spec.Partition
		if i >= 0 {
			name = spec.OtherPartitions[i]
		}
		part := t.res.parts[name]
		if part == nil {
			continue
		}
		if len(part.AllowAccounts) > 0 || part.leased {
			key.account = spec.Account
		}
		if part.leased {
			key.leases = leaseKey{market: spec.Burst.Market, regions: join(spec.Burst.Regions), spot: t.res.allowsSpot(spec)}
			if t.res.leasees[job.ID] {
				key.leases.leasee = job.ID
			}
		}
	}
	return key
}

// create creates a class, with one option for each partition that does not refuse it, and each set of
// features in brackets; two where its jobs avoid nodes. leasee is its only job, if nodes are leased for that.
func (t *classes) create(spec *cluster.JobSpec, avoids []string, leasee cluster.JobID) *Class {
	c := &Class{Spec: spec, Avoids: avoids, leasee: leasee}
	need := topology.NeedOf(&spec.Request)
	for _, name := range spec.AllPartitions() {
		if x, refuses := t.res.Refusal(spec, name); refuses {
			c.Refused += fmt.Sprintf("; not in partition %q, which %s", name, x.Says)
			continue
		}
		for _, features := range cluster.FeatureSets(spec.Request.Features) {
			if len(avoids) > 0 {
				t.add(c, t.option(c, need, t.res.parts[name], features, avoids))
			}
			t.add(c, t.option(c, need, t.res.parts[name], features, nil))
		}
	}
	if len(c.Options) == 0 {
		c.Never, c.Waits = t.impossible(c, need)
	}
	return c
}

// add adds an option to a class, unless it does not fit into an empty cluster.
func (t *classes) add(c *Class, o Option) {
	if !t.fitsEmpty(&o) {
		c.bounded = c.bounded || o.isBounded()
		t.drop(&o)
		return
	}
	c.Options = append(c.Options, o)
	c.selfOverlapping, c.multiPool = c.selfOverlapping || o.isSelfOverlapping(), c.multiPool || o.isMultiPool()
}

// retire removes a job from its class, and the class with its last job.
func (t *classes) retire(e *Entry) {
	c := e.Class
	if c.remove(e); len(c.jobs) > 0 {
		return
	}
	for i := range c.Options {
		t.drop(&c.Options[i])
	}
	delete(t.byKey, c.key)
	for _, spec := range c.specs {
		delete(t.bySpec, spec)
	}
}

// drop removes the searches of an option from the profile.
func (t *classes) drop(o *Option) {
	for _, w := range [...]*backfill.Want{o.near, o.any} {
		if w != nil {
			t.profile.Drop(w)
		}
	}
}

// fitsEmpty reports whether the option fits into an empty cluster.
func (t *classes) fitsEmpty(o *Option) bool {
	return o.near != nil && t.profile.FitsEmpty(o.near) || o.any != nil && t.profile.FitsEmpty(o.any)
}

// option prepares the searches in one partition, on nodes with some features and without those to avoid; none
// where the policy has a licence no more.
func (t *classes) option(c *Class, need topology.NodeRequest, part *partition, features, avoids []string) Option {
	q := &c.Spec.Request
	need.Most = part.MaxNodes
	o := Option{Partition: part.Name, usable: part.usable, Wait: q.SwitchWait, leased: part.leased}
	lasts, where := t.res.HoldTime(c.Spec), backfill.HostConstraint{Hosts: t.res.allowed(c, part, features, avoids)}
	licences, known := t.res.licencesOf(q)
	if !known {
		return Option{}
	}
	if where.Required, known = t.res.required(c.Spec); !known {
		return Option{}
	}
	loose := need
	loose.Linked = false
	several := need.Nodes != 1
	near := where
	switch leaf := min(1, len(t.res.levels)-1); {
	case q.Connect == cluster.ConnectNVLink && several:
		near.Domains, near.Most = t.res.levels[0], 1
		if q.Switches > 0 && leaf > 0 {
			near.Domains, near.Groups = within(near.Domains, t.res.levels[leaf])
			near.Most = q.Switches
		}
	case q.Connect == cluster.ConnectLeaf && several && leaf > 0:
		near.Domains, near.Most = t.res.levels[leaf], 1
	case q.Switches > 0 && several && leaf > 0:
		near.Domains, near.Most = t.res.levels[leaf], q.Switches
	case !need.Linked:
		o.any = t.profile.Want(loose, lasts, where, licences...)
		o.any.Owner = c
		return o
	}
	o.near = t.profile.Want(need, lasts, near, licences...)
	o.near.Owner = c
	if q.SwitchWait >= 0 {
		o.Wait = min(o.Wait, cmp.Or(t.res.policy.Scheduling.MaxSwitchWait, o.Wait))
		o.any = t.profile.Want(loose, lasts, where, licences...)
		o.any.Owner = c
	}
	return o
}

// never reports whether no job of a class can ever start.
func (c *Class) never() bool { return c.Never.Reason != eligible.Obstacle{}.Reason }
