package server

import (
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxWords bounds the conditions of a filter.
const maxWords = 10_000

// selection is a filter as it was read.
type selection struct {
	refs                                           []cluster.JobRef
	users, names, partitions, accounts, nodes, qos map[string]bool
	states                                         map[cluster.JobState]bool
	anyState                                       bool // all states, or ids alone where the caller says so
	active, finished                               bool // which of the two can match at all
}

// readFilter reads a filter. The errors are refusals.
func readFilter(p *greylagv1.Filter, c *call.Caller) (*selection, error) {
	n := len(p.GetJobs()) + len(p.GetUsers()) + len(p.GetNames()) + len(p.GetStates()) + len(p.GetPartitions()) +
		len(p.GetAccounts()) + len(p.GetNodes()) + len(p.GetQos())
	if n > maxWords {
		return nil, call.Refuse(command.InvalidArgument, "", "the filter has %d words: at most %d", n, maxWords)
	}
	q := &selection{
		users: set(p.GetUsers()), names: set(p.GetNames()), partitions: set(p.GetPartitions()),
		accounts: set(p.GetAccounts()), qos: set(p.GetQos()),
	}
	if p.GetMine() {
		if len(q.users) > 0 && !q.users[c.User.User] {
			return nil, call.Refuse(command.InvalidArgument, "name users, or ask for your own jobs", "the filter wants your own jobs and those of other users only")
		}
		q.users = set([]string{c.User.User})
	}
	names, err := wire.ReadNames(p.GetNodes())
	if err != nil {
		return nil, err
	}
	q.nodes = set(names)
	named := make(map[cluster.JobRef]bool, len(p.GetJobs()))
	for _, word := range p.GetJobs() {
		ref, err := wire.ReadRef(word)
		if err != nil {
			return nil, err
		}
		if !named[ref] { // an array may have a million elements to look at
			named[ref], q.refs = true, append(q.refs, ref)
		}
	}
	return q, q.readStates(p)
}

func (q *selection) readStates(p *greylagv1.Filter) error {
	if p.GetAllStates() {
		if len(p.GetStates()) > 0 {
			return call.Refuse(command.InvalidArgument, "", "filter.states and filter.all_states are both set")
		}
		q.anyState, q.active, q.finished = true, true, true
		return nil
	}
	q.active = len(p.GetStates()) == 0
	for _, state := range p.GetStates() {
		st, err := cluster.ParseJobState(wire.Word(state))
		if err != nil {
			return call.Refuse(command.InvalidArgument, "", "filter.states: %q is no JobState", wire.Word(state))
		}
		if q.states == nil {
			q.states = make(map[cluster.JobState]bool)
		}
		q.states[st] = true
		q.active, q.finished = q.active || !st.Final(), q.finished || st.Final()
	}
	return nil
}

func set(words []string) map[string]bool {
	if len(words) == 0 {
		return nil
	}
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// only is the single user that is meant, "" when there are several or all.
func (q *selection) only() string {
	if len(q.users) == 1 {
		for u := range q.users {
			return u
		}
	}
	return ""
}

// empty reports whether nothing is asked but perhaps the state.
func (q *selection) empty() bool {
	return q.refs == nil && q.users == nil && q.names == nil && q.partitions == nil && q.accounts == nil && q.nodes == nil && q.qos == nil
}

// matches reports whether a job, as the caller sees it, is meant. Ids are not
// looked at.
func (q *selection) matches(j *cluster.Job) bool { return q.inState(j) && q.wanted(j) }

func (q *selection) inState(j *cluster.Job) bool {
	if q.anyState {
		return true
	}
	if q.states == nil {
		return !j.State.Final()
	}
	return q.states[j.State]
}

// wanted is matches without the state.
func (q *selection) wanted(j *cluster.Job) bool {
	is := func(words map[string]bool, word string) bool { return words == nil || words[word] }
	spec := j.Spec
	return is(q.users, spec.Owner.User) && is(q.names, spec.Name) && q.inPartition(j) &&
		is(q.accounts, spec.Account) && is(q.qos, spec.QOS) && (q.nodes == nil || q.runsThere(j))
}

// inPartition reports whether one of the partitions in which a job may run, or the one
// in which it does, is meant.
func (q *selection) inPartition(j *cluster.Job) bool {
	if q.partitions == nil || q.partitions[j.Spec.Partition] && j.InPartition(j.Spec.Partition) {
		return true
	}
	return slices.ContainsFunc(j.Spec.Others, func(name string) bool { return q.partitions[name] && j.InPartition(name) })
}

func (q *selection) runsThere(j *cluster.Job) bool {
	return j.Alloc != nil && slices.ContainsFunc(j.Alloc.Nodes, func(n cluster.NodeAllocation) bool { return q.nodes[n.Node] })
}

// visibility is what a caller sees of jobs under one policy. It is for one goroutine.
type visibility struct {
	caller   auth.Caller
	policy   *cluster.Policy
	last     *cluster.JobSpec // array elements share it
	redacted *cluster.JobSpec
}

func newEye(c *call.Caller, v *state.View) *visibility {
	return &visibility{caller: c.Caller, policy: v.Policy()}
}

// full reports whether the caller may see all of a job.
func (e *visibility) full(j *cluster.Job) bool {
	return auth.ViewOf(e.policy, e.caller, j.Spec.Owner) == auth.Full
}

// see returns the job as the caller may see it; nil for not at all.
func (e *visibility) see(j *cluster.Job) *cluster.Job {
	switch auth.ViewOf(e.policy, e.caller, j.Spec.Owner) {
	case auth.Full:
		return j
	case auth.Summary:
		if e.last != j.Spec {
			e.last, e.redacted = j.Spec, auth.Redact(j.Spec)
		}
		shown := *j
		shown.Spec, shown.Tasks, shown.Requester = e.redacted, nil, ""
		shown.Charged = 0
		if j.State != cluster.Pending || j.Hold == cluster.HeldForCredits { // what an account lacks is not for all
			shown.Detail = ""
		}
		return &shown
	}
	return nil
}
