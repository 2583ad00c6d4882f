package schedule

import (
	"github.com/greylag/greylag/internal/heap"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// What bounds one pass.
const (
	// maxStarts ends the starts of one pass, so that its plan is agreed soon; another
	// pass follows.
	maxStarts = 1024
	// maxMoves is how many jobs one pass that follows an event may plan or bring
	// forward; the next goes on from there, in the same order.
	maxMoves = 16
	maxLooks = 4096
)

// Decision is what a pass decides.
type Decision struct {
	Plan cluster.Plan
	// Preempt asks for room that others could make; see [Decision.Evict].
	Preempt []PreemptRequest
	// Wake is the next instant at which time alone makes a job eligible or due;
	// [cluster.Never] when there is none.
	Wake cluster.Instant
	// More says that the pass ended before it had looked at everything.
	More  bool
	Stats Stats
}

// Stats is what a pass had to do.
type Stats struct {
	Anew    bool // everything was planned anew, not what changed alone
	Planned int  // waiting jobs that have a planned start now
	Moved   int  // planned starts that were brought forward
	Rows    int  // rows of the profile that were looked at
}

// Planner plans, pass by pass. It keeps its plan from one pass to the next and works
// out by itself what changed between two snapshots, so that a pass after one event
// costs what the event changed. It is a function of the snapshots it was given and
// their order; only its owner may use it.
type Planner struct {
	passes          uint64
	last            *cluster.Snapshot
	ordered         cluster.Instant // when all starts were last seen to be in the order of priorities
	turns           int             // handed out
	outOfOrder      bool            // somebody stands behind one who matters less
	lowestPlanned   rank            // of those that are no promises, if not
	alone           *entry          // that has no priority yet, since nobody else waits; nil when there is none
	prio            *priorities     // of the last pass
	taken           []topology.Set  // GPUs that jobs have, by host
	unallocated     []backfill.Amount
	ground          *resources
	profile         *backfill.Profile
	classes         map[classKey]*requestClass
	bySpec          map[*cluster.JobSpec]*requestClass
	entries         map[cluster.JobID]*entry
	tenants         map[cluster.JobID]*runningJob
	barred          ineligible
	singles         singletons
	namesakes       *jobNameIndex            // as of the last snapshot; nil until a singleton asked
	limited         map[*entry]bool          // eligible elements of arrays with a limit
	pledged         map[*entry]bool          // promised, and not started
	offers          heap.Heap[moveCandidate] // that the last pass had no time for, and this one makes
	left            map[int]bool             // hosts on which the last pass gave a place back
	on              [][]*entry               // planned, by host
	due             heap.Heap[*entry]        // planned, by start, but for those that were started
	started         []*entry                 // that the last pass decided to start
	leaving         heap.Heap[*runningJob]   // by end
	soft            int                      // planned starts that are no promises
	wide            int                      // planned starts on several hosts
	asked           cluster.Instant          // when all who may preempt were last looked at
	unasked         []*entry                 // may preempt and changed, in passes that did not ask
	preemptingFor   cluster.JobID            // for which the last pass asked for room; 0: for none
	made            cluster.JobID            // for which room was asked for last
	pending, active []*cluster.Job           // of the last snapshot, by id
}

// NewPlanner is a planner that has seen nothing.
func NewPlanner() *Planner { return &Planner{} }

// Decide makes one pass over a snapshot from nothing.
func Decide(snap *cluster.Snapshot) Decision { return NewPlanner().Pass(snap) }

// Pass brings the plan up to a snapshot. The steps are those of the manual: which
// jobs are eligible, in which order, when and where each starts, and why it waits.
// What room others could make for jobs that may preempt them it asks for; it rents no
// nodes.
// O(jobs log jobs + searches) when all is planned anew, else what changed costs.
func (p *Planner) Pass(snap *cluster.Snapshot) Decision {
	r := p.newRound(snap)
	switch late := p.isLate(snap.Now); {
	case late || p.needsReplan(r):
		p.replan(r, late)
	case !p.applyDelta(r):
		p.replan(r, true)
	case r.passedOver: // what is free is not for those behind, nor are others ended for it
		p.replan(r, false)
	}
	p.startDue(r)
	r.decision.More = r.decision.More || p.offers.Len() > 0 || p.mistold(r)
	p.explain(r)
	p.preempt(r)
	p.last, p.pending, p.active, p.namesakes = snap, r.jobs.pending, r.jobs.active, r.namesakes
	r.decision.Stats.Rows, p.profile.Rows = p.profile.Rows, 0
	r.decision.Stats.Planned = p.due.Len()
	if p.barred.later.Len() > 0 {
		r.decision.Wake = min(r.decision.Wake, p.barred.later.Items()[0].at)
	}
	if at, ok := p.nextDue(); ok {
		r.decision.Wake = min(r.decision.Wake, max(at, snap.Now+1), turning(snap.Policy.Scheduling.Reservations, snap.Now))
	}
	return r.decision
}

// pass is one pass under way.
type pass struct {
	number     uint64 // of the planner's passes
	snap       *cluster.Snapshot
	jobs       jobList
	limits     *limits
	pledges    promisedUsage // made when a limit asks
	prio       *priorities
	namesakes  *jobNameIndex                          // nil until a singleton asks
	begun      map[jobName]bool                       // names of jobs that start in this pass, if there are singletons
	stood      map[cluster.Dependency]dependencyState // how those on whole arrays stand: as many wait for one as it has elements
	lastBegan  map[cluster.JobRef]cluster.Instant     // when the last of what is named first started
	taken      map[cluster.JobID]int32                // elements of an array that run or are planned; made when one with a limit asks
	turned     map[cluster.JobID]bool                 // arrays of which that has changed meanwhile
	told       []*entry                               // whose verdict may have changed
	free       []backfill.Amount                      // what no job has of each host; made when asked for
	open       backfill.HostSet                       // the hosts of which free has a GPU
	stay       bool                                   // promises are not brought forward: a trial of what comes before that
	passedOver bool                                   // a job that may preempt was planned behind starts that are no promises
	slips      bool                                   // everything is planned anew since some job or pass is late
	decision   Decision
}

func newRound(snap *cluster.Snapshot) *pass { return NewPlanner().newRound(snap) }

// newRound begins a pass. What hangs on the policy alone is taken over from the last one.
func (p *Planner) newRound(snap *cluster.Snapshot) *pass {
	p.prio = p.prio.at(snap)
	p.passes++
	r := &pass{number: p.passes, snap: snap, jobs: newRoster(snap, jobList{p.active, p.pending}), limits: newLimits(snap), prio: p.prio}
	r.turned = map[cluster.JobID]bool{}
	r.stood, r.lastBegan = map[cluster.Dependency]dependencyState{}, map[cluster.JobRef]cluster.Instant{}
	r.decision.Plan.Index, r.decision.Plan.Policy = snap.Index, snap.Policy.Version
	r.decision.Wake = nextPriceChange(snap)
	return r
}

// markChanged has a job told what may have changed for it.
func (r *pass) markChanged(e *entry) {
	if e.told != r.number {
		e.told = r.number
		r.told = append(r.told, e)
	}
}

// entry is a waiting job in the plan.
type entry struct {
	job      *cluster.Job
	class    *requestClass
	rank     rank
	turn     int             // who was planned before it had a lower one
	at       cluster.Instant // 0: none is planned
	until    cluster.Instant
	choice   int // which of the class's options was planned
	kind     string
	shares   []backfill.Share
	promised bool            // a promise
	owed     cluster.Instant // when it was promised to start, where it is planned a moment later; see [entry.promised]
	changed  string          // what it asks for since it was promised a start, and may lose that for; until that was told
	starts   bool            // this pass, or the last one, starts it
	gone     bool
	why      verdict
	kept     *blockState // nil unless it is barred
	told     uint64      // number of the last pass in which it was
	broken   string      // why its promise is not kept, until that was told
	place    int         // in the agenda
	queued   bool
}

// runningJob is a job that has nodes.
type runningJob struct {
	job      *cluster.Job
	alloc    *cluster.Allocation
	until    cluster.Instant
	hosts    []int
	amounts  []backfill.Amount
	licences []backfill.Licence
	place    int
}

// verdict is why a job waits.
type verdict struct {
	reason cluster.Reason
	detail string
}
