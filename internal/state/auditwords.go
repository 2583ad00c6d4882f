package state

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxWords bounds what the audit journal says of the values of one command, in bytes.
const maxWords = 200

// shorten cuts a text to maxWords bytes, and shows that it did.
func shorten(text string) string {
	if len(text) <= maxWords {
		return text
	}
	return strings.ToValidUTF8(text[:maxWords], "") + "..."
}

// updateWords is what an update sets, such as "time 2:00:00, nice 5".
func updateWords(c *command.UpdateJobs) string {
	var words []string
	set := func(name string, value *string) {
		if value != nil {
			words = append(words, fmt.Sprintf("%s %q", name, sanitize(*value)))
		}
	}
	number := func(name string, value *int32) {
		if value != nil {
			words = append(words, fmt.Sprintf("%s %d", name, *value))
		}
	}
	if c.TimeLimit != nil {
		words = append(words, "time "+cluster.FormatLimit(*c.TimeLimit))
	}
	set("partition", c.Partition)
	set("qos", c.QOS)
	set("account", c.Account)
	set("name", c.Name)
	number("nice", c.Nice)
	number("array limit", c.ArrayLimit)
	set("comment", c.Comment)
	for _, x := range []struct {
		name string
		at   *cluster.Instant
	}{{"begin", c.Begin}, {"deadline", c.Deadline}} {
		switch {
		case x.at == nil:
		case *x.at == 0:
			words = append(words, "no "+x.name)
		default:
			words = append(words, x.name+" "+x.at.Time().UTC().Format("2006-01-02T15:04:05Z"))
		}
	}
	if c.Depends != nil {
		terms := make([]string, 0, len(*c.Depends))
		for _, d := range *c.Depends {
			terms = append(terms, d.String())
		}
		words = append(words, fmt.Sprintf("dependency %q", strings.Join(terms, ",")))
	}
	set("reservation", c.Reservation)
	number("nodes", c.Nodes)
	number("GPUs a node", c.GPUsPerNode)
	number("GPUs", c.GPUs)
	return shorten(strings.Join(words, ", "))
}

// tokenWord is what a join token is for.
func tokenWord(k command.TokenKind) string {
	switch k {
	case command.NodeToken:
		return "node"
	case command.ControllerToken:
		return "controller"
	case command.AuthToken:
		return "auth"
	}
	return fmt.Sprintf("kind %d", k)
}

// refOf is a job as its user knows it: 92_11, not 103.
func (s *State) refOf(id cluster.JobID) string {
	for _, table := range []func(cluster.JobID) (*cluster.Job, bool){s.pending.Get, s.holding.Get} {
		if j, found := table(id); found {
			return j.Ref().String()
		}
	}
	return id.String()
}

// policyPart is a part of the policy by its name in the policy file: a policy in which all else is
// left out, so that two of them can be compared as they are stored, whatever memory holds.
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
		return cluster.Policy{NodeTimeout: p.NodeTimeout, KillWait: p.KillWait, MaxArray: p.MaxArray, MaxJobs: p.MaxJobs, MaxRestarts: p.MaxRestarts}
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
	{"credits", func(p *cluster.Policy) cluster.Policy { return cluster.Policy{Credits: p.Credits} }},
}

// policyBytes is a policy as it is stored, without its version.
func policyBytes(p cluster.Policy) []byte {
	p.Version = 0
	c := codec.Writer(nil)
	codec.Record(&c, &p, command.PolicyFields)
	return c.Written()
}

// samePolicy reports whether two policies differ in their versions at most.
func samePolicy(a, b *cluster.Policy) bool { return bytes.Equal(policyBytes(*a), policyBytes(*b)) }

// policyWords says which parts of the policy became others.
func policyWords(before, after *cluster.Policy) string {
	var words []string
	for _, part := range policyParts {
		if !bytes.Equal(policyBytes(part.of(before)), policyBytes(part.of(after))) {
			words = append(words, part.name)
		}
	}
	words = append(words, listWords("partition", before.Partitions, after.Partitions,
		func(p *cluster.Partition) (string, cluster.Policy) {
			return p.Name, cluster.Policy{Partitions: []cluster.Partition{*p}}
		})...)
	words = append(words, listWords("qos", before.QOS, after.QOS,
		func(q *cluster.QOS) (string, cluster.Policy) { return q.Name, cluster.Policy{QOS: []cluster.QOS{*q}} })...)
	if len(words) == 0 {
		return "order"
	}
	return shorten(strings.Join(words, ", "))
}

// listWords says which of a list's entries came, went or became others, in the order of the lists.
func listWords[T any](what string, before, after []T, one func(*T) (string, cluster.Policy)) (words []string) {
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

// accountWords is what one edit of an account or user sets.
func accountWords(e *command.AccountEdit) string {
	var words []string
	set := func(name string, value *string) {
		if value != nil {
			words = append(words, fmt.Sprintf("%s %q", name, sanitize(*value)))
		}
	}
	list := func(name string, value *[]string) {
		if value != nil {
			words = append(words, fmt.Sprintf("%s %q", name, sanitize(strings.Join(*value, ","))))
		}
	}
	set("parent", e.Parent)
	set("description", e.Description)
	if e.Shares != nil {
		words = append(words, fmt.Sprintf("shares %d", *e.Shares))
	}
	if e.Default != nil {
		words = append(words, fmt.Sprintf("default %t", *e.Default))
	}
	list("coordinators", e.Coordinators)
	list("qos", e.QOS)
	set("default qos", e.DefaultQOS)
	for _, l := range e.Set {
		words = append(words, sanitize(l.String()))
	}
	for _, l := range e.Unset {
		name := l.String()
		words = append(words, "no "+sanitize(name[:strings.LastIndexByte(name, '=')]))
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + shorten(strings.Join(words, ", ")) + ")"
}
