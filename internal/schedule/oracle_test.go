package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/plan"
	"github.com/greylag/greylag/pkg/cluster"
)

// cleanup and slack are what the oracles assume: how long nodes may take to clean up, and what is
// subtracted from the expected end of a job.
const (
	cleanup = 10 * time.Second
	slack   = 5 * time.Second
)

// FuzzDecide draws a random cluster from a seed, decides, and has an oracle recompute every
// promise. The oracle shares no code with the scheduler.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := randomPicture(r)
		snap := draw(t, text)
		snap.Policy.Scheduling.Weights.Age = 0 // the oracle's order is that of nice and of submission
		reserveSome(r, snap)
		countSome(rand.New(rand.NewPCG(seed, 3)), snap)
		p := NewPlanner()
		d := p.Pass(snap)
		if err := checkPlan(snap, p, d); err != nil {
			t.Fatalf("%v\n%s%+v\n----\n%s", err, text, snap.Policy.Scheduling.Reservations, write(d))
		}
		shuffle := rand.New(rand.NewPCG(seed, 2))
		other := *snap
		other.Nodes, other.Active, other.Pending = shuffled(shuffle, snap.Nodes), shuffled(shuffle, snap.Active), shuffled(shuffle, snap.Pending)
		if again := Decide(&other); !sameDecision(d, again) {
			t.Fatalf("another order of the same input decides\n%s\nnot\n%s\n%s", write(again), write(d), text)
		}
	})
}

// reserveSome adds reservations to a picture, and puts jobs into them.
func reserveSome(r *rand.Rand, snap *cluster.Snapshot) {
	var nodes []string
	for _, n := range snap.Nodes {
		nodes = append(nodes, n.Name)
	}
	list := randomReservations(r, nodes)
	snap.Policy.Scheduling.Reservations = list
	for _, j := range snap.Pending {
		j.Spec.Reservation = someReservation(r, list)
	}
}

// sameDecision compares plans whose verdicts may be in another order.
func sameDecision(a, b Decision) bool {
	for _, d := range []*Decision{&a, &b} {
		d.Plan.Verdicts = slices.Clone(d.Plan.Verdicts)
		sort.Slice(d.Plan.Verdicts, func(i, j int) bool { return d.Plan.Verdicts[i].Job < d.Plan.Verdicts[j].Job })
	}
	return reflect.DeepEqual(a, b)
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func randomPicture(r *rand.Rand) string {
	var b strings.Builder
	nodes := 1 + r.IntN(4)
	free := map[string]int{}
	for i := range nodes {
		gpus := r.IntN(3) * 4
		fmt.Fprintf(&b, "node n%d gpus=%d cpus=%d mem=%dG type=%s links=%d features=%s\n", i, gpus, 4+r.IntN(3)*8, 32+r.IntN(2)*32,
			[]string{"h100", "a100"}[r.IntN(2)], 1+r.IntN(2), []string{"a", "b", "a,b", "c"}[r.IntN(4)])
		free[fmt.Sprintf("n%d", i)] = gpus
	}
	id := 1
	for ; id <= r.IntN(5); id++ {
		node := fmt.Sprintf("n%d", r.IntN(nodes))
		if free[node] < 2 {
			continue
		}
		free[node] -= 2
		fmt.Fprintf(&b, "run %d on=%s:%d-%d gpus=2 cpus=1 mem=1G left=%dm limit=5h\n", id, node, free[node], free[node]+1, r.IntN(200))
	}
	for ; id < 10+r.IntN(30); id++ {
		fmt.Fprintf(&b, "job %d nice=%d limit=%dm after=%dm cpus=%d mem=%dG", id, r.IntN(3), 1+r.IntN(5)*30, r.IntN(5), 1+r.IntN(4), 1+r.IntN(20))
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, " total=%d", 1+r.IntN(12))
		case 1:
			n := 1 + r.IntN(nodes)
			fmt.Fprintf(&b, " nodes=%d gpus=%d", n, 1+r.IntN(8))
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, " most=%d", n+r.IntN(3))
			}
			b.WriteString([]string{"", "", "", " only=n0", " only=n0,n1"}[r.IntN(min(nodes+2, 5))])
		default:
			fmt.Fprintf(&b, " gpus=%d", r.IntN(5))
		}
		fmt.Fprintf(&b, "%s\n", []string{"", "", " type=h100", " type=a100,h100", " alone", " gpumem=4G"}[r.IntN(6)]+randomFeatures(r))
	}
	return b.String()
}

// randomFeatures returns a condition on features for one job of four.
func randomFeatures(r *rand.Rand) string {
	return append([]string{" has=a", " has=a|b", " has=[a|b]", " has=[a|(b&c)|c]"}, make([]string, 12)...)[r.IntN(16)]
}

// sets returns the sets of features that randomFeatures names: each node has one of them, and all nodes the
// same one if same is true.
func sets(q *cluster.Request) (list []string, same bool) {
	if len(q.Features) == 0 {
		return []string{""}, false
	}
	text := strings.NewReplacer("[", "", "]", "", "(", "", ")", "").Replace(q.Features[0])
	return strings.Split(text, "|"), text != q.Features[0]
}

// inSet reports whether a node has all features of a set.
func inSet(n *cluster.Node, set string) bool {
	for _, f := range strings.FieldsFunc(set, func(r rune) bool { return r == '&' }) {
		if !slices.Contains(n.Features, f) {
			return false
		}
	}
	return true
}

// inOneOf reports whether a node has all features of one of some sets.
func inOneOf(n *cluster.Node, list []string) bool {
	return slices.ContainsFunc(list, func(set string) bool { return inSet(n, set) })
}

// held is an allocation for an interval, as the oracle sees it.
type held struct {
	job      cluster.JobID
	from, to cluster.Instant
	nodes    []grant
	licences int32
}

// grant is what a node gives: GPUs counted by type, memory and NVLink domain.
type grant struct {
	node   string
	gpus   map[string]int32
	cpus   int32
	memory cluster.Bytes
	gres   map[string]int64
}

func poolOf(g *cluster.GPU) string { return g.Type + " " + g.Domain }

func nodeNamed(snap *cluster.Snapshot, name string) *cluster.Node {
	return snap.Nodes[slices.IndexFunc(snap.Nodes, func(n *cluster.Node) bool { return n.Name == name })]
}

func holds(snap *cluster.Snapshot, job *cluster.Job, from cluster.Instant, where cluster.Placement) held {
	h := held{job: job.ID, from: from, to: from.Add(job.Spec.TimeLimit + 10*time.Second)}
	for _, l := range job.Spec.Request.Licences {
		h.licences += l.Count
	}
	for _, a := range where.Nodes {
		g := grant{a.Node, map[string]int32{}, a.CPUs, a.Memory, gresOf(job.Spec.Request.Gres)}
		for _, i := range a.GPUs {
			g.gpus[poolOf(&nodeNamed(snap, a.Node).GPUs[i])]++
		}
		h.nodes = append(h.nodes, g)
	}
	return h
}

// plans converts the planned start of a job for the oracle.
func plans(snap *cluster.Snapshot, p *Planner, e *plan.Entry) held {
	h := holds(snap, e.Job, e.At, cluster.Placement{})
	for _, s := range e.Shares {
		host := p.schedule.Resources().Hosts[s.Host]
		g := grant{host.Name, map[string]int32{}, s.Amount.CPUs, s.Amount.Memory, map[string]int64{}}
		for i, n := range s.Amount.Gres {
			if n != 0 {
				g.gres[host.Gres[i].Name] = int64(n)
			}
		}
		for i, pool := range host.Pools {
			if n := s.Amount.GPUs.Of(i); n > 0 {
				g.gpus[pool.Kind+" "+pool.Domain] = n
			}
		}
		h.nodes = append(h.nodes, g)
	}
	return h
}

// checkPlan checks each pending job, in order, against all that is ahead of it.
func checkPlan(snap *cluster.Snapshot, p *Planner, d Decision) error {
	var ahead []held
	for _, j := range snap.Active {
		h := holds(snap, j, j.Started, *j.Alloc)
		h.to -= cluster.Instant(slack)
		if h.to <= snap.Now && h.to.Add(10*time.Second) > snap.Now {
			h.to = h.to.Add(10 * time.Second)
		} else if h.to <= snap.Now {
			h.to = (snap.Now/cluster.Instant(time.Minute) + 1) * cluster.Instant(time.Minute)
		}
		ahead = append(ahead, h)
	}
	starts := map[cluster.JobID]held{}
	byID := map[cluster.JobID]*cluster.Job{}
	for _, j := range snap.Pending {
		byID[j.ID] = j
	}
	for _, s := range d.Plan.Starts {
		if _, duplicate := starts[s.Job]; duplicate {
			return fmt.Errorf("job %d starts twice", s.Job)
		}
		starts[s.Job] = holds(snap, byID[s.Job], snap.Now, s.Placement)
	}
	for _, e := range p.schedule.Bookings().Due() {
		if !e.Starting {
			starts[e.Job.ID] = plans(snap, p, e)
		}
	}
	queue := slices.Clone(snap.Pending)
	sort.SliceStable(queue, func(i, j int) bool {
		a, b := queue[i], queue[j]
		if a.Spec.Nice != b.Spec.Nice {
			return a.Spec.Nice < b.Spec.Nice
		}
		return a.Submitted < b.Submitted || a.Submitted == b.Submitted && a.ID < b.ID
	})
	for _, j := range queue {
		h, placed := starts[j.ID]
		if err := checkPlanned(snap, ahead, j, h, placed); err != nil {
			return err
		}
		if placed {
			ahead = append(ahead, h)
		}
	}
	return checkWidest(snap, ahead, d, byID)
}

// checkWidest checks that a job which takes a range of nodes started on as many as were free, without delaying
// planned starts; of several such jobs it checks none, since the next one may leave nodes to the first.
func checkWidest(snap *cluster.Snapshot, all []held, d Decision, byID map[cluster.JobID]*cluster.Job) error {
	starts := slices.DeleteFunc(slices.Clone(d.Plan.Starts), func(s cluster.PlannedStart) bool { return byID[s.Job].Spec.Request.MaxNodes == 0 })
	if len(starts) != 1 {
		return nil
	}
	j, s := *byID[starts[0].Job], &starts[0]
	if n := int32(len(s.Placement.Nodes)); n < j.Spec.Request.MaxNodes {
		spec := *j.Spec
		spec.Request.Nodes = n + 1
		if a := s.Placement.Nodes[0]; len(a.GPUs) > 0 && len(spec.Request.GPUTypes) > 0 {
			spec.Request.GPUTypes = []string{nodeNamed(snap, a.Node).GPUs[a.GPUs[0]].Type}
		}
		j.Spec = &spec
		others := slices.DeleteFunc(slices.Clone(all), func(h held) bool { return h.job == j.ID })
		if !bracketed(&spec.Request) && couldStart(snap, others, &j, snap.Now) {
			return fmt.Errorf("job %d starts on %d nodes, and could on %d", j.ID, n, n+1)
		}
	}
	return nil
}

func bracketed(q *cluster.Request) bool { _, same := sets(q); return same }

func checkPlanned(snap *cluster.Snapshot, ahead []held, j *cluster.Job, h held, placed bool) error {
	if placed {
		if err := fulfils(snap, j, h.nodes); err != nil {
			return fmt.Errorf("job %d: %w", j.ID, err)
		}
		for _, a := range h.nodes {
			if !mine(snap, j, a.node, h.from, h.to) {
				return fmt.Errorf("job %d: %s is reserved otherwise from %s to %s", j.ID, a.node, h.from.Sub(snap.Now), h.to.Sub(snap.Now))
			}
			gpus, cpus, mem, idle := leftOn(snap, ahead, a.node, h.from, h.to)
			for pool, n := range a.gpus {
				if gpus[pool] < n {
					return fmt.Errorf("job %d: %d GPUs of %s are not free on %s at %s", j.ID, n, pool, a.node, h.from.Sub(snap.Now))
				}
			}
			if !gresLeft(snap, ahead, a, h.from, h.to) {
				return fmt.Errorf("job %d: %v is not free on %s at %s", j.ID, a.gres, a.node, h.from.Sub(snap.Now))
			}
			if a.cpus > cpus || a.memory > mem || j.Spec.Request.Exclusive && !idle {
				return fmt.Errorf("job %d: %s has %d CPUs, %s, idle %v at %s", j.ID, a.node, cpus, mem, idle, h.from.Sub(snap.Now))
			}
		}
	}
	instants := []cluster.Instant{snap.Now}
	for _, a := range ahead {
		instants = append(instants, a.to)
	}
	for _, r := range snap.Policy.Scheduling.Reservations {
		instants = append(instants, max(r.Start, snap.Now), max(r.End, snap.Now))
	}
	for _, at := range instants {
		if (!placed || at < h.from) && couldStart(snap, ahead, j, at) {
			return fmt.Errorf("job %d could start at %s; placed %v at %s", j.ID, at.Sub(snap.Now), placed, h.from.Sub(snap.Now))
		}
	}
	return nil
}

// leftOn returns what no job ahead has of a node at any moment of an interval.
func leftOn(snap *cluster.Snapshot, ahead []held, name string, from, to cluster.Instant) (gpus map[string]int32, cpus int32, mem cluster.Bytes, idle bool) {
	all := map[string]int32{}
	idle = true
	moments := []cluster.Instant{from}
	for _, n := range snap.Nodes {
		if n.Name == name {
			cpus, mem = n.CPUs, n.Memory
			for i := range n.GPUs {
				if n.GPUs[i].Fault == "" {
					all[poolOf(&n.GPUs[i])]++
				}
			}
		}
	}
	for _, h := range ahead {
		if h.from > from && h.from < to {
			moments = append(moments, h.from)
		}
	}
	gpus = maps.Clone(all)
	allCPUs, allMem := cpus, mem
	for _, m := range moments {
		usedCPUs, usedMem, used := int32(0), cluster.Bytes(0), map[string]int32{}
		for _, h := range ahead {
			for _, a := range h.nodes {
				if a.node != name || m < h.from || m >= h.to {
					continue
				}
				idle = false
				usedCPUs, usedMem = usedCPUs+a.cpus, usedMem+a.memory
				for pool, n := range a.gpus {
					used[pool] += n
				}
			}
		}
		cpus, mem = min(cpus, allCPUs-usedCPUs), min(mem, allMem-usedMem)
		for pool, n := range used {
			gpus[pool] = min(gpus[pool], all[pool]-n)
		}
	}
	return gpus, cpus, mem, idle
}

// couldStart reports whether a job has enough nodes of one type, and of one set of features where all need
// the same one, at an instant.
func couldStart(snap *cluster.Snapshot, ahead []held, j *cluster.Job, at cluster.Instant) bool {
	list, same := sets(&j.Spec.Request)
	if !same {
		return couldStartOn(snap, ahead, j, at, list)
	}
	return slices.ContainsFunc(list, func(set string) bool { return couldStartOn(snap, ahead, j, at, []string{set}) })
}

// couldStartOn is couldStart on nodes with one of some sets of features.
func couldStartOn(snap *cluster.Snapshot, ahead []held, j *cluster.Job, at cluster.Instant, features []string) bool {
	q := &j.Spec.Request
	kinds := q.GPUTypes
	if len(kinds) == 0 || q.TotalGPUs() == 0 {
		kinds = []string{""}
	}
	for _, kind := range kinds {
		var gives []int
		listed := 0 // nodes of the list that can serve it
		for _, n := range snap.Nodes {
			end := at.Add(j.Spec.TimeLimit + 10*time.Second)
			if !mine(snap, j, n.Name, at, end) || !inOneOf(n, features) {
				continue
			}
			gpus, cpus, mem, idle := leftOn(snap, ahead, n.Name, at, end)
			count := 0
			for pool, n := range gpus {
				if kind == "" || strings.HasPrefix(pool, kind+" ") {
					count += int(n)
				}
			}
			for count > 0 && q.MemoryOn(int32(count)) > mem {
				count--
			}
			if gresLeft(snap, ahead, grant{node: n.Name, gres: gresOf(q.Gres)}, at, end) && gresType(n, q) && cpus >= q.CPUsPerNode() && mem >= q.MemoryOn(0) && (idle || !q.Exclusive) {
				if slices.Contains(q.NodeList, n.Name) {
					if count >= int(q.GPUsPerNode) {
						listed++
					}
				} else if !mayAdd(q) {
					continue
				}
				gives = append(gives, count)
			}
		}
		if mayAdd(q) && listed < len(q.NodeList) {
			continue
		}
		sort.Sort(sort.Reverse(sort.IntSlice(gives)))
		sum := 0
		for i, n := range gives {
			sum += n
			if q.GPUs > 0 && q.Nodes == 0 && sum >= int(q.GPUs) && n > 0 {
				return true
			}
			if q.GPUs == 0 && n >= int(q.GPUsPerNode) && i+1 >= int(q.Nodes) {
				return true
			}
		}
	}
	return false
}

// mayAdd reports whether a job may run on nodes that it does not name.
func mayAdd(q *cluster.Request) bool {
	return len(q.NodeList) == 0 || max(int(q.Nodes), int(q.MaxNodes)) > len(q.NodeList)
}

// fulfils checks that an allocation is the whole request of a job.
func fulfils(snap *cluster.Snapshot, j *cluster.Job, nodes []grant) error {
	q := &j.Spec.Request
	total, seen := int32(0), map[string]bool{}
	for _, a := range nodes {
		n := int32(0)
		for _, count := range a.gpus {
			n += count
		}
		total += n
		wantCPUs := q.CPUsPerNode()
		if q.Exclusive {
			wantCPUs = nodeNamed(snap, a.node).CPUs
		}
		if !maps.Equal(a.gres, gresOf(q.Gres)) || !gresType(nodeNamed(snap, a.node), q) {
			return fmt.Errorf("allocation %+v does not have %v", a, q.Gres)
		}
		if seen[a.node] || q.GPUs == 0 && n != q.GPUsPerNode || a.cpus != wantCPUs || a.memory != q.MemoryOn(n) {
			return fmt.Errorf("allocation %+v does not fit the request", a)
		}
		seen[a.node] = true
	}
	n := len(nodes)
	if q.MaxNodes > 0 && n > int(q.Nodes) && n <= int(q.MaxNodes) {
		total, n = total-int32(n-int(q.Nodes))*q.GPUsPerNode, int(q.Nodes)
	}
	if total != q.TotalGPUs() || q.Nodes > 0 && n != int(q.Nodes) {
		return fmt.Errorf("%d GPUs on %d nodes", total, len(nodes))
	}
	for _, name := range q.NodeList {
		if mayAdd(q) && !seen[name] {
			return fmt.Errorf("it has no node %s", name)
		}
	}
	for name := range seen {
		if !mayAdd(q) && !slices.Contains(q.NodeList, name) {
			return fmt.Errorf("it has node %s", name)
		}
	}
	return hasFeatures(snap, q, nodes)
}

// hasFeatures checks the features of the nodes of an allocation.
func hasFeatures(snap *cluster.Snapshot, q *cluster.Request, nodes []grant) error {
	list, same := sets(q)
	all := func(list []string) bool {
		return !slices.ContainsFunc(nodes, func(a grant) bool { return !inOneOf(nodeNamed(snap, a.node), list) })
	}
	if !same && all(list) || same && slices.ContainsFunc(list, func(set string) bool { return all([]string{set}) }) {
		return nil
	}
	return fmt.Errorf("its nodes do not have the features %s", q.Features)
}
