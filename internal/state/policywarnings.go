package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// PolicyWarnings is what is odd about a policy on the cluster as it is. None of it keeps the
// policy from being put in force: nodes and accounts may come later. O(policy + nodes),
// and O(jobs + accounts) where a partition or a QOS goes.
func (v *View) PolicyWarnings(p *cluster.Policy) []cluster.PolicyFault {
	d := &policyChecker{View: v, next: p, types: v.TypesOfGPU()}
	d.gone()
	if v.nodes.Len() > 0 { // else every name is one of a node that is still to come
		d.nodes()
		d.gpuTypes()
	}
	d.accounts()
	d.defaultQOS()
	if w := p.Scheduling.Weights; w.Age|w.FairShare|w.JobSize|w.Partition|w.QOS == 0 {
		d.doubt("scheduling.weights", "all are 0: jobs of one tier go in the order in which they came")
	}
	d.prices()
	return d.found
}

// defaultQOS warns about a default QOS that most users may not use.
func (d *policyChecker) defaultQOS() {
	open := d.next.OpenQOS()
	switch {
	case d.next.DefaultQOS == "" || slices.Contains(open, d.next.DefaultQOS):
	case len(open) == 0:
		d.doubt("default_qos", "no qos is open: only users with a granted qos may submit jobs (set open = true for a qos)")
	default:
		d.doubt("default_qos", "qos %q is not open: jobs of users without a granted qos get %q", d.next.DefaultQOS, open[0])
	}
}

// TypesOfGPU is what types nodes have. O(GPUs).
func (v *View) TypesOfGPU() map[string]bool {
	types := map[string]bool{}
	for n := range v.Nodes() {
		for i := range n.GPUs {
			types[n.GPUs[i].Type] = true
		}
	}
	return types
}

// NoSuchGPU says that no node has a GPU of a type, and which types there are; "" when one has.
// As long as there are no nodes, every type is one to come. O(GPUs).
func (v *View) NoSuchGPU(kind string) string { return v.noSuchGPU(v.TypesOfGPU(), kind) }

// noSuchGPU is NoSuchGPU of who knows the types that are there.
func (v *View) noSuchGPU(there map[string]bool, kind string) string {
	switch {
	case there[kind] || v.nodes.Len() == 0:
		return ""
	case len(there) == 0:
		return "no node has a GPU of type " + kind + ", nor of any other"
	}
	return "no node has a GPU of type " + kind + ": there are " + strings.Join(slices.Sorted(maps.Keys(there)), ", ")
}

// NoSuchLimits says which limits are on types of GPU that no node has. O(limits + GPUs).
func (v *View) NoSuchLimits(limits []cluster.Limit) (warnings []string) {
	there := v.TypesOfGPU()
	for _, l := range limits {
		kind := typeOf(l.Resource)
		if kind == "" {
			continue
		}
		if why := v.noSuchGPU(there, kind); why != "" {
			warnings = append(warnings, l.String()+": "+why)
		}
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

// CheckSupported refuses limits of kinds that only members of a newer form of the journal of credits
// know, until every member writes that form: an older member would make another state of them.
func (v *View) CheckSupported(limits []cluster.Limit) *command.Refusal {
	return v.checkSupported(limits, cluster.LimitKind.Form)
}

// checkSupported is CheckSupported, where formOf returns the form from which on a kind of limit is known.
func (v *View) checkSupported(limits []cluster.Limit, formOf func(cluster.LimitKind) uint8) *command.Refusal {
	for _, l := range limits {
		if formOf(l.Kind) > v.credits.Writes() {
			return hinting(refusef(command.Conflict, "%s: not every controller knows this limit yet", l.Kind), "gctl cluster status says which are to be updated")
		}
	}
	return nil
}

// policyChecker is a policy that is looked at, and what was found.
type policyChecker struct {
	*View
	next  *cluster.Policy
	types map[string]bool // of GPUs that nodes have
	found []cluster.PolicyFault
}

func (d *policyChecker) doubt(key, format string, args ...any) {
	d.found = append(d.found, cluster.PolicyFault{Key: key, Problem: fmt.Sprintf(format, args...)})
}

// gone looks for jobs and users of the partitions and QOS that the policy takes away.
func (d *policyChecker) gone() {
	partitions, qos := map[string]int{}, map[string]int{}
	for _, x := range d.policy.Partitions {
		if _, kept := d.next.Partition(x.Name); !kept {
			partitions[x.Name] = 0
		}
	}
	for _, x := range d.policy.QOS {
		if _, kept := d.next.QOSNamed(x.Name); !kept {
			qos[x.Name] = 0
		}
	}
	if len(partitions)+len(qos) == 0 {
		return
	}
	for j := range d.Jobs(0) {
		if n, gone := partitions[j.Spec.Partition]; gone {
			partitions[j.Spec.Partition] = n + 1
		}
		if n, gone := qos[j.Spec.QOS]; gone {
			qos[j.Spec.QOS] = n + 1
		}
	}
	d.say("partition", "those that wait go on waiting until there is one of that name again", partitions)
	d.say("qos", "they go on in tier 0, without its limits", qos)
	d.named(partitions, qos)
}

// say tells how many jobs each of what is gone has.
func (d *policyChecker) say(what, then string, jobs map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		switch n := jobs[name]; n {
		case 0:
		case 1:
			d.doubt("", "%s %q is gone, and 1 of its jobs has not ended: %s", what, name, then)
		default:
			d.doubt("", "%s %q is gone, and %d of its jobs have not ended: %s", what, name, n, then)
		}
	}
}

// named looks for accounts and users who name what is gone.
func (d *policyChecker) named(partitions, qos map[string]int) {
	if d.tree == nil {
		return
	}
	users, with := map[string]int{}, map[string]int{}
	for i := range d.tree.Nodes {
		list, own := []string(nil), ""
		switch n := &d.tree.Nodes[i]; {
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
			d.doubt("", "partition %q is gone, and gctl account dump has %s of accounts for it", name, plural(int64(n), "user"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		who := fmt.Sprintf("%d accounts and users", with[name])
		if with[name] == 1 {
			who = "1 account or user"
		}
		d.doubt("", "qos %q is gone, and gctl account dump has %s with it", name, who)
	}
}

// nodes looks for names that no node has.
func (d *policyChecker) nodes() {
	for i := range d.next.Partitions {
		x, at := &d.next.Partitions[i], fmt.Sprintf("partition[%d].nodes", i)
		if d.unknown(at, x.Nodes) == 0 {
			d.doubt(at, "partition %q has no nodes: its jobs will wait until it has", x.Name)
		}
	}
	for i := range d.next.Scheduling.Reservations {
		d.unknown(fmt.Sprintf("reservation[%d].nodes", i), d.next.Scheduling.Reservations[i].Nodes)
	}
}

// unknown looks for names that no node has, and counts those that one has.
func (d *policyChecker) unknown(key string, lists []string) (known int) {
	for i, expr := range lists {
		if expr == "ALL" {
			known += d.View.nodes.Len()
			continue
		}
		names, _ := hostlist.Expand(expr) // a faulty one is no doubt, but a fault
		all := len(names)
		names = slices.DeleteFunc(names, d.View.nodes.Has)
		known += all - len(names)
		switch at := fmt.Sprintf("%s[%d]", key, i); {
		case all > 0 && len(names) == all:
			d.doubt(at, "%q matches no node", expr)
		case len(names) > 0:
			d.doubt(at, "nobody knows %s of %q", hostlist.Compress(names), expr)
		}
	}
	return known
}

// gpuTypes looks for types of GPU that no node has.
func (d *policyChecker) gpuTypes() {
	for _, w := range d.next.Scheduling.FairShare.Billing {
		kind := w.Resource
		if _, err := cluster.ParseResource(kind); err == nil {
			kind = typeOf(kind)
		}
		if kind != "" && !d.types[kind] {
			d.doubt("fair_share.billing."+w.Resource, "%s", d.NoSuchGPU(kind))
		}
	}
	for i := range d.next.QOS {
		for _, l := range d.next.QOS[i].Limits {
			if kind := typeOf(l.Resource); kind != "" && !d.types[kind] {
				d.doubt(fmt.Sprintf("qos[%d].limits", i), "%s: %s", l, d.NoSuchGPU(kind))
			}
		}
	}
}

// typeOf is the type of GPU that a resource counts; "" when it is another resource.
func typeOf(resource string) string {
	kind, _ := strings.CutPrefix(resource, cluster.ResourceGPU+":")
	if kind == resource {
		return ""
	}
	return kind
}

// accounts looks for accounts that do not exist. While there are none at all, users
// name their own.
func (d *policyChecker) accounts() {
	if d.tree == nil {
		return
	}
	look := func(key string, names []string) {
		for i, name := range names {
			if d.tree.Account(name) < 0 {
				d.doubt(fmt.Sprintf("%s[%d]", key, i), "there is no account %q", name)
			}
		}
	}
	for i := range d.next.Partitions {
		look(fmt.Sprintf("partition[%d].allow_accounts", i), d.next.Partitions[i].AllowAccounts)
	}
	for i := range d.next.Scheduling.Reservations {
		look(fmt.Sprintf("reservation[%d].accounts", i), d.next.Scheduling.Reservations[i].Accounts)
	}
}

// prices looks for GPUs that jobs would have to pay for and that have no price.
func (d *policyChecker) prices() {
	if !d.next.Credits.On {
		return
	}
	var without []string
	for _, kind := range slices.Sorted(maps.Keys(d.types)) {
		if _, err := d.credits.Price(kind, d.now); errors.Is(err, accounting.ErrNoPrice) {
			without = append(without, kind)
		}
	}
	if len(without) > 0 {
		d.doubt("credits.enabled", "no price is set for GPUs of type %s: jobs on them are refused (gctl credit price)", strings.Join(without, ", "))
	}
}
