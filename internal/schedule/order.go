package schedule

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	backfill "github.com/greylag/greylag/internal/schedule/first"
	"github.com/greylag/greylag/pkg/cluster"
)

// class is the eligible jobs that ask for the same under the same conditions, in
// the order in which they are served.
type class struct {
	rank rank
	spec *cluster.JobSpec // of one of them
	part *part
	jobs []*cluster.Job
	next int // jobs before it have been served

	looked  bool
	want    backfill.Want
	blocked bool // nothing of it can start any more in this pass
	why     verdict
	rest    verdict // of those that have no planned start
}

// rank is what puts a class before others, most important first.
type rank struct {
	tier        int32 // of the QOS; higher first
	qosPriority int32 // higher first
	priority    int32 // of the partition; higher first
	nice        int32 // lower first
}

func (a rank) compare(b rank) int {
	return cmp.Or(
		cmp.Compare(b.tier, a.tier), cmp.Compare(b.qosPriority, a.qosPriority),
		cmp.Compare(b.priority, a.priority), cmp.Compare(a.nice, b.nice),
	)
}

// classKey is all that decides when and where a job can start.
type classKey struct {
	rank                                   rank
	partition                              string
	limit                                  time.Duration
	nodes, perNode, gpus, tasks, cpus      int32
	memPerNode, memPerCPU, memPerGPU       cluster.Bytes
	exclusive                              bool
	types, features, nodeList, excludeList string
}

// classOf finds or founds the class of an eligible job.
func (r *round) classOf(job *cluster.Job) *class {
	spec, p := job.Spec, r.ground.parts[job.Spec.Partition]
	qos := r.ground.qos[spec.QOS] // one that the policy no longer has ranks last
	q := &spec.Request
	key := classKey{
		rank:      rank{qos.Tier, qos.Priority, p.Priority, spec.Nice},
		partition: spec.Partition, limit: spec.TimeLimit,
		nodes: q.Nodes, perNode: q.GPUsPerNode, gpus: q.GPUs, tasks: q.TasksPerNode, cpus: q.CPUsPerTask,
		memPerNode: q.MemPerNode, memPerCPU: q.MemPerCPU, memPerGPU: q.MemPerGPU, exclusive: q.Exclusive,
		types: join(q.GPUTypes), features: join(q.Features), nodeList: join(q.NodeList), excludeList: join(q.Exclude),
	}
	c, ok := r.byKey[key]
	if !ok {
		c = &class{rank: key.rank, spec: spec, part: p}
		r.byKey[key] = c
	}
	return c
}

func join(words []string) string { return strings.Join(words, "\x00") }

// before orders jobs of classes: by rank, then who came first.
func before(a, b *class) bool {
	if c := a.rank.compare(b.rank); c != 0 {
		return c < 0
	}
	return older(a.jobs[a.next], b.jobs[b.next]) < 0
}

func older(a, b *cluster.Job) int {
	return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
}

// order is step 2: it puts the jobs of each class, and the classes, in order.
func (r *round) order() {
	for _, c := range r.byKey { // the queue's order is total: the map's does not matter
		if !slices.IsSortedFunc(c.jobs, older) {
			slices.SortFunc(c.jobs, older)
		}
		r.queue = append(r.queue, c)
	}
	heap.Init(&r.queue)
}

// classQueue is a heap of classes by their next job.
type classQueue []*class

// Len counts.
func (q classQueue) Len() int { return len(q) }

// Less orders.
func (q classQueue) Less(i, j int) bool { return before(q[i], q[j]) }

// Swap swaps.
func (q classQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push adds a class at the end.
func (q *classQueue) Push(x any) { *q = append(*q, x.(*class)) }

// Pop removes the last.
func (q *classQueue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}
