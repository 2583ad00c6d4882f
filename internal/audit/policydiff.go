package audit

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// policyPart is a part of the policy by its name in the policy file. of leaves out all
// other parts, so that the encodings of two policies can be compared.
type policyPart struct {
	name string
	of   func(*cluster.Policy) cluster.Policy
}

var policyParts = []policyPart{
	{"cluster", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Cluster: p.Cluster} }},
	{"admins", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Admins: p.Admins} }},
	{"operators", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Operators: p.Operators} }},
	{"default_qos", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{DefaultQOS: p.DefaultQOS} }},
	{"timeouts and limits", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{NodeTimeout: p.NodeTimeout, RebootTimeout: p.RebootTimeout, Fencing: p.Fencing, KillWait: p.KillWait, MaxArray: p.MaxArray, MaxJobs: p.MaxJobs, MaxRestarts: p.MaxRestarts, Retry: p.Retry, InactiveWarning: p.InactiveWarning, InactiveLimit: p.InactiveLimit, OutputWarn: p.OutputWarn, MaxOutput: p.MaxOutput}
	}},
	{"preemption", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{PreemptExempt: p.PreemptExempt, MaxPreemptions: p.MaxPreemptions, PreemptGrace: p.PreemptGrace}
	}},
	{"private", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Private: p.Private} }},
	{"require_account", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{RequireAccount: p.RequireAccount} }},
	{"scheduling", func(p *cluster.Policy) cluster.Policy {
		rest := p.Scheduling
		rest.Reservations, rest.Licences = nil, nil
		return cluster.Policy{Scheduling: rest}
	}},
	{"reservation", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{Scheduling: cluster.Scheduling{Reservations: p.Scheduling.Reservations}}
	}},
	{"licences", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{Scheduling: cluster.Scheduling{Licences: p.Scheduling.Licences}}
	}},
	{"checkpoint_store", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{CheckpointStores: p.CheckpointStores}
	}},
	{"elastic", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Elastic: p.Elastic} }},
	{"burst", func(p *cluster.Policy) cluster.Policy {
		rest := p.Burst
		rest.Budgets = nil
		return cluster.Policy{Burst: rest}
	}},
	{"burst_budget", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{Burst: cluster.BurstPolicy{Budgets: p.Burst.Budgets}}
	}},
	{"staging_credentials", func(p *cluster.Policy) cluster.Policy {
		return cluster.Policy{StagingCredentials: p.StagingCredentials}
	}},
	{"credits", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Credits: p.Credits} }},
}

// policyBytes encodes a policy without its version.
func policyBytes(p cluster.Policy) []byte {
	p.Version = 0
	c := codec.Writer(nil)
	codec.Record(&c, &p, command.PolicyFields)
	return c.Written()
}

// SamePolicy reports whether two policies differ at most in their versions.
func SamePolicy(a, b *cluster.Policy) bool { return bytes.Equal(policyBytes(*a), policyBytes(*b)) }

// policyDiff names the parts of the policy that changed.
func policyDiff(before, after *cluster.Policy) string {
	var words []string
	for _, part := range policyParts {
		if !bytes.Equal(policyBytes(part.of(before)), policyBytes(part.of(after))) {
			words = append(words, part.name)
		}
	}
	words = append(words, listDiff("partition", before.Partitions, after.Partitions,
		func(p *cluster.Partition) (string, cluster.Policy) {
			return p.Name, cluster.Policy{Partitions: []cluster.Partition{*p}}
		})...)
	words = append(words, listDiff("qos", before.QOS, after.QOS,
		func(q *cluster.QOS) (string, cluster.Policy) { return q.Name, cluster.Policy{QOS: []cluster.QOS{*q}} })...)
	if len(words) == 0 {
		return "order"
	}
	return shorten(strings.Join(words, ", "))
}

// listDiff names the entries of a list that were removed, added or changed, in the order
// of the lists. one returns an entry's name and a policy with that entry only.
func listDiff[T any](what string, before, after []T, one func(*T) (string, cluster.Policy)) (words []string) {
	find := func(list []T, name string) []byte {
		for i := range list {
			if n, alone := one(&list[i]); n == name {
				return policyBytes(alone)
			}
		}
		return nil
	}
	for i := range before {
		if name, _ := one(&before[i]); find(after, name) == nil {
			words = append(words, fmt.Sprintf("%s %q removed", what, sanitize(name)))
		}
	}
	for i := range after {
		name, alone := one(&after[i])
		switch old := find(before, name); {
		case old == nil:
			words = append(words, fmt.Sprintf("%s %q added", what, sanitize(name)))
		case !bytes.Equal(old, policyBytes(alone)):
			words = append(words, fmt.Sprintf("%s %q", what, sanitize(name)))
		}
	}
	return words
}
