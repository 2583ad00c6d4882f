package joblist

import (
	"context"
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxWords bounds the number of words in a filter.
const maxWords = 10_000

// selection is a decoded filter.
type selection struct {
	refs                                           []cluster.JobRef
	users, names, partitions, accounts, nodes, qos map[string]bool
	states                                         map[cluster.JobState]bool
	anyState                                       bool // all states, or IDs alone where the caller says so
	active, finished                               bool // whether active and finished jobs can match at all
}

// readFilter decodes a filter. Its errors are refusals.
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
			return nil, call.Refuse(command.InvalidArgument, "select either users or your own jobs", "the filter selects both your own jobs and other users' jobs")
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
		if !named[ref] { // an array may have a million elements
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
			return call.Refuse(command.InvalidArgument, "", "filter.states: %q is not a JobState", wire.Word(state))
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

// only returns the single user of the filter; "" for several or all.
func (q *selection) only() string {
	if len(q.users) == 1 {
		for u := range q.users {
			return u
		}
	}
	return ""
}

// resolve returns the jobs that the filter names by ID, ascending.
func (q *selection) resolve(v *state.View, a Archive) (ids []cluster.JobID, err error) {
	for _, ref := range q.refs {
		more, err := Resolve(v, a, ref)
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// empty reports whether the filter has no condition except states.
func (q *selection) empty() bool {
	return q.refs == nil && q.users == nil && q.names == nil && q.partitions == nil && q.accounts == nil && q.nodes == nil && q.qos == nil
}

// matches reports whether a job, as the caller sees it, meets all conditions except IDs.
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

// wanted is matches without the states.
func (q *selection) wanted(j *cluster.Job) bool {
	is := func(words map[string]bool, word string) bool { return words == nil || words[word] }
	spec := j.Spec
	return is(q.users, spec.Owner.User) && is(q.names, spec.Name) && q.inPartition(j) &&
		is(q.accounts, spec.Account) && is(q.qos, spec.QOS) && (q.nodes == nil || q.runsThere(j))
}

// inPartition reports whether the filter names one of the partitions in which a job may run or
// runs.
func (q *selection) inPartition(j *cluster.Job) bool {
	if q.partitions == nil || q.partitions[j.Spec.Partition] && j.InPartition(j.Spec.Partition) {
		return true
	}
	return slices.ContainsFunc(j.Spec.OtherPartitions, func(name string) bool { return q.partitions[name] && j.InPartition(name) })
}

func (q *selection) runsThere(j *cluster.Job) bool {
	return j.Alloc != nil && slices.ContainsFunc(j.Alloc.Nodes, func(n cluster.NodeAllocation) bool { return q.nodes[n.Node] })
}

// Visibility is what a caller sees of jobs under one policy. It is for one goroutine.
type Visibility struct {
	caller   auth.Caller
	policy   *cluster.Policy
	last     *cluster.JobSpec // array elements share it
	redacted *cluster.JobSpec
}

// NewVisibility returns what the caller sees under the policy of v.
func NewVisibility(c *call.Caller, v *state.View) *Visibility {
	return &Visibility{caller: c.Caller, policy: v.Policy()}
}

// full reports whether the caller may see all of a job.
func (e *Visibility) full(j *cluster.Job) bool {
	return auth.ViewOf(e.policy, e.caller, j.Spec.Owner) == auth.Full
}

// See returns the job as the caller may see it; nil if the caller may not see it.
func (e *Visibility) See(j *cluster.Job) *cluster.Job {
	switch auth.ViewOf(e.policy, e.caller, j.Spec.Owner) {
	case auth.Full:
		return j
	case auth.Summary:
		if e.last != j.Spec {
			e.last, e.redacted = j.Spec, auth.Redact(j.Spec)
		}
		shown := *j
		shown.Spec, shown.Tasks, shown.Steps, shown.Members, shown.Requester = e.redacted, nil, nil, nil, ""
		shown.Charged, shown.AdminComment, shown.Avoided, shown.Unfenced, shown.WriteTime, shown.Attempts = 0, "", nil, nil, 0, nil
		shown.Activity = nil
		if j.State != cluster.Pending || j.Hold == cluster.HeldForCredits { // what an account lacks is private
			shown.Detail = ""
		}
		return &shown
	}
	return nil
}

// Chosen returns the jobs that a filter chooses for a change. It returns IDs alone unchanged, and
// the state checks them. With other conditions, a filter of a plain user without users chooses that
// user's own jobs.
func (s *Service) Chosen(ctx context.Context, c *call.Caller, filter *greylagv1.Filter) ([]cluster.JobRef, error) {
	q, err := readFilter(filter, c)
	if err != nil {
		return nil, err
	}
	switch {
	case q.empty() && !choosesStates(filter):
		return nil, call.Refuse(command.InvalidArgument, "select by job ID, user, partition, state or another field", "no job given")
	case q.refs != nil && !choosesStates(filter) && onlyRefs(q):
		return q.refs, nil
	case q.users == nil && q.refs == nil && c.Role < command.RoleOperator:
		q.users = set([]string{c.User.User})
	}
	v, _, err := s.Views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	l := &listing{archive: s.Archive, view: v, q: q, visibility: NewVisibility(c, v)}
	q.finished = false
	for _, ref := range q.refs {
		l.ids = append(l.ids, v.Resolve(ref)...)
	}
	jobs, _, err := l.page(maxArray * 64)
	if err != nil {
		return nil, err
	}
	refs := make([]cluster.JobRef, 0, len(jobs))
	for _, j := range jobs {
		if !j.State.Final() {
			refs = append(refs, j.Ref())
		}
	}
	return refs, nil
}

func onlyRefs(q *selection) bool {
	rest := *q
	rest.refs = nil
	return rest.empty()
}

// choosesStates reports whether a filter names states.
func choosesStates(f *greylagv1.Filter) bool { return f.GetAllStates() || len(f.GetStates()) > 0 }
