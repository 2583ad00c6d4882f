package state

import (
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// fillAccount finds the account of a job. If no accounts are defined, every user may submit
// and the account is not checked.
func (s *State) fillAccount(spec *cluster.JobSpec) *command.Refusal {
	if s.accounts.Len() == 0 {
		return nil
	}
	user := spec.Owner.User
	if spec.Account == "" {
		spec.Account = s.defaultOf(user).Account
	}
	_, member := s.association(spec.Association())
	switch {
	case spec.Account == "" && s.policy.RequireAccount:
		return command.WithHint(command.Refusef(command.Denied, "%s has no account", user), "ask a coordinator or an operator: gctl account add ACCOUNT user=%s", user)
	case spec.Account == "":
		return nil
	case !s.accounts.Has(spec.Account):
		return command.WithHint(command.Refusef(command.InvalidArgument, "there is no account %s", spec.Account), "%s", s.accountHint(user))
	case !s.member(spec.Account, user):
		return command.WithHint(command.Refusef(command.Denied, "%s is not in account %s", user, spec.Account), "%s", s.accountHint(user))
	case !member:
		return s.elsewhere(spec.Association())
	}
	for _, name := range spec.Others {
		key := spec.Association()
		key.Partition = name
		if _, member := s.association(key); !member {
			return s.elsewhere(key)
		}
	}
	return nil
}

// defaultQOS is the QOS that the association or an account above it prefers; "" for none.
func (s *State) defaultQOS(spec *cluster.JobSpec) (name string) {
	if a, member := s.association(spec.Association()); member {
		name = a.DefaultQOS
	}
	if name == "" {
		s.above(spec.Account, func(of *cluster.Account) bool {
			name = of.DefaultQOS
			return name == ""
		})
	}
	return name
}

// fillQOS finds the QOS of a job that names none, and refuses one that it may not use.
// A QOS chosen by an operator is recorded instead of refused.
func (s *State) fillQOS(spec *cluster.JobSpec) *command.Refusal {
	if spec.QOS == "" {
		spec.QOS = s.defaultQOS(spec)
	}
	named := spec.QOS != ""
	qos, known := s.policy.QOSNamed(spec.QOS)
	if !known && (named || s.policy.DefaultQOS != "") {
		return command.WithHint(command.Refusef(command.InvalidArgument, "unknown qos %q", spec.QOS), "qos: %s", s.qosNames())
	}
	spec.QOS = qos.Name
	byOperator := spec.QOSByOperator
	spec.QOSByOperator = false
	if s.policy.MayUseQOS(s.shared(), spec) {
		return nil
	}
	usable := s.policy.UsableQOS(s.shared(), spec.Association())
	switch {
	case byOperator:
		spec.QOSByOperator = true
		return nil
	case !named && len(usable) > 0:
		spec.QOS = usable[0]
		return nil
	}
	in, list := "", "it may use none"
	if spec.Account != "" {
		in = " in account " + spec.Account
	}
	if len(usable) > 0 {
		list = "its qos: " + strings.Join(usable, ", ")
	}
	return command.WithHint(command.Refusef(command.Denied, "%s%s may not use qos %s", spec.Owner.User, in, spec.QOS), "%s; %s", list, s.policy.GrantCommand(s.shared(), spec))
}

// elsewhere refuses a partition in which a user is not in an account.
func (s *State) elsewhere(key cluster.AssociationKey) *command.Refusal {
	var names []string
	for k := range s.homes.From(home{user: key.User, account: key.Account}) {
		if k.user != key.User || k.account != key.Account {
			break
		}
		names = append(names, k.partition)
	}
	return command.WithHint(command.Refusef(command.Denied, "%s is in account %s, but not on partition %s", key.User, key.Account, key.Partition),
		"choose one with --partition: %s", strings.Join(names, ", "))
}

// accountHint names the accounts of a user.
func (s *State) accountHint(user string) string {
	var names []string
	for k := range s.homes.From(home{user: user}) {
		if k.user != user || len(names) == 20 {
			break
		}
		names = append(names, k.account)
	}
	names = slices.Compact(names)
	if len(names) == 0 {
		return user + " has no account; ask a coordinator or an operator"
	}
	return "choose one with --account: " + strings.Join(names, ", ")
}

// limited reports whether anything has a limit. O(QOS).
func (s *State) limited() bool {
	if t := s.shared(); t != nil && t.Limited {
		return true
	}
	return slices.ContainsFunc(s.policy.QOS, func(q cluster.QOS) bool { return len(q.Limits) > 0 })
}

// bounds is every limit that holds for a job.
func (s *State) bounds(spec *cluster.JobSpec) []cluster.Bound {
	if qos, known := s.policy.QOSNamed(spec.QOS); known {
		return s.shared().Bounds(spec, &qos)
	}
	return s.shared().Bounds(spec, nil)
}

// withinLimits refuses a job that is larger than a limit on jobs or on what a whole
// account may have at once: it could never start.
func (s *State) withinLimits(spec *cluster.JobSpec) *command.Refusal {
	if !s.limited() {
		return nil
	}
	s.rebuildPartitionIndex()
	models := s.rooms.models
	for _, b := range s.bounds(spec) {
		asked, hint := int64(0), ""
		if asked, short := b.Short(spec, models); short {
			of := ""
			if kind, typed := cluster.GPUTypeOf(b.Resource); typed {
				of = " GPUs of type " + kind + " and no other"
			}
			return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(-1, asked), ""), "ask for at least %s%s, or choose another qos: gctl show policy has their limits", b.Amount(b.Value), of)
		}
		if !spec.MayGet(b.Resource, models) {
			continue
		}
		switch b.Kind {
		case cluster.MaxTRESPerJob, cluster.GrpTRES, cluster.MaxTRESPerUser, cluster.MaxTRESPerAccount:
			asked, hint = spec.Takes(b.Resource, models), "ask for at most "+b.Amount(b.Value)
			if kind, typed := strings.CutPrefix(b.Resource, "gpu:"); typed && len(spec.Request.GPUTypes) != 1 {
				hint += " or name GPU types without " + kind
			}
		case cluster.MaxTRESPerNode:
			asked, hint = spec.TakesOnNode(b.Resource, models), "ask for at most "+b.Amount(b.Value)+" on a node"
			if spec.Request.GPUs > 0 && spec.Request.GPUsPerNode == 0 {
				hint += ", with --gpus-per-node"
			}
		case cluster.MaxWall:
			asked, hint = seconds(spec.TimeLimit), "ask for at most --time="+b.Amount(b.Value)
		case cluster.MaxTRESMinsPerJob, cluster.GrpTRESRunMins:
			asked, hint = b.Minutes(spec, models), "ask for less, or for less time"
		default:
			continue
		}
		switch {
		case b.Resource == cluster.ResourceMem && spec.Request.MemFrom != cluster.MemoryAsked:
			hint = "ask for at most " + b.Amount(b.Value) + " with --mem"
		case spec.Takes(b.Resource, models) > spec.Request.Asked(b.Resource):
			hint = "with --exclusive it has all CPUs and GPUs of its nodes: leave that out, or ask for fewer nodes"
		}
		if asked > b.Value {
			where := "gctl account list " + spec.Account
			if b.Of.QOS != "" {
				where = "gctl show policy"
			}
			return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(-1, asked), ""), "%s; %s shows the limits", hint, where)
		}
	}
	return nil
}

// mayJoin refuses a job that would come to a QOS, an account or an association which
// has as many as it may. What it counts for already it may go on to do.
func (s *State) mayJoin(spec, old *cluster.JobSpec) *command.Refusal {
	if spec.QOS == old.QOS && spec.Association() == old.Association() || !s.limited() {
		return nil
	}
	in := map[cluster.Scope]none{}
	s.shared().Scopes(old, func(scope cluster.Scope) { in[scope] = none{} })
	for _, b := range s.bounds(spec) {
		if _, already := in[b.Scope]; already {
			continue
		}
		switch b.Kind {
		case cluster.GrpSubmitJobs, cluster.MaxSubmitJobs, cluster.MaxSubmitJobsPerUser, cluster.MaxSubmitJobsPerAccount:
			if has := s.queued[b.Scope]; has+1 > b.Value {
				return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(has, 1), ""), "change it when some of these jobs have ended")
			}
		}
	}
	return nil
}

// seconds of a time limit; of none, more than any limit.
func seconds(limit time.Duration) int64 {
	if limit == 0 {
		return 1 << 51
	}
	return int64((limit + time.Second - 1) / time.Second)
}

// tally counts submissions before they are stored, so that one command keeps the
// limits on submitted jobs as many would.
type tally map[cluster.Scope]int64

// add counts jobs of a specification, or refuses them.
func (q tally) add(s *State, spec *cluster.JobSpec, n int64) *command.Refusal {
	if !s.limited() {
		return nil
	}
	for _, b := range s.bounds(spec) {
		switch b.Kind {
		case cluster.GrpSubmitJobs, cluster.MaxSubmitJobs, cluster.MaxSubmitJobsPerUser, cluster.MaxSubmitJobsPerAccount:
		default:
			continue
		}
		if has := s.queued[b.Scope] + q[b.Scope]; has+n > b.Value {
			return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(has, n), ""), "submit again when some of these jobs have ended")
		}
	}
	s.shared().Scopes(spec, func(scope cluster.Scope) { q[scope] += n })
	return nil
}

// CheckSupported refuses limits of kinds that only a newer form of the credit journal knows,
// until every controller writes that form: an older one would compute another state.
func (v *View) CheckSupported(limits []cluster.Limit) *command.Refusal {
	return v.checkSupported(limits, cluster.LimitKind.Form)
}

// checkSupported is CheckSupported, where formOf returns the first form that knows a kind of limit.
func (v *View) checkSupported(limits []cluster.Limit, formOf func(cluster.LimitKind) uint8) *command.Refusal {
	for _, l := range limits {
		if formOf(l.Kind) > v.credits.Writes() {
			return command.WithHint(command.Refusef(command.Conflict, "%s: not every controller knows this limit yet", l.Kind), "gctl cluster status lists the controllers to update")
		}
	}
	return nil
}
