package audit

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Cluster is what warnings compare a policy with.
type Cluster interface {
	Now() cluster.Instant
	Policy() *cluster.Policy
	Node(name string) (*cluster.Node, bool)
	Nodes() iter.Seq[*cluster.Node]
	Jobs(after cluster.JobID) iter.Seq[*cluster.Job]
	Accounts() *cluster.AccountView
	Credits() *accounting.Ledger
}

// GPUTypes is the set of GPU types in a cluster.
type GPUTypes struct {
	names  map[string]bool
	priced map[string]bool // the names under which they are charged
	empty  bool            // no nodes: any type may be added later
}

// GPUTypesOf collects the GPU types of all nodes. O(GPUs).
func GPUTypesOf(c Cluster) GPUTypes {
	types := GPUTypes{names: map[string]bool{}, priced: map[string]bool{}, empty: true}
	for n := range c.Nodes() {
		types.empty = false
		for i := range n.GPUs {
			types.names[n.GPUs[i].Type], types.priced[n.GPUs[i].PricedType()] = true, true
		}
	}
	return types
}

// Has reports whether a node has a GPU of the type.
func (t GPUTypes) Has(name string) bool { return t.names[name] }

// Missing says that no node has a GPU of the type, and which types there are. It returns
// "" if a node has one, and in a cluster without nodes.
func (t GPUTypes) Missing(name string) string {
	switch {
	case t.names[name] || t.empty:
		return ""
	case len(t.names) == 0:
		return "no node has a GPU of type " + name + ", nor of any other"
	}
	return "no node has a GPU of type " + name + ": there are " + strings.Join(slices.Sorted(maps.Keys(t.names)), ", ")
}

// MissingIn lists the limits on GPU types that no node has.
func (t GPUTypes) MissingIn(limits []cluster.Limit) (warnings []string) {
	for _, l := range limits {
		if name, typed := cluster.GPUTypeOf(l.Resource); typed {
			if why := t.Missing(name); why != "" {
				warnings = append(warnings, l.String()+": "+why)
			}
		}
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

// PolicyWarnings lists questionable settings of a policy; none blocks it, since nodes and
// accounts may be added later. O(policy + nodes), and O(jobs + accounts) if a partition
// or a QOS is removed.
func PolicyWarnings(c Cluster, next *cluster.Policy) []cluster.PolicyFault {
	p := &policyChecker{Cluster: c, next: next, types: GPUTypesOf(c), tree: c.Accounts().Tree}
	p.checkRemoved()
	if !p.types.empty {
		p.checkNodes()
		p.checkGPUTypes()
	}
	p.checkAccounts()
	p.checkDefaultQOS()
	if w := next.Scheduling.Weights; w.Age|w.FairShare|w.JobSize|w.Partition|w.QOS == 0 {
		p.warn("scheduling.weights", "all are 0: jobs of one tier start in order of submission")
	}
	p.checkPrices()
	return p.found
}

type policyChecker struct {
	Cluster
	next  *cluster.Policy
	types GPUTypes
	tree  *cluster.AccountTree // nil without accounts
	found []cluster.PolicyFault
}

func (p *policyChecker) warn(key, format string, args ...any) {
	p.found = append(p.found, cluster.PolicyFault{Key: key, Problem: fmt.Sprintf(format, args...)})
}

// checkDefaultQOS warns of a default QOS that most users may not use.
func (p *policyChecker) checkDefaultQOS() {
	open := p.next.OpenQOS()
	switch {
	case p.next.DefaultQOS == "" || slices.Contains(open, p.next.DefaultQOS):
	case len(open) == 0:
		p.warn("default_qos", "no qos is open: only users with a granted qos may submit jobs (set open = true for a qos)")
	default:
		p.warn("default_qos", "qos %q is not open: jobs of users without a granted qos get %q", p.next.DefaultQOS, open[0])
	}
}

// checkRemoved looks for jobs, accounts and users of removed partitions and QOS.
func (p *policyChecker) checkRemoved() {
	partitions, qos := map[string]int{}, map[string]int{}
	for _, x := range p.Policy().Partitions {
		if _, kept := p.next.Partition(x.Name); !kept {
			partitions[x.Name] = 0
		}
	}
	for _, x := range p.Policy().QOS {
		if _, kept := p.next.QOSNamed(x.Name); !kept {
			qos[x.Name] = 0
		}
	}
	if len(partitions)+len(qos) == 0 {
		return
	}
	for j := range p.Jobs(0) {
		if n, removed := partitions[j.Spec.Partition]; removed {
			partitions[j.Spec.Partition] = n + 1
		}
		if n, removed := qos[j.Spec.QOS]; removed {
			qos[j.Spec.QOS] = n + 1
		}
	}
	warn := func(what, then string, jobs map[string]int) {
		for _, name := range slices.Sorted(maps.Keys(jobs)) {
			if n := jobs[name]; n > 0 {
				p.warn("", "%s %q is removed and has %s: %s", what, name, count(n, "active job"), then)
			}
		}
	}
	warn("partition", "pending ones wait until a partition of that name exists", partitions)
	warn("qos", "they continue in tier 0, without its limits", qos)
	if p.tree != nil {
		p.checkAssociations(partitions, qos)
	}
}

// checkAssociations looks for accounts and users that name a removed partition or QOS.
func (p *policyChecker) checkAssociations(partitions, qos map[string]int) {
	users, with := map[string]int{}, map[string]int{}
	for i := range p.tree.Nodes {
		list, own := []string(nil), ""
		switch n := &p.tree.Nodes[i]; {
		case n.User != nil:
			users[n.User.Partition]++
			list, own = n.User.QOS, n.User.DefaultQOS
		case n.Account != nil:
			list, own = n.Account.QOS, n.Account.DefaultQOS
		}
		for name := range qos {
			if own == name || slices.Contains(list, name) {
				with[name]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		if n := users[name]; n > 0 {
			p.warn("", "partition %q is removed, and gctl account dump names it for %s", name, count(n, "user"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		p.warn("", "qos %q is removed, and gctl account dump names it for %s", name, count(with[name], "account or user", "accounts and users"))
	}
}

// checkNodes looks for node names that do not exist.
func (p *policyChecker) checkNodes() {
	for i := range p.next.Partitions {
		x, key := &p.next.Partitions[i], fmt.Sprintf("partition[%d].nodes", i)
		if p.checkNodeList(key, x.Nodes) == 0 {
			p.warn(key, "partition %q has no nodes: its jobs wait until it has", x.Name)
		}
	}
	for i := range p.next.Scheduling.Reservations {
		p.checkNodeList(fmt.Sprintf("reservation[%d].nodes", i), p.next.Scheduling.Reservations[i].Nodes)
	}
}

// checkNodeList warns of names that do not exist, and counts those that do.
func (p *policyChecker) checkNodeList(key string, lists []string) (known int) {
	for i, expr := range lists {
		if expr == "ALL" || expr == cluster.LeasedNodes {
			known++
			continue
		}
		names, _ := hostlist.Expand(expr) // the policy is refused for a fault in it
		all := len(names)
		names = slices.DeleteFunc(names, func(name string) bool {
			_, found := p.Node(name)
			return found
		})
		known += all - len(names)
		switch at := fmt.Sprintf("%s[%d]", key, i); {
		case all > 0 && len(names) == all:
			p.warn(at, "%q matches no node", expr)
		case len(names) > 0:
			p.warn(at, "no nodes %s (in %q)", hostlist.Compress(names), expr)
		}
	}
	return known
}

// checkGPUTypes looks for GPU types that no node has.
func (p *policyChecker) checkGPUTypes() {
	for _, w := range p.next.Scheduling.FairShare.Billing {
		name := w.Resource // a type may stand without gpu:
		if _, err := cluster.ParseResource(w.Resource); err == nil {
			name, _ = cluster.GPUTypeOf(w.Resource)
		}
		if name != "" && !p.types.Has(name) {
			p.warn("fair_share.billing."+w.Resource, "%s", p.types.Missing(name))
		}
	}
	for i := range p.next.QOS {
		for _, l := range p.next.QOS[i].Limits {
			for _, why := range p.types.MissingIn([]cluster.Limit{l}) {
				p.warn(fmt.Sprintf("qos[%d].limits", i), "%s", why)
			}
		}
	}
}

// checkAccounts looks for accounts that do not exist. Without any account in the cluster,
// users may name any.
func (p *policyChecker) checkAccounts() {
	if p.tree == nil {
		return
	}
	check := func(key string, names []string) {
		for i, name := range names {
			if p.tree.Account(name) < 0 {
				p.warn(fmt.Sprintf("%s[%d]", key, i), "no account %q", name)
			}
		}
	}
	for i := range p.next.Partitions {
		check(fmt.Sprintf("partition[%d].allow_accounts", i), p.next.Partitions[i].AllowAccounts)
	}
	for i := range p.next.Scheduling.Reservations {
		check(fmt.Sprintf("reservation[%d].accounts", i), p.next.Scheduling.Reservations[i].Accounts)
	}
}

// checkPrices looks for GPU types without a price in a policy with credits.
func (p *policyChecker) checkPrices() {
	if !p.next.Credits.On {
		return
	}
	var without []string
	for _, name := range slices.Sorted(maps.Keys(p.types.priced)) {
		if _, err := p.Credits().Price(name, p.Now()); errors.Is(err, accounting.ErrNoPrice) {
			without = append(without, cluster.TypeOfPriced(name))
		}
	}
	without = slices.Compact(without)
	if len(without) > 0 {
		p.warn("credits.enabled", "no price is set for GPUs of type %s: jobs on them are refused (gctl credit price)", strings.Join(without, ", "))
	}
}

// count writes a number with its noun, and with another plural than -s if one is given.
func count(n int, noun string, plural ...string) string {
	if n != 1 {
		noun = strings.Join(append(plural, noun+"s")[:1], "")
	}
	return fmt.Sprintf("%d %s", n, noun)
}
