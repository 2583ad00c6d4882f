package clusterdoc

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// scheduling is the part of the policy that the scheduling pass reads.
type scheduling struct {
	Depth          depth         `toml:"depth"`           // number of planned starts that are kept
	Window         time.Duration `toml:"window"`          // "0s": unlimited
	PromiseHorizon horizon       `toml:"promise_horizon"` // "0s": no promises
	Replan         time.Duration `toml:"replan"`
	MaxSwitchWait  time.Duration `toml:"max_switch_wait"`
	Weights        weights       `toml:"weights"`
}

type weights struct {
	Age       int           `toml:"age"`
	FairShare int           `toml:"fair_share"`
	JobSize   int           `toml:"job_size"`
	Partition int           `toml:"partition"`
	QOS       int           `toml:"qos"`
	MaxAge    time.Duration `toml:"max_age"`
}

// nearness is the placement of a job on several nodes that requests none.
type nearness struct {
	Prefer string `toml:"prefer" one:"narrowest,tightest"`
}

// The words for the first criterion: the narrowest domain that fits, or the fewest GPUs stranded.
const (
	narrowest = "narrowest"
	tightest  = "tightest"
)

type fairShare struct {
	Algorithm string        `toml:"algorithm" one:"fair-tree,classic"`
	HalfLife  time.Duration `toml:"half_life"` // "0s": no decay
	Billing   thousandths   `toml:"billing"`
}

type reservation struct {
	Name     string   `toml:"name"`
	Start    moment   `toml:"start"`
	End      moment   `toml:"end"`
	Nodes    []string `toml:"nodes"` // host lists, or "ALL"
	Users    []string `toml:"users"`
	Accounts []string `toml:"accounts"`
	Reason   string   `toml:"reason" was:"why"`
}

// The words for the fair-share algorithm.
const (
	fairTree = "fair-tree"
	classic  = "classic"
)

// scheduling converts the file's settings to those of the cluster.
func (p *policy) scheduling() cluster.Scheduling {
	s, w, f := &p.Scheduling, &p.Scheduling.Weights, &p.FairShare
	out := cluster.Scheduling{
		Depth: int32(s.Depth), Window: s.Window, PromiseHorizon: time.Duration(s.PromiseHorizon), Replan: s.Replan,
		MaxSwitchWait: s.MaxSwitchWait, Packed: p.Topology.Prefer == tightest,
		Weights: cluster.Weights{
			Age: int64(w.Age), FairShare: int64(w.FairShare), JobSize: int64(w.JobSize),
			Partition: int64(w.Partition), QOS: int64(w.QOS), MaxAge: w.MaxAge,
		},
		FairShare: cluster.FairSharePolicy{Classic: f.Algorithm == classic, HalfLife: f.HalfLife, Billing: f.Billing},
		Licences:  p.Licences,
	}
	for _, r := range p.Reservations {
		out.Reservations = append(out.Reservations, cluster.Reservation{
			Name: r.Name, Start: cluster.Instant(r.Start), End: cluster.Instant(r.End),
			Nodes: r.Nodes, Users: r.Users, Accounts: r.Accounts, Why: r.Reason,
		})
	}
	return out
}

// schedulingOf is the reverse of policy.scheduling.
func (p *policy) schedulingOf(s *cluster.Scheduling) {
	w := s.Weights
	p.Scheduling = scheduling{
		Depth: depth(s.Depth), Window: s.Window, PromiseHorizon: horizon(s.PromiseHorizon), Replan: s.Replan, MaxSwitchWait: s.MaxSwitchWait,
		Weights: weights{int(w.Age), int(w.FairShare), int(w.JobSize), int(w.Partition), int(w.QOS), w.MaxAge},
	}
	p.Topology.Prefer = narrowest
	if s.Packed {
		p.Topology.Prefer = tightest
	}
	p.FairShare = fairShare{Algorithm: fairTree, HalfLife: s.FairShare.HalfLife, Billing: s.FairShare.Billing}
	if s.FairShare.Classic {
		p.FairShare.Algorithm = classic
	}
	p.Licences = s.Licences
	for _, r := range s.Reservations {
		p.Reservations = append(p.Reservations, reservation{
			Name: r.Name, Start: moment(r.Start), End: moment(r.End),
			Nodes: r.Nodes, Users: r.Users, Accounts: r.Accounts, Reason: r.Why,
		})
	}
}
