package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// site is a small cluster in virtual time: it commits what a planner decides, as the state does,
// and ends jobs at random.
type site struct {
	*testing.T
	r      *rand.Rand
	p      *Planner
	snap   cluster.Snapshot
	policy cluster.Policy
	runs   map[cluster.JobID]time.Duration // real run times
	next   cluster.JobID
	lost   bool // a node was lost or a pass was missed, which may break promises
	wake   cluster.Instant
	most   limitsOfSite
	other  *rand.Rand // for what only some sites have
	slow   bool       // passes come a moment late
	mixed  bool       // nodes have GPUs of two types

	third         *rand.Rand                      // for what vary2 gives
	cleans, fails bool                            // nodes clean up slowly; starts fail
	ends          map[cluster.JobID]time.Duration // how long nodes are cleaned after a job
	overruled     bool                            // partitions changed
	counts        *rand.Rand                      // for generic resources; nil for none
}

func newSite(t *testing.T, seed uint64) *site {
	s := &site{T: t, r: rand.New(rand.NewPCG(seed, 5)), p: NewPlanner(), runs: map[cluster.JobID]time.Duration{}, next: 1}
	s.policy = cluster.DefaultPolicy()
	s.policy.KillWait = 0
	s.policy.Scheduling.PromiseHorizon = []time.Duration{0, time.Hour, cluster.Unlimited}[s.r.IntN(3)]
	s.policy.Scheduling.Replan = []time.Duration{time.Minute, time.Hour}[s.r.IntN(2)]
	s.snap = cluster.Snapshot{Index: 1, Now: start, Policy: &s.policy}
	s.snap.Ended = func(cluster.JobID) *cluster.Job {
		return &cluster.Job{State: cluster.Completed, Started: start} // any job, with any end
	}
	s.snap.Elements = func(cluster.JobID) (cluster.JobID, int32, bool) { return 0, 0, false }
	s.snap.Element = func(cluster.JobID, int32) (cluster.JobID, bool) { return 0, false }
	for n := range []int{1, 4, 20}[s.r.IntN(3)] {
		node := &cluster.Node{Name: fmt.Sprintf("n%02d", n), CPUs: 16, Memory: 64 * cluster.GiB}
		for g := range int32(4) {
			node.GPUs = append(node.GPUs, cluster.GPU{Index: g, Type: "h100", Domain: node.Name})
		}
		s.snap.Nodes = append(s.snap.Nodes, node)
	}
	s.vary(seed)
	s.vary2(seed)
	s.vary3(seed)
	s.limit()
	if s.r.IntN(2) == 0 {
		s.policy.Scheduling.Reservations = randomReservations(s.r, []string{"n00", s.snap.Nodes[len(s.snap.Nodes)-1].Name})
	}
	return s
}

// submit adds a random job.
func (s *site) submit() {
	q := cluster.Request{Nodes: 1, GPUsPerNode: s.r.Int32N(5), CPUsPerTask: 1 + s.r.Int32N(6), Exclusive: s.r.IntN(9) == 0}
	switch {
	case s.r.IntN(5) == 0:
		q.Nodes = 1 + s.r.Int32N(min(4, int32(len(s.snap.Nodes))))
	case s.r.IntN(6) == 0:
		q.Nodes, q.GPUsPerNode, q.GPUs = 0, 0, 1+s.r.Int32N(5)
	}
	s.varyRequest(&q)
	if s.counts != nil {
		q.Gres = randomGres(s.counts)
	}
	spec := &cluster.JobSpec{Name: "j", Owner: cluster.Identity{User: []string{"ada", "bob"}[s.r.IntN(2)]}, Partition: "main", QOS: "standard",
		Nice: s.r.Int32N(3), TimeLimit: time.Duration(1+s.r.IntN(240)) * time.Minute, Request: q}
	if spec.Owner.User == "ada" {
		spec.Reservation = someReservation(s.r, s.policy.Scheduling.Reservations)
	}
	job := &cluster.Job{ID: s.next, Index: cluster.NoIndex, Spec: spec, State: cluster.Pending, Submitted: s.snap.Now}
	s.condition(job)
	s.place(spec)
	if err := spec.Validate(); err != nil {
		s.Fatal(err)
	}
	s.snap.Pending = append(slices.Clone(s.snap.Pending), job)
	s.runs[s.next] = time.Duration(s.r.Int64N(int64(spec.TimeLimit) + 1))
	s.next++
}

// step causes one event.
func (s *site) step() {
	s.snap.Index++
	switch s.r.IntN(12) {
	case 0, 1, 2, 3:
		s.submit()
	case 4:
		if n := len(s.snap.Pending); n > 0 {
			i := s.r.IntN(n)
			if s.snap.Pending[i].Promise != nil {
				s.lessen(i)
				return
			}
			s.snap.Pending = slices.Delete(slices.Clone(s.snap.Pending), i, i+1)
		}
	case 5:
		if s.r.IntN(4) == 0 {
			i := s.r.IntN(len(s.snap.Nodes))
			node := *s.snap.Nodes[i]
			node.Drain = !node.Drain
			s.snap.Nodes = slices.Clone(s.snap.Nodes)
			s.snap.Nodes[i], s.lost = &node, true
		}
	default:
		next := s.snap.Now.Add(time.Duration(s.r.Int64N(int64(20 * time.Minute))))
		if s.r.IntN(20) == 0 {
			s.lost = s.lost || next.Sub(s.wake) > slack
		} else {
			next = min(next, s.wake)
		}
		if s.slow && next == s.wake {
			next = next.Add(time.Duration(s.other.Int64N(int64(slack))))
		}
		s.snap.Now = next
		s.snap.Active = slices.DeleteFunc(slices.Clone(s.snap.Active), func(j *cluster.Job) bool {
			return j.Started.Add(s.stays(j)) <= s.snap.Now
		})
		s.tidy()
		s.overrule()
	}
}

// lessen gives a promised job a smaller request and another priority: that costs no job anything.
func (s *site) lessen(i int) {
	job := *s.snap.Pending[i]
	spec := *job.Spec
	spec.TimeLimit = max(time.Minute, spec.TimeLimit-time.Duration(s.r.IntN(90))*time.Minute)
	spec.Nice, spec.Request.CPUsPerTask = s.r.Int32N(3), 1+s.r.Int32N(spec.Request.CPUsPerTask)
	if n := spec.Request.GPUsPerNode; n > 1 {
		spec.Request.GPUsPerNode = n - s.r.Int32N(2)
	}
	job.Spec = &spec
	s.runs[job.ID] = min(s.runs[job.ID], spec.TimeLimit)
	s.snap.Pending = slices.Clone(s.snap.Pending)
	s.snap.Pending[i] = &job
}

// agree commits a decision.
func (s *site) agree(d Decision) {
	s.snap.Index++
	s.snap.Pending, s.snap.Active = slices.Clone(s.snap.Pending), slices.Clone(s.snap.Active)
	for _, v := range d.Plan.Verdicts {
		i := slices.IndexFunc(s.snap.Pending, func(j *cluster.Job) bool { return j.ID == v.Job })
		job := *s.snap.Pending[i]
		if old := job.Promise; old != nil && v.Broken == "" && (v.Promise == nil || v.Promise.At > old.At) {
			s.Fatalf("job %d was promised %v and now %+v without a cause", job.ID, old.At.Time(), v.Promise)
		}
		if v.Broken != "" && !s.lost && !s.mayBreak(v.Broken) && v.Reason != cluster.ReasonDependency {
			s.Fatalf("job %d: broken: %s", job.ID, v.Broken)
		}
		job.Reason, job.Detail, job.Planned, job.Promise = v.Reason, v.Detail, v.Planned, v.Promise
		s.snap.Pending[i] = &job
	}
	for _, start := range d.Plan.Starts {
		i := slices.IndexFunc(s.snap.Pending, func(j *cluster.Job) bool { return j.ID == start.Job })
		job := *s.snap.Pending[i]
		s.isAlone(&job)
		if p := job.Promise; p != nil && s.snap.Now > p.At.Add(20*time.Minute) {
			s.Fatalf("job %d was promised %v and starts at %v", job.ID, p.At.Time(), s.snap.Now.Time())
		}
		if s.fails && s.third.IntN(10) == 0 { // no pass sees it run
			job.Attempt, job.Promise, job.Planned, job.Eligible = start.Attempt, nil, 0, s.snap.Now.Add(5*time.Second)
			s.snap.Pending[i] = &job
			continue
		}
		job.State, job.Started, job.Attempt, job.Promise = cluster.Running, s.snap.Now, start.Attempt, nil
		job.Alloc = &cluster.Allocation{Nodes: start.Placement.Nodes}
		s.snap.Pending = slices.Delete(s.snap.Pending, i, i+1)
		s.snap.Active = append(s.snap.Active, &job)
	}
	slices.SortFunc(s.snap.Active, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	s.within()
}

// pass makes passes until there is nothing more to do.
func (s *site) pass() {
	for {
		snap := s.snap
		d := s.p.Pass(&snap)
		s.check(d)
		s.inPartitions(d)
		s.agree(d)
		s.wake = d.Wake
		if !d.More && len(d.Plan.Starts) == 0 && len(d.Plan.Verdicts) == 0 {
			return
		}
	}
}

// check recounts all allocations: nothing is allocated or planned for two jobs.
func (s *site) check(d Decision) {
	var all []held
	for _, j := range s.snap.Active {
		h := holds(&s.snap, j, j.Started, *j.Alloc)
		h.to = s.leavesAt(j)
		all = append(all, h)
	}
	starts := map[cluster.JobID]cluster.Placement{}
	for _, x := range d.Plan.Starts {
		starts[x.Job] = x.Placement
	}
	byID := map[cluster.JobID]*cluster.Job{}
	for _, j := range s.snap.Pending {
		byID[j.ID] = j
		if where, ok := starts[j.ID]; ok {
			h := holds(&s.snap, j, s.snap.Now, where)
			h.to -= cluster.Instant(slack) // it may start that much later than planned
			all = append(all, h)
		}
	}
	for _, e := range s.p.schedule.Bookings().Due() {
		if byID[e.Job.ID] == nil || e.Starting {
			s.Fatalf("job %d is planned and does not wait", e.Job.ID)
		}
		all = append(all, plans(&s.snap, s.p, e))
	}
	for i, h := range all {
		job := byID[h.job]
		if job == nil || h.from < s.snap.Now {
			continue
		}
		others := slices.Concat(all[:i:i], all[i+1:])
		if err := fulfils(&s.snap, job, h.nodes); err != nil {
			s.Fatalf("job %d: %v", h.job, err)
		}
		if !s.licensed(others, job, h.from, h.to) {
			s.Fatalf("job %d: too few licences at %v", h.job, h.from.Time())
		}
		for _, a := range h.nodes {
			if !mine(&s.snap, job, a.node, h.from, h.to) {
				s.Fatalf("job %d: %s is reserved otherwise from %v to %v", h.job, a.node, h.from.Time(), h.to.Time())
			}
			gpus, cpus, memory, _ := leftOn(&s.snap, others, a.node, h.from, h.to)
			for pool, n := range a.gpus {
				if gpus[pool] < n {
					s.Fatalf("job %d: %d GPUs on %s are not free at %v", h.job, n, a.node, h.from.Time())
				}
			}
			if !gresLeft(&s.snap, others, a, h.from, h.to) {
				s.Fatalf("job %d: %v is not free on %s at %v", h.job, a.gres, a.node, h.from.Time())
			}
			if a.cpus > cpus || a.memory > memory {
				s.Fatalf("job %d: %s has %d CPUs and %v at %v", h.job, a.node, cpus, memory, h.from.Time())
			}
		}
	}
}

// idle checks that no pending job fits now without delaying a planned start.
func (s *site) idle() {
	var all []held
	for _, j := range s.snap.Active {
		h := holds(&s.snap, j, j.Started, *j.Alloc)
		h.to = s.leavesAt(j)
		all = append(all, h)
	}
	entries := slices.Clone(s.p.schedule.Bookings().Due())
	for _, e := range entries {
		all = append(all, plans(&s.snap, s.p, e))
	}
	up := s.snap
	up.Nodes = slices.DeleteFunc(slices.Clone(s.snap.Nodes), func(n *cluster.Node) bool { return !n.Usable() })
	for i, e := range entries {
		others := slices.Concat(all[:len(s.snap.Active)+i:len(s.snap.Active)+i], all[len(s.snap.Active)+i+1:])
		if s.couldStartIn(&up, others, e) {
			s.Fatalf("job %d waits until %v and could start now: %+v", e.Job.ID, e.At.Time(), e.Job.Spec.Request)
		}
	}
}

// FuzzPlanner runs through a random history.
func FuzzPlanner(f *testing.F) {
	for seed := range uint64(120) {
		f.Add(seed)
	}
	f.Add(uint64(2203)) // a reservation ends where a start waits behind one that moved
	f.Add(uint64(1544)) // an element is planned after others of its array got another obstacle
	f.Add(uint64(836))  // a job on a drained node frees a licence, and one other node is left
	f.Add(uint64(716))  // a promise seconds after a job leaves, and one behind it
	f.Add(uint64(1318)) // a job requests less while its promised node is cleaned
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := newSite(t, seed)
		for range 10 {
			s.submit()
		}
		for range 60 {
			s.pass()
			s.idle()
			s.stillBlocked()
			s.step()
			if !s.mixed && s.other.IntN(20) == 0 { // a new leader knows what was committed, but not the pools of promises
				s.p = NewPlanner()
			}
		}
		s.pass()
		for range 100 {
			snap := s.snap
			if d := s.p.Pass(&snap); len(d.Plan.Starts)+len(d.Plan.Verdicts) > 0 || d.More {
				t.Fatalf("a pass over what did not change decides %+v", d.Plan)
			}
		}
	})
}
