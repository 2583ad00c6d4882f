package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
)

// Class is a request class: jobs that request the same under the same conditions. What one search for
// one of them learned is used for the others.
type Class struct {
	Spec    *cluster.JobSpec  // of one of its jobs
	Avoids  []string          // nodes on which its jobs start only if they would otherwise start later
	Options []Option          // one for each partition that may serve it
	Never   eligible.Obstacle // why none of its jobs can ever start; the zero value when they can
	Refused string            // the partitions that refuse its jobs, in words
	Waits   bool              // Never is that there is no leased node yet on which its jobs could start

	key             classKey
	leasee          cluster.JobID // its only job, for which nodes are leased; 0 for none
	specs           []*cluster.JobSpec
	jobs            []*Entry                   // eligible ones, by rank
	latest          cluster.Instant            // no planned start of its jobs is later
	queued          *Entry                     // its last job among the moves; nil for none
	before          cluster.Instant            // all its jobs ahead of that one are planned to start by then
	noticed         bool                       // among the classes whose jobs may start earlier
	startable       bool                       // a host can take a share of its jobs at once since all were checked for that
	selfOverlapping bool                       // a planned start of its jobs can block an earlier one
	multiPool       bool                       // a node may serve its jobs from several pools of GPUs
	bounded         bool                       // the search of an option that was dropped was bounded
	needs           string                     // what its jobs need, in words; "" before the first use
	tried           map[cluster.Sharers]uint64 // the number of openings when there was no place for its jobs of these sharers
}

// Option is one way to serve a class: in one of its partitions, on nodes with one of the sets of features
// in brackets, and either without the nodes that its jobs avoid or with them. The former comes first, so
// that it serves a job that can start by it as early.
type Option struct {
	Partition string
	Wait      time.Duration // how much later than without locality a job may start with it
	leased    bool          // its nodes are leased
	usable    backfill.HostSet
	near      *backfill.Want // with the requested locality; nil when none is requested
	any       *backfill.Want // without; nil when locality is a must
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
	exclusive, includes                    bool
	types, features, nodeList, excludeList string
	licences, regions, gres                string
	maxPrice                               int64
	account                                string // "" where none of its partitions lists accounts, or has leased nodes
	avoids                                 string
	share                                  cluster.GPUShare
	leases                                 leaseKey
}

// leaseKey is what decides which leased nodes a job may use. The zero value is that of jobs without a partition of leased
// nodes, and of all jobs while there are none.
type leaseKey struct {
	market  cluster.Market
	regions string
	spot    bool          // its QOS allows spot nodes
	leasee  cluster.JobID // the job, if nodes are leased for it alone
}

// keyOf returns the key by all that a job requests.
func keyOf(spec *cluster.JobSpec) classKey {
	q := &spec.Request
	key := classKey{
		partition: spec.Partition, others: join(spec.OtherPartitions), reservation: spec.Reservation,
		limit: spec.TimeLimit, wait: q.SwitchWait, switches: q.Switches, connect: q.Connect,
		nodes: q.Nodes, perNode: q.GPUsPerNode, gpus: q.GPUs, tasks: q.TasksPerNode, cpus: q.CPUsPerTask,
		memPerNode: q.MemPerNode, memPerCPU: q.MemPerCPU, memPerGPU: q.MemPerGPU, gpuMemory: q.GPUMemory, memFrom: q.MemFrom,
		exclusive: q.Exclusive, includes: q.IncludesList(), regions: join(q.Regions), maxPrice: q.MaxPrice,
		types: join(q.GPUTypes), features: join(q.Features), nodeList: join(q.NodeList), excludeList: join(q.Exclude),
		gres: cluster.FormatGres(q.Gres), share: q.Share,
	}
	for _, l := range q.Licences {
		key.licences += l.Name + "\x00" + strconv.Itoa(int(l.Count)) + "\x00"
	}
	return key
}

func join(list []string) string { return strings.Join(list, "\x00") }

// Needs returns what the jobs of the class need, in words.
func (c *Class) Needs() string {
	if c.needs == "" {
		c.needs = words.Request(&c.Spec.Request)
	}
	return c.needs
}

// Bounded reports whether a search for the class was bounded: it may miss a place.
func (c *Class) Bounded() bool {
	return c.bounded || slices.ContainsFunc(c.Options, func(o Option) bool { return o.isBounded() })
}

// MayUse reports whether a host is in one of the partitions in which the class may run.
func (c *Class) MayUse(h int) bool {
	return slices.ContainsFunc(c.Options, func(o Option) bool { return o.usable.Has(h) })
}

// HasLocality reports whether a start of the option may have locality, and may lack it.
func (o *Option) HasLocality() bool { return o.near != nil && o.any != nil }

// Loosest returns the search with the fewest conditions: without locality where that may lack.
func (o *Option) Loosest() *backfill.Want {
	if o.any != nil {
		return o.any
	}
	return o.near
}

func (o *Option) isBounded() bool {
	return o.near != nil && o.near.Bounded() || o.any != nil && o.any.Bounded()
}

func (o *Option) isSelfOverlapping() bool {
	return o.near != nil && o.near.SelfOverlapping() || o.any != nil && o.any.SelfOverlapping()
}

func (o *Option) isMultiPool() bool {
	return o.near != nil && o.near.MultiPool() || o.any != nil && o.any.MultiPool()
}

// want returns the search of a choice: that of option choice/2, with locality where choice is odd.
func (c *Class) want(choice int) *backfill.Want {
	o := &c.Options[choice/2]
	if choice%2 == 1 {
		return o.near
	}
	return o.any
}

// limitOf returns the limit of a start that is better than one of a job of the class.
func (c *Class) limitOf(at cluster.Instant, choice int) limit {
	l := limit{at, at}
	if o := &c.Options[choice/2]; choice%2 == 1 && o.any != nil {
		l.loose = at.Add(-o.Wait)
	}
	return l
}

// insert adds an entry in order of rank.
func (c *Class) insert(e *Entry) {
	n := len(c.jobs)
	if n == 0 || compareRanks(c.jobs[n-1], e) < 0 {
		c.jobs = append(c.jobs, e)
		return
	}
	i, _ := slices.BinarySearchFunc(c.jobs, e, compareRanks)
	c.jobs = slices.Insert(c.jobs, i, e)
}

// remove removes an entry.
func (c *Class) remove(e *Entry) {
	i, found := slices.BinarySearchFunc(c.jobs, e, compareRanks)
	if found && c.jobs[i] == e {
		c.jobs = slices.Delete(c.jobs, i, i+1)
	}
}
