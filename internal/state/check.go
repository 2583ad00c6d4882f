package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Check recomputes every invariant from scratch and returns all violations. O(state); for tests,
// and for snapshots in production.
func (s *State) Check() error {
	x := &checking{
		State:  s,
		uses:   map[string]*cluster.NodeUse{},
		arrays: map[cluster.JobID]array{},
		blobs:  map[cluster.Digest]int64{},

		dependents: map[cluster.JobID]int{},
	}
	x.faults = slices.Clone(s.faults)
	x.jobs()
	x.checkNodes()
	x.checkFences()
	x.checkFleet(x.fault)
	x.kept()
	x.requests.check(x.fault)
	x.faults = append(x.faults, x.accounts.Check(x.now, x.allActive)...)
	if s.policy.Credits.On {
		s.rebuildPartitionIndex()
	}
	x.faults = append(x.faults, x.credits.Check(x.env(), x.allActive)...)
	x.faults = append(x.faults, x.State.blobs.Check(x.blobs)...)
	x.faults = append(x.faults, x.hosts.Check()...)
	x.faults = append(x.faults, x.crontab.Check()...)
	x.faults = append(x.faults, x.secrets.Check()...)
	x.checkLeases()
	x.faults = append(x.faults, x.State.arrays.Check(), x.signals.Check(), x.nodes.Check(), x.fleet.levels.Check(), x.requests.Check(), x.totals.Check())
	if d := s.jobsDigest(); d != s.jobTables.digest {
		x.fault("the digest of jobs is %016x, recomputed %016x", s.jobTables.digest, d)
	}
	return errors.Join(x.faults...)
}

// checking holds the counts of one check.
type checking struct {
	*State
	faults  []error
	uses    map[string]*cluster.NodeUse
	onNode  int
	due     int
	noticed int // jobs that end for another one
	states  [cluster.OutOfMemory + 1]int
	arrays  map[cluster.JobID]array
	blobs   map[cluster.Digest]int64

	dependents map[cluster.JobID]int
}

func (x *checking) fault(format string, args ...any) {
	if len(x.faults) < 100 {
		x.faults = append(x.faults, fmt.Errorf(format, args...))
	}
}

// jobs checks each job and that the indexes of jobs hold exactly their jobs.
func (x *checking) jobs() {
	for id, j := range x.pending.All() {
		if j.Promise != nil && (j.Planned == 0 || j.Hold != cluster.NotHeld || len(j.Promise.Hosts) == 0) {
			x.fault("job %d has a promise without a planned start", id)
		}
		if j.State != cluster.Pending || j.Alloc != nil || j.Members != nil || j.Tasks != nil || j.Outcome != 0 || j.Returns || j.Canceller != "" {
			x.fault("job %d is among the pending ones: %s, %d tasks", id, j.State, j.Tasks.Len())
		}
		x.job(id, j)
	}
	for id, j := range x.holding.All() {
		if !j.State.HasAllocation() || j.Attempt == 0 || j.Granted == 0 || j.Granted > x.index {
			x.fault("job %d is among those with an allocation: %s, attempt %d", id, j.State, j.Attempt)
		}
		x.job(id, j)
		x.allocation(j)
	}
	if n := x.State.users.Len(); n != x.live() {
		x.fault("%d jobs by user, want %d", n, x.live())
	}
	if n := x.State.due.Len(); n != x.due {
		x.fault("%d jobs are due some time, want %d", n, x.due)
	}
	if n := x.State.onNode.Len(); n != x.onNode {
		x.fault("%d jobs on nodes, want %d", n, x.onNode)
	}
	if n := x.State.victims.Len(); n != x.noticed {
		x.fault("%d jobs end for another one, want %d", n, x.noticed)
	}
	if x.states != x.State.states {
		x.fault("jobs by state %v, want %v", x.State.states, x.states)
	}
}

func (x *checking) job(id cluster.JobID, j *cluster.Job) {
	_, ended := x.ended.Get(id)
	switch {
	case id != j.ID || id == 0 || id >= x.jobTables.next || ended || x.pending.Has(id) && x.holding.Has(id):
		x.fault("job %d has ID %d, next is %d, ended %v", id, j.ID, x.jobTables.next, ended)
	case !x.users.Has(userJob{j.Spec.Owner.User, id}):
		x.fault("job %d is not listed for its user", id)
	case j.Version > x.index || j.Version == 0:
		x.fault("job %d was changed at index %d, now is %d", id, j.Version, x.index)
	}
	if at := dueOf(j); at != cluster.Never {
		x.due++
		if !x.State.due.Has(dueJob{at, id}) {
			x.fault("job %d is not listed as due at %d", id, at)
		}
	}
	x.states[j.State]++
	for _, d := range j.Spec.Depends {
		if d.Kind != cluster.Singleton {
			x.dependents[d.Job.ID]++
		}
	}
	for _, d := range []cluster.Digest{j.Spec.Script, j.Spec.Environment} {
		if !d.IsZero() {
			x.blobs[d]++
		}
	}
	x.element(j)
}

func (x *checking) element(j *cluster.Job) {
	if j.Array == 0 {
		return
	}
	a, known := x.State.arrays.Get(j.Array)
	if n, found := a.element(j.Index); !known || !found || j.ID != j.Array+cluster.JobID(n) {
		x.fault("job %d is not element %d of array %d", j.ID, j.Index, j.Array)
	}
	c := x.arrays[j.Array]
	c.kept++
	if j.State.HasAllocation() {
		c.holding++
	}
	x.arrays[j.Array] = c
}

// steps checks the steps of a job that holds an allocation: on its nodes and GPUs, and with a way to
// reach their program until they have ended. No two steps have a GPU for themselves.
func (x *checking) steps(j *cluster.Job) {
	taken := map[[2]int32]int{}
	for at, s := range j.Steps {
		if cluster.FindStep(j.Steps, s.ID) != at {
			x.fault("step %d.%d is at position %d", j.ID, s.ID, at)
		}
		if s.Active() != (s.Contact != nil) || len(s.Nodes) == 0 && j.Members == nil {
			x.fault("step %d.%d on %d nodes has ended: %v, and still has a contact: %v", j.ID, s.ID, len(s.Nodes), !s.Active(), s.Contact != nil)
		}
		for _, n := range s.Nodes {
			if int(n.Rank) >= len(j.Alloc.Nodes) || n.Tasks < 1 {
				x.fault("step %d.%d has %d tasks on node %d of the job", j.ID, s.ID, n.Tasks, n.Rank)
				return
			}
			for _, g := range n.GPUs {
				other, is := taken[[2]int32{n.Rank, g}]
				if int(g) >= len(j.Alloc.Nodes[n.Rank].GPUs) || is && s.Exclusive {
					x.fault("step %d.%d has GPU %d of node %d of the job, as has step %d", j.ID, s.ID, g, n.Rank, j.Steps[other].ID)
				}
				if s.Exclusive && s.Active() && !n.Ended {
					taken[[2]int32{n.Rank, g}] = at
				}
			}
		}
	}
}

// allocation checks a job's nodes against its tasks, and sums up its use.
func (x *checking) allocation(j *cluster.Job) {
	if j.Alloc == nil || len(j.Alloc.Nodes) == 0 || len(j.Alloc.Nodes) != j.Tasks.Len() {
		x.fault("job %d: %d tasks do not match the allocation", j.ID, j.Tasks.Len())
		return
	}
	x.steps(j)
	x.members(j)
	if p := j.Preempting; p != nil {
		by, waits := x.pending.Get(p.By)
		if waits && by.Hold != cluster.NotHeld || j.State == cluster.Completing || !x.victims.Has(victim{p.By, j.ID}) {
			x.fault("job %d is %s and ends for job %d, which is held or does not have it among its victims", j.ID, j.State, p.By)
		}
		x.noticed++
	}
	x.activity(j)
	for i, a := range j.Alloc.Nodes {
		x.onNode++
		if g := j.Tasks.At(i).GPU; g != g.Within(int64(len(a.GPUs))*int64(max(0, x.State.now.Sub(j.Started))/time.Millisecond), maxNodeMemory) {
			x.fault("job %d on node %q used its GPUs as is not possible: %+v", j.ID, a.Node, g)
		}
		if rank, listed := x.State.onNode.Get(nodeJob{a.Node, j.ID}); !listed || rank != i || j.Tasks.At(i).Node != a.Node {
			x.fault("job %d is not listed on node %q", j.ID, a.Node)
		}
		u := x.uses[a.Node]
		if u == nil {
			u = &cluster.NodeUse{}
			x.uses[a.Node] = u
		}
		for _, g := range a.GPUs {
			if by, shares := j.Spec.Sharers(); int(g) < len(u.GPUs) && u.GPUs[g] && !(shares && u.SharedGPU(g).Admits(by)) {
				x.fault("GPU %d of node %s is given twice, once to job %d", g, a.Node, j.ID)
			}
		}
		addUse(u, j, a, 1)
	}
	_, ends := cluster.Ending(j.Outcome)
	over := false
	for rank := range j.Tasks.Len() {
		_, ends := attemptResult(j, rank)
		over = over || ends && !j.Leaving(rank)
	}
	clean, started := j.Tasks.AllReached(cluster.TaskClean), j.AllNamedReached(cluster.TaskStarted)
	switch {
	case j.State == cluster.Completing && (clean || !ends && !j.Returns || j.Ended == 0):
		x.fault("job %d is COMPLETING with outcome %s, all tasks clean: %v", j.ID, j.Outcome, clean)
	case j.State != cluster.Completing && (over || j.Outcome != 0 || j.Ended != 0 || j.Returns), j.Canceller != "" && !j.Returns:
		x.fault("job %d is %s though it is over", j.ID, j.State)
	case j.State == cluster.Configuring && started, j.State == cluster.Running && !started:
		x.fault("job %d is %s ; all tasks started: %v", j.ID, j.State, started)
	}
}

// members checks the nodes of an elastic job: at least its minimum and at most its maximum stay, in multiples of its
// step, each with a number and a grant of its own, and none is left when it is clean.
func (x *checking) members(j *cluster.Job) {
	m := j.Members
	if j.Spec.Elastic.On() != (m != nil) || m != nil && len(m.List) != j.Tasks.Len() {
		x.fault("job %d: its members do not match its %d tasks", j.ID, j.Tasks.Len())
		return
	}
	if m == nil {
		return
	}
	r := &j.Spec.Request
	if n := int32(m.Staying()); n < r.Nodes || n > r.MaxNodes || (n-r.Nodes)%j.Spec.Elastic.Step != 0 {
		x.fault("job %d keeps %d nodes, want %d to %d in steps of %d", j.ID, n, r.Nodes, r.MaxNodes, j.Spec.Elastic.Step)
	}
	if extra := len(m.List) - int(r.Nodes); int(m.Resizes)+extra > cluster.MaxResizes {
		x.fault("job %d has %d extra nodes after %d changes: not each could leave", j.ID, extra, m.Resizes)
	}
	numbers := map[int32]bool{}
	for rank := range m.List {
		member := &m.List[rank]
		if numbers[member.Number] || member.Number < 0 || member.Granted < j.Granted || member.Granted > x.index || member.Since > m.Version || member.Joined < j.Started {
			x.fault("job %d has a member %+v, version %d", j.ID, *member, m.Version)
		}
		numbers[member.Number] = true
		if j.State != cluster.Completing && !member.Stays() && j.Tasks.At(rank).Phase == cluster.TaskClean {
			x.fault("job %d still has node %s, which has left", j.ID, j.Alloc.Nodes[rank].Node)
		}
	}
}

// checkNodes compares the recorded use of nodes with the jobs.
func (x *checking) checkNodes() {
	for name, n := range x.State.nodes.All() {
		if name != n.Name || n.Epoch == 0 || n.Orphans < 0 {
			x.fault("node %q has the name %q, epoch %d", name, n.Name, n.Epoch)
		}
	}
	if n := x.State.uses.Len(); n != len(x.uses) {
		x.fault("%d nodes are used, want %d", n, len(x.uses))
	}
	for _, name := range slices.Sorted(maps.Keys(x.uses)) {
		want := x.uses[name]
		got, _ := x.State.uses.Get(name)
		if got.Jobs != want.Jobs || got.CPUs != want.CPUs || got.Memory != want.Memory || got.Whole != want.Whole || !slices.Equal(got.Gres, want.Gres) || !slices.Equal(got.Shared, want.Shared) ||
			!slices.Equal(taken(got.GPUs), taken(want.GPUs)) {
			x.fault("node %s: used %+v, want %+v", name, got, *want)
		}
		if want.Whole && want.Jobs > 1 {
			x.fault("node %s: %d jobs on it though one has it as a whole", name, want.Jobs)
		}
	}
}

// taken lists the GPUs in use.
func taken(gpus []bool) []int {
	var list []int
	for g, used := range gpus {
		if used {
			list = append(list, g)
		}
	}
	return list
}

// kept checks the tail, the arrays and the blobs.
func (x *checking) kept() {
	newest := min(x.finished, uint64(x.limits.tail))
	recent := uint64(0)
	for seq, j := range x.tail.All() {
		at, listed := x.ended.Get(j.ID)
		if seq > x.finished || !j.State.Final() || at != seq || !listed || j.Ended == 0 {
			x.fault("finished job %d has number %d of %d, state %s", j.ID, seq, x.finished, j.State)
		}
		if seq > x.finished-newest {
			recent++
		} else if !x.State.pinned(j) {
			x.fault("finished job %d, number %d, is kept although no active job depends on it", j.ID, seq)
		}
		x.element(j)
	}
	if x.ended.Len() != x.tail.Len() || recent != newest {
		x.fault("%d finished jobs by id, %d in the tail, %d of the newest %d", x.ended.Len(), x.tail.Len(), recent, newest)
	}
	if !maps.Equal(x.dependents, x.State.dependents) {
		x.fault("dependents %v, want %v", x.State.dependents, x.dependents)
	}
	for id, a := range x.State.arrays.All() {
		if c := x.arrays[id]; c.kept != a.kept || c.holding != a.holding || a.kept < 1 {
			x.fault("array %d keeps %d elements, %d with an allocation, want %d and %d", id, a.kept, a.holding, c.kept, c.holding)
		}
	}
	for id, list := range x.signals.All() {
		if !x.holding.Has(id) || len(list) == 0 || len(list) > maxSignals {
			x.fault("job %d has %d signals", id, len(list))
		}
	}
}

// activity checks what is known of the activity of a job that has nodes.
func (x *checking) activity(j *cluster.Job) {
	gpus := int64(0)
	for i := range j.Alloc.Nodes {
		gpus += int64(len(j.Alloc.Nodes[i].GPUs))
	}
	since := gpus * max(0, x.State.now.Sub(j.Started)).Milliseconds()
	a := j.Activity.Value()
	if g := &a.Idle; int64(g.GPUs) > gpus || g.GPUs < 0 || g.Ms < 0 || g.Until(x.State.now) > since || j.State == cluster.Completing && g.GPUs > 0 {
		x.fault("job %d has idle GPUs as is not possible: %+v", j.ID, *g)
	}
	if a.Warns&^a.Noticed != 0 || a.Warns != 0 && j.State != cluster.Running {
		x.fault("job %d is %s with warnings %b, and got %b", j.ID, j.State, a.Warns, a.Noticed)
	}
}
