package victims_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/schedule/victims"
	"github.com/greylag/greylag/pkg/backfill"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// gang is a job of a case: it has GPUs and CPUs on each of its hosts.
type gang struct {
	hosts      []int
	gpus, cpus int32
	loss       int64
}

// sample is a random case: what is free and what may end, and a job that needs nodes with equal amounts.
type sample struct {
	gpus, cpus  []int32 // free of each host
	gangs       []gang
	nodes       int32
	need, cores int32 // of each node
}

const hostGPUs, hostCPUs = 8, 16

// newSample fills hosts with gangs, at most 14 of them.
func newSample(r *rand.Rand, hosts int) *sample {
	x := &sample{nodes: 1 + r.Int32N(int32(hosts)), need: 1 + r.Int32N(hostGPUs), cores: r.Int32N(hostCPUs + 1)}
	for range hosts {
		x.gpus, x.cpus = append(x.gpus, hostGPUs), append(x.cpus, hostCPUs)
	}
	for range 40 {
		g := gang{gpus: r.Int32N(hostGPUs + 1), cpus: r.Int32N(7), loss: int64(1 + r.IntN(1+r.IntN(100)*r.IntN(100)))}
		for _, h := range r.Perm(hosts)[:1+r.IntN(hosts)*r.IntN(2)] {
			if x.gpus[h] >= g.gpus && x.cpus[h] >= g.cpus {
				g.hosts = append(g.hosts, h)
			}
		}
		if len(g.hosts) == 0 || len(x.gangs) == 14 {
			continue
		}
		for _, h := range g.hosts {
			x.gpus[h] -= g.gpus
			x.cpus[h] -= g.cpus
		}
		x.gangs = append(x.gangs, g)
	}
	return x
}

// best returns the least loss of all sets after whose end the job fits; false if there is no such set.
func (x *sample) best() (int64, bool) {
	best, found := int64(0), false
	for set := range 1 << len(x.gangs) {
		if loss := x.loss(func(i int) bool { return set>>i&1 > 0 }); (!found || loss < best) && x.fits(set) {
			best, found = loss, true
		}
	}
	return best, found
}

func (x *sample) loss(in func(i int) bool) (sum int64) {
	for i := range x.gangs {
		if in(i) {
			sum += x.gangs[i].loss
		}
	}
	return sum
}

// fits counts the hosts that can serve a node once a set of gangs has ended.
func (x *sample) fits(set int) bool {
	var gpus, cpus [8]int32
	copy(gpus[:], x.gpus)
	copy(cpus[:], x.cpus)
	for i := range x.gangs {
		if g := &x.gangs[i]; set>>i&1 > 0 {
			for _, h := range g.hosts {
				gpus[h] += g.gpus
				cpus[h] += g.cpus
			}
		}
	}
	n := int32(0)
	for h := range x.gpus {
		if gpus[h] >= x.need && cpus[h] >= x.cores {
			n++
		}
	}
	return n >= x.nodes
}

// profile returns an empty profile of hosts.
func profile(hosts int, levels [][]int32) *backfill.Profile {
	var list []*topology.Host
	for h := range hosts {
		n := &cluster.Node{Name: fmt.Sprint("n", h), CPUs: hostCPUs, Memory: cluster.GiB}
		for g := range int32(hostGPUs) {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: g, Type: "h100", Domain: n.Name})
		}
		list = append(list, topology.NewHost(n))
	}
	return backfill.New(1, list, levels, nil)
}

// problem returns the case as a problem.
func (x *sample) problem(p *backfill.Profile) *victims.Problem {
	need := topology.NodeRequest{Nodes: x.nodes, PerNode: x.need, Total: x.nodes * x.need, CPUs: x.cores, Types: []string{""}}
	want := p.Want(need, time.Hour, backfill.HostConstraint{})
	q := &victims.Problem{Need: p.Fittings(want)[0]}
	for h := range x.gpus {
		free := p.All(h)
		free.GPUs, free.CPUs = backfill.Lane(0, x.gpus[h]), x.cpus[h]
		q.Free, q.Limit = append(q.Free, free), append(q.Limit, p.All(h))
	}
	for i := range x.gangs {
		g := &x.gangs[i]
		v := victims.Victim{Cost: victims.Cost{Loss: g.loss, Jobs: 1, IDs: int64(i)}, Hosts: g.hosts}
		for range g.hosts {
			v.Amounts = append(v.Amounts, backfill.Amount{GPUs: backfill.Lane(0, g.gpus), CPUs: g.cpus})
		}
		q.Victims = append(q.Victims, v)
	}
	return q
}

// TestAgainstAllSets compares 10,000 random cases with the best of all sets: jobs on one host exactly, others
// within a factor of two.
func TestAgainstAllSets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	single, several, equal := 0, 0, 0
	for n := range 10_000 {
		x := newSample(r, 1+n%6)
		best, possible := x.best()
		got := victims.Propose(x.problem(profile(len(x.gpus), nil)))
		if len(got) > 0 != possible {
			t.Fatalf("case %d: %d proposals, possible %v: %+v", n, len(got), possible, x)
		}
		if !possible {
			continue
		}
		for _, p := range got {
			set := 0
			for _, v := range p.Victims {
				set |= 1 << v
			}
			if loss := x.loss(func(i int) bool { return set>>i&1 > 0 }); loss != p.Cost.Loss || !x.fits(set) {
				t.Fatalf("case %d: %+v does not fit or costs %d: %+v", n, p, loss, x)
			}
		}
		switch loss := got[0].Cost.Loss; {
		case x.nodes == 1 && loss != best, loss > 2*best:
			t.Errorf("case %d: loss %d, at best %d: %+v", n, loss, best, x)
		case x.nodes == 1:
			single++
		case loss == best:
			equal++
			fallthrough
		default:
			several++
		}
	}
	t.Logf("%d on one host; %d on several, %d of them at the least loss", single, several, equal)
}
