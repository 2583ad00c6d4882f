package sim

import (
	"cmp"
	"slices"

	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// Placement measures the locality of the GPUs of jobs.
type Placement struct {
	GPUJobs int `json:"gpu_jobs"` // with two GPUs or more
	// OneDomain is the part of jobs whose GPUs were all in one NVLink domain, among the jobs that
	// fit into one.
	OneDomain float64 `json:"in_one_nvlink_domain"`
	WideJobs  int     `json:"multi_node_jobs"`
	OneLeaf   float64 `json:"in_one_leaf"` // the part of jobs under one leaf switch
	// Stranded is the mean number of free GPUs on partly used nodes while jobs were pending.
	Stranded float64 `json:"stranded_gpus"`
}

// placement measures an outcome. O(jobs × nodes of each + events log events).
func placement(o *Outcome) Placement {
	var p Placement
	fabric, err := o.Machine.fabric()
	if err != nil { // the state would have refused it
		fabric = nil
	}
	domains := map[string][]string{}
	for i := range o.Machine.Nodes {
		for _, g := range o.Machine.Nodes[i].GPUs {
			domains[o.Machine.Nodes[i].Name] = append(domains[o.Machine.Nodes[i].Name], g.Domain)
		}
	}
	gpus, _ := o.Machine.largest()
	near, leaf, small := 0, 0, 0
	for i := range o.Results {
		r := &o.Results[i]
		n := r.Job.Spec.Request.TotalGPUs()
		if r.Start == 0 || n < 2 || r.OnCloud() {
			continue
		}
		p.GPUJobs++
		if n <= gpus {
			small++
			near += count(oneDomain(domains, r.Nodes))
		}
		if len(r.Nodes) > 1 {
			p.WideJobs++
			leaf += count(oneLeaf(fabric, r.Nodes))
		}
	}
	p.OneDomain, p.OneLeaf = part(near, small), part(leaf, p.WideJobs)
	if gpus > 0 {
		p.Stranded = stranded(o, domains)
	}
	return p
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func part(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func oneDomain(domains map[string][]string, nodes []cluster.NodeAllocation) bool {
	first, seen := "", false
	for i := range nodes {
		for _, g := range nodes[i].GPUs {
			d := domains[nodes[i].Node][g]
			if d == "" || seen && d != first {
				return false
			}
			first, seen = d, true
		}
	}
	return seen
}

func oneLeaf(f *topology.Fabric, nodes []cluster.NodeAllocation) bool {
	first, known := f.Domain(0, nodes[0].Node)
	for i := range nodes {
		if d, ok := f.Domain(0, nodes[i].Node); !ok || !known || d != first {
			return false
		}
	}
	return true
}

// usageChange is a change in the use of nodes or in the number of pending jobs.
type usageChange struct {
	at    cluster.Instant
	waits int
	sign  int
	nodes []cluster.NodeAllocation
}

// stranded returns the mean number of free GPUs on partly used nodes, over the time in which jobs
// are pending.
func stranded(o *Outcome, domains map[string][]string) float64 {
	shifts := make([]usageChange, 0, 3*len(o.Results))
	for i := range o.Results {
		r := &o.Results[i]
		if r.Start == 0 || r.End == 0 || r.OnCloud() {
			continue
		}
		shifts = append(shifts, usageChange{r.Job.Submit, 1, 0, nil}, usageChange{r.Start, -1, 1, r.Nodes}, usageChange{r.End, 0, -1, r.Nodes})
	}
	slices.SortStableFunc(shifts, func(a, b usageChange) int { return cmp.Compare(a.at, b.at) })
	taken := map[string]int{}
	free, waiting := 0, 0
	sum, time := 0.0, 0.0
	for i, s := range shifts {
		if i > 0 && waiting > 0 {
			d := s.at.Sub(shifts[i-1].at).Seconds()
			sum, time = sum+float64(free)*d, time+d
		}
		waiting += s.waits
		for k := range s.nodes {
			name := s.nodes[k].Node
			all := len(domains[name])
			free -= freeOn(taken[name], all)
			taken[name] += s.sign * len(s.nodes[k].GPUs)
			free += freeOn(taken[name], all)
		}
	}
	if time == 0 {
		return 0
	}
	return sum / time
}

// freeOn returns what is free on a node that is partly used.
func freeOn(taken, all int) int {
	if taken == 0 {
		return 0
	}
	return all - taken
}
