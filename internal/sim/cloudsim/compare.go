package cloudsim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrRule is wrapped by the error of a rule that is not known.
var ErrRule = errors.New("unknown rule")

// Family is rules that differ in a number.
type Family string

// The families.
const (
	None        Family = "none"
	AtOnce      Family = "immediate"
	QueueLength Family = "queue length"
	PlannedWait Family = "planned wait"
	CostBenefit Family = "cost/benefit"
)

// Named is a rule and its name.
type Named struct {
	Name   string
	Family Family
	Rule   Rule  // nil: production's
	Value  int64 // for production's: what an hour less of waiting is worth, see [cluster.QOS]
}

// ParseRule reads a rule: none, immediate, queue>N, wait>TIME, or value=AMOUNT for production's.
func ParseRule(word string) (Named, error) {
	r := Named{Name: word, Rule: Never}
	name, number := word, ""
	if at := strings.IndexAny(word, ">="); at >= 0 {
		name, number = word[:at+1], word[at+1:]
	}
	switch name {
	case "none":
		r.Family = None
	case "immediate":
		r.Family, r.Rule = AtOnce, Immediate
	case "queue>":
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return r, fmt.Errorf("%w: %q is not a number of jobs", ErrRule, number)
		}
		r.Family, r.Rule = QueueLength, QueueAbove(n)
	case "wait>":
		d, err := time.ParseDuration(number)
		if err != nil || d < 0 {
			return r, fmt.Errorf("%w: %q is not a time such as 4h", ErrRule, number)
		}
		r.Family, r.Rule = PlannedWait, WaitAbove(d)
	case "value=":
		v, err := cluster.ParseMoney(number)
		if err != nil {
			return r, fmt.Errorf("%w: %w", ErrRule, err)
		}
		r.Family, r.Rule, r.Value = CostBenefit, nil, v
	default:
		return r, fmt.Errorf("%w: %q is not none, immediate, queue>N, wait>TIME or value=AMOUNT", ErrRule, word)
	}
	return r, nil
}

// Row is a rule and the figures of its replay.
type Row struct {
	Named
	Summary sim.Summary
}

// Compare replays a workload once with each rule. It calls progress with the number of replays that ended.
func Compare(f *sim.Machine, policy *cluster.Policy, jobs []sim.Job, kinds []cloud.Kind, seed uint64, rules []Named, progress func(done int)) ([]Row, error) {
	var rows []Row
	for i := range rules {
		r := &rules[i]
		out, err := Replay(f, r.applyTo(policy), jobs, &Options{Kinds: kinds, Seed: seed, Rule: r.Rule}, sim.Options{})
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		rows = append(rows, Row{*r, sim.Summarise(out)})
		progress(len(rows))
	}
	return rows, nil
}

// applyTo returns a policy with the rule's value: in it no QOS has a longest wait, and no time is worth anything under the other rules.
func (r *Named) applyTo(policy *cluster.Policy) *cluster.Policy {
	p := *policy
	p.QOS = append([]cluster.QOS(nil), p.QOS...)
	for i := range p.QOS {
		q := &p.QOS[i]
		q.BurstValue, q.BurstMaxWait = r.Value, 0
		if n, is := sizeOf(q.Name); is {
			q.BurstValue = r.Value / n
		}
	}
	return &p
}

// Saving compares a row of the decision with the row of another family that has the nearest mean wait.
type Saving struct {
	Row, Other int     // indices
	Part       float64 // node-hours of Row for each of Other
}

// Savings returns, for each row of a family, the row of the decision with the nearest mean wait.
func Savings(rows []Row, of Family) (list []Saving) {
	for i := range rows {
		if rows[i].Family != of {
			continue
		}
		best := -1
		for k := range rows {
			if rows[k].Family == CostBenefit && (best < 0 || apart(&rows[i], &rows[k]) < apart(&rows[i], &rows[best])) {
				best = k
			}
		}
		if hours := rows[i].Summary.Cloud.Hours; best >= 0 && hours > 0 {
			list = append(list, Saving{best, i, rows[best].Summary.Cloud.Hours / hours})
		}
	}
	return list
}

func apart(a, b *Row) float64 { return math.Abs(a.Summary.Wait.Mean - b.Summary.Wait.Mean) }

// sizePrefix begins the names of QOS that [EqualJobs] makes.
const sizePrefix = "size-"

// sizeOf returns the processors of the jobs of a QOS that [EqualJobs] makes.
func sizeOf(qos string) (int64, bool) {
	digits, is := strings.CutPrefix(qos, sizePrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, is && err == nil && n > 0
}

// EqualJobs lets an hour of waiting be worth the same for each job, whatever its size: jobs of each size have a QOS of their own.
// The QOS do not differ in anything else.
func EqualJobs(policy *cluster.Policy, jobs []sim.Job) (*cluster.Policy, []sim.Job) {
	p := *policy
	p.QOS = append([]cluster.QOS(nil), p.QOS...)
	like, _ := p.QOSNamed(p.DefaultQOS)
	specs := map[*cluster.JobSpec]*cluster.JobSpec{}
	known := map[string]bool{}
	all := make([]sim.Job, len(jobs))
	for i := range jobs {
		all[i] = jobs[i]
		spec := specs[jobs[i].Spec]
		if spec == nil {
			s := *jobs[i].Spec
			s.QOS = sizePrefix + strconv.Itoa(int(max(1, s.Request.TotalGPUs())))
			if spec = &s; !known[s.QOS] {
				known[s.QOS] = true
				q := like
				q.Name, q.Open = s.QOS, true
				p.QOS = append(p.QOS, q)
			}
			specs[jobs[i].Spec] = spec
		}
		all[i].Spec = spec
	}
	return &p, all
}

// EightProcessors is a cloud of spot nodes with eight processors each, at a price of 1: they join in five minutes, and the cloud takes
// one back within an hour with a probability of 5 %.
func EightProcessors() []cloud.Kind {
	const processors, boot = 8, 5 * time.Minute
	o := cluster.Offer{
		Name: "node8", Market: cluster.Spot, Price: cluster.OneUnit, CPUs: 8 * processors, Memory: processors * 64 * cluster.GiB, GPUs: processors,
		GPUType: "h100", GPUMemory: 80 * cluster.GiB, Boot: boot, Risk: cluster.OneUnit / 20,
	}
	return []cloud.Kind{{Offer: o, BootMin: boot}}
}
