package schedule

import (
	"slices"
	"time"

	"github.com/greylag/greylag/internal/hostlist"
	backfill "github.com/greylag/greylag/internal/schedule/first"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/pkg/topology"
)

// ground is what a pass places jobs on: the nodes that may be used, and what the
// jobs that run leave of them from now on.
type ground struct {
	nodes   map[string]*cluster.Node
	profile *backfill.Profile
	parts   map[string]*part
	qos     map[string]cluster.QOS
	grace   time.Duration
}

// part is a partition with its nodes.
type part struct {
	cluster.Partition
	usable []int           // places in the profile of its nodes that may be used
	closed []*cluster.Node // its nodes that may not, by name
}

const (
	// forever is how long a job without a limit is expected to run. It is finite so
	// that a job behind it can be planned, and so protected from those behind.
	forever = 365 * 24 * time.Hour
	// cleanup is how long nodes may take to clear up after a job, beyond KillWait.
	cleanup = 10 * time.Second
	// overdue is the grain of the guess for a job that should be over: its end is
	// guessed at the next full one, so that plans do not move in every pass.
	overdue = time.Minute
)

func newGround(snap *cluster.Snapshot) *ground {
	g := &ground{
		nodes: make(map[string]*cluster.Node, len(snap.Nodes)),
		parts: map[string]*part{}, qos: map[string]cluster.QOS{},
		grace: snap.Policy.KillWait + cleanup,
	}
	var hosts []*topology.Host
	for _, n := range snap.Nodes {
		g.nodes[n.Name] = n
		if n.Usable() {
			hosts = append(hosts, topology.NewHost(n))
		}
	}
	g.profile = backfill.New(snap.Now, hosts, maxEffort)
	for _, job := range snap.Active {
		if job.Alloc != nil {
			g.profile.Take(snap.Now, g.end(snap.Now, job), job.Alloc.Nodes)
		}
	}
	for _, p := range snap.Policy.Partitions {
		g.parts[p.Name] = g.partition(p, snap.Nodes)
	}
	for _, q := range snap.Policy.QOS {
		g.qos[q.Name] = q
	}
	return g
}

// end is when a job that holds nodes is expected to have left them.
func (g *ground) end(now cluster.Instant, job *cluster.Job) cluster.Instant {
	end := job.Started.Add(g.lasts(job.Spec))
	if job.State == cluster.Completing {
		end = job.Ended.Add(g.grace)
	}
	if end > now {
		return end
	}
	return (now/cluster.Instant(overdue) + 1) * cluster.Instant(overdue)
}

// lasts is how long a job is planned to hold its nodes.
func (g *ground) lasts(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return forever
	}
	return min(spec.TimeLimit+g.grace, forever)
}

func (g *ground) partition(p cluster.Partition, nodes []*cluster.Node) *part {
	member, all := names(p.Nodes)
	out := &part{Partition: p}
	for _, n := range nodes {
		if !all && !member[n.Name] {
			continue
		}
		if place, ok := g.profile.Place(n.Name); ok {
			out.usable = append(out.usable, place)
		} else {
			out.closed = append(out.closed, n)
		}
	}
	slices.Sort(out.usable)
	return out
}

// names expands hostlist expressions; all reports the word ALL among them. What is
// no hostlist stands for itself: the state has refused what users write wrongly.
func names(expressions []string) (set map[string]bool, all bool) {
	set = map[string]bool{}
	for _, e := range expressions {
		if e == "ALL" {
			return set, true
		}
		list, err := hostlist.Expand(e)
		if err != nil {
			list = []string{e}
		}
		for _, name := range list {
			set[name] = true
		}
	}
	return set, false
}

// want is what a job of the class needs, on which of its partition's nodes.
func (g *ground) want(spec *cluster.JobSpec, p *part) backfill.Want {
	r := &spec.Request
	w := backfill.Want{Need: topology.NeedOf(r), Lasts: g.lasts(spec)}
	w.Need.Most = p.MaxNodes
	if len(r.Features) == 0 && len(r.NodeList) == 0 && len(r.Exclude) == 0 {
		w.Hosts = p.usable
		return w
	}
	allowed := chooser(r)
	for _, place := range p.usable {
		if allowed(g.nodes[g.profile.Host(place).Name]) {
			w.Hosts = append(w.Hosts, place)
		}
	}
	return w
}

// chooser reports which nodes a request allows by name and features.
func chooser(r *cluster.Request) func(*cluster.Node) bool {
	only, all := names(r.NodeList)
	all = all || len(r.NodeList) == 0
	never, none := names(r.Exclude)
	return func(n *cluster.Node) bool {
		if none || never[n.Name] || !all && !only[n.Name] {
			return false
		}
		for _, f := range r.Features {
			if !slices.Contains(n.Features, f) {
				return false
			}
		}
		return true
	}
}
