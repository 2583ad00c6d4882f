package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/eligible"
	"github.com/greylag/greylag/pkg/cluster"
)

// leasedHistory is a random history of a site with leased nodes that join and leave.
type leasedHistory struct {
	*rand.Rand
	*testing.T
	snap     *cluster.Snapshot
	promises map[cluster.JobID]cluster.Instant
	next     cluster.JobID
}

// FuzzLeased makes passes through random histories. Each start on a leased node is of a job that the node admits, and ends
// before the lease; what happens to leased nodes breaks no promise, and each start is as promised or earlier.
func FuzzLeased(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		h := &leasedHistory{Rand: rand.New(rand.NewPCG(seed, 11)), T: t, promises: map[cluster.JobID]cluster.Instant{}, next: 100}
		text := "rules . horizon=-1ns\nburst .\n"
		for n := range 3 {
			text += fmt.Sprintf("node n%d gpus=8\nrun %d on=n%d:0-7 gpus=8 left=%dm limit=9h\n", n, n+1, n, 5+h.IntN(300))
		}
		h.snap = draw(t, text)
		p := NewPlanner()
		for range 80 {
			h.change()
			for more := true; more; {
				d := p.Pass(h.snap)
				h.check(d)
				h.snap = started(promised(h.snap, d), d)
				h.snap.Index++
				more = d.More
			}
		}
	})
}

// change submits jobs, ends some, lets leased nodes join and leave, and lets time pass until the next planned start at most.
func (h *leasedHistory) change() {
	shot := *h.snap
	shot.Index++
	shot.Pending, shot.Active = slices.Clone(shot.Pending), slices.Clone(shot.Active)
	h.snap = &shot
	for range h.IntN(3) {
		h.submit()
	}
	gone := map[string]bool{}
	h.snap.Nodes = slices.DeleteFunc(slices.Clone(h.snap.Nodes), func(n *cluster.Node) bool {
		gone[n.Name] = n.Rental.Lease != 0 && (h.IntN(8) == 0 || n.Rental.Until <= h.snap.Now)
		return gone[n.Name]
	})
	if h.IntN(3) == 0 {
		h.join()
	}
	next := h.snap.Now.Add(time.Duration(1+h.IntN(15)) * time.Minute)
	for _, j := range h.snap.Pending {
		if j.Planned > h.snap.Now {
			next = min(next, j.Planned)
		}
	}
	h.snap.Now = next
	h.snap.Active = slices.DeleteFunc(h.snap.Active, func(j *cluster.Job) bool {
		on := j.Alloc.Nodes
		return j.Started.Add(j.Spec.TimeLimit) <= next || h.IntN(20) == 0 || slices.ContainsFunc(on, func(a cluster.NodeAllocation) bool { return gone[a.Node] })
	})
}

func (h *leasedHistory) submit() {
	mode := []cluster.BurstMode{cluster.BurstNever, cluster.BurstAllow, cluster.BurstAllow, cluster.BurstOnly}[h.IntN(4)]
	text := fmt.Sprintf("job %d nodes=%d gpus=%d limit=%dm account=%s burst=%s", h.next, 1+h.IntN(2), 1+h.IntN(8), 10+h.IntN(200), []string{"a", "b"}[h.IntN(2)], mode)
	h.next++
	job := draw(h.T, "burst .\n"+text).Pending[0]
	job.Submitted = h.snap.Now
	h.snap.Pending = append(h.snap.Pending, job)
}

// join adds a leased node: for an account, or for one of its pending jobs.
func (h *leasedHistory) join() {
	account := []string{"a", "b"}[h.IntN(2)]
	n := draw(h.T, fmt.Sprintf("burst .\nnode cloud-%d gpus=8 lease=%s", h.next, account)).Nodes[0]
	h.next++
	n.Rental.Until = h.snap.Now.Add(time.Duration(20+h.IntN(300)) * time.Minute)
	if len(h.snap.Pending) > 0 && h.IntN(2) == 0 {
		if j := h.snap.Pending[h.IntN(len(h.snap.Pending))]; j.Spec.Account == account {
			n.Rental.For = j.ID
		}
	}
	h.snap.Nodes = append(h.snap.Nodes, n)
	slices.SortFunc(h.snap.Nodes, func(a, b *cluster.Node) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// check checks a decision.
func (h *leasedHistory) check(d Decision) {
	h.Helper()
	node := map[string]*cluster.Node{}
	for _, n := range h.snap.Nodes {
		node[n.Name] = n
	}
	for _, s := range d.Plan.Starts {
		i := slices.IndexFunc(h.snap.Pending, func(j *cluster.Job) bool { return j.ID == s.Job })
		job := h.snap.Pending[i]
		for _, a := range s.Placement.Nodes {
			n := node[a.Node]
			ends := h.snap.Now.Add(job.Spec.TimeLimit + eligible.Grace(h.snap.Policy))
			if why := n.LeaseRefusal(job.ID, job.Spec, true, nil); why != "" || n.Rental.Lease != 0 && (s.Partition != "cloud" || ends > n.Rental.Until) {
				h.Fatalf("job %d starts in %s on %s, %+v, until %d: %s", job.ID, s.Partition, n.Name, n.Rental, ends, why)
			}
		}
		if at := h.promises[job.ID]; at > 0 && h.snap.Now > at {
			h.Fatalf("job %d starts %s later than promised", job.ID, h.snap.Now.Sub(at))
		}
	}
	for _, v := range d.Plan.Verdicts {
		if v.Broken != "" {
			h.Fatalf("the promise of job %d is broken: %s", v.Job, v.Broken)
		}
		if v.Promise == nil {
			continue
		}
		for _, share := range v.Promise.Hosts {
			if cluster.IsLeased(share.Node) {
				h.Fatalf("job %d is promised a start on %s", v.Job, share.Node)
			}
		}
		h.promises[v.Job] = v.Promise.At
	}
}
