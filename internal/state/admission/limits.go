package admission

import (
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/pkg/cluster"
)

// fillAccount finds the account of a job. If no accounts are defined, every user may submit
// and the account is not checked.
func (x *Checker) fillAccount(spec *cluster.JobSpec) *command.Refusal {
	if x.Accounts.Len() == 0 {
		return nil
	}
	user := spec.Owner.User
	if spec.Account == "" {
		spec.Account = x.Accounts.DefaultOf(user).Account
	}
	_, member := x.Accounts.Association(spec.Association())
	switch {
	case spec.Account == "" && x.Policy.RequireAccount:
		return command.WithHint(command.Refusef(command.Denied, "%s has no account", user), "ask a coordinator or an operator: gctl account add ACCOUNT user=%s", user)
	case spec.Account == "":
		return nil
	case !x.Accounts.Has(spec.Account):
		return command.WithHint(command.Refusef(command.InvalidArgument, "there is no account %s", spec.Account), "%s", x.accountHint(user))
	case !x.Accounts.Member(spec.Account, user):
		return command.WithHint(command.Refusef(command.Denied, "%s is not in account %s", user, spec.Account), "%s", x.accountHint(user))
	case !member:
		return x.elsewhere(spec.Association())
	}
	for _, name := range spec.OtherPartitions {
		key := spec.Association()
		key.Partition = name
		if _, member := x.Accounts.Association(key); !member {
			return x.elsewhere(key)
		}
	}
	return nil
}

// defaultQOS returns the default QOS of the association or of an account above it; "" for none.
func (x *Checker) defaultQOS(spec *cluster.JobSpec) (name string) {
	if a, member := x.Accounts.Association(spec.Association()); member {
		name = a.DefaultQOS
	}
	if name == "" {
		x.Accounts.Above(spec.Account, func(of *cluster.Account) bool {
			name = of.DefaultQOS
			return name == ""
		})
	}
	return name
}

// fillQOS finds the QOS of a job that names none, and refuses one that it may not use.
// A QOS chosen by an operator is recorded instead of refused.
func (x *Checker) fillQOS(spec *cluster.JobSpec) *command.Refusal {
	if spec.QOS == "" {
		spec.QOS = x.defaultQOS(spec)
	}
	named := spec.QOS != ""
	qos, known := x.Policy.QOSNamed(spec.QOS)
	if !known && (named || x.Policy.DefaultQOS != "") {
		return command.WithHint(command.Refusef(command.InvalidArgument, "unknown qos %q", spec.QOS), "qos: %s", accounts.QOSNames(x.Policy))
	}
	spec.QOS = qos.Name
	byOperator := spec.QOSByOperator
	spec.QOSByOperator = false
	if x.Policy.MayUseQOS(x.Accounts.Tree(), spec) {
		return nil
	}
	usable := x.Policy.UsableQOS(x.Accounts.Tree(), spec.Association())
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
	return command.WithHint(command.Refusef(command.Denied, "%s%s may not use qos %s", spec.Owner.User, in, spec.QOS), "%s; %s", list, x.Policy.GrantCommand(x.Accounts.Tree(), spec))
}

// elsewhere refuses a partition in which a user is not in an account.
func (x *Checker) elsewhere(key cluster.AssociationKey) *command.Refusal {
	return command.WithHint(command.Refusef(command.Denied, "%s is in account %s, but not on partition %s", key.User, key.Account, key.Partition),
		"choose one with --partition: %s", strings.Join(x.Accounts.Partitions(key.User, key.Account), ", "))
}

// accountHint names the accounts of a user.
func (x *Checker) accountHint(user string) string {
	names := x.Accounts.AccountsOf(user, 20)
	if len(names) == 0 {
		return user + " has no account; ask a coordinator or an operator"
	}
	return "choose one with --account: " + strings.Join(names, ", ")
}

// Limited reports whether anything has a limit. O(QOS).
func (x *Checker) Limited() bool {
	if t := x.Accounts.Tree(); t != nil && t.Limited {
		return true
	}
	return slices.ContainsFunc(x.Policy.QOS, func(q cluster.QOS) bool { return len(q.Limits) > 0 })
}

// bounds returns every limit that holds for a job.
func (x *Checker) bounds(spec *cluster.JobSpec) []cluster.EffectiveLimit {
	if qos, known := x.Policy.QOSNamed(spec.QOS); known {
		return x.Accounts.Tree().Bounds(spec, &qos)
	}
	return x.Accounts.Tree().Bounds(spec, nil)
}

// withinLimits refuses a job that is larger than a limit on jobs or on what a whole
// account may have at once: it could never start.
func (x *Checker) withinLimits(spec *cluster.JobSpec) *command.Refusal {
	if !x.Limited() {
		return nil
	}
	models := x.Index.Models
	for _, b := range x.bounds(spec) {
		asked, hint := int64(0), ""
		if asked, short := b.Short(spec, models); short {
			of := ""
			if kind, typed := cluster.GPUTypeOf(b.Resource); typed {
				of = " GPUs of type " + kind + " and no other"
			}
			return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(-1, asked), ""), "request at least %s%s, or choose another qos: gctl show policy has their limits", b.Amount(b.Value), of)
		}
		if !spec.MayGet(b.Resource, models) {
			continue
		}
		switch b.Kind {
		case cluster.MaxTRESPerJob, cluster.GrpTRES, cluster.MaxTRESPerUser, cluster.MaxTRESPerAccount:
			asked, hint = spec.Takes(b.Resource, models), "request at most "+b.Amount(b.Value)
			if kind, typed := strings.CutPrefix(b.Resource, "gpu:"); typed && len(spec.Request.GPUTypes) != 1 {
				hint += " or name GPU types without " + kind
			}
		case cluster.MaxTRESPerNode:
			asked, hint = spec.TakesOnNode(b.Resource, models), "request at most "+b.Amount(b.Value)+" on a node"
			if spec.Request.GPUs > 0 && spec.Request.GPUsPerNode == 0 {
				hint += ", with --gpus-per-node"
			}
		case cluster.MaxWall:
			asked, hint = seconds(spec.TimeLimit), "request at most --time="+b.Amount(b.Value)
		case cluster.MaxTRESMinsPerJob, cluster.GrpTRESRunMins:
			asked, hint = b.Minutes(spec, models), "request less, or less time"
		default:
			continue
		}
		switch {
		case b.Resource == cluster.ResourceMem && spec.Request.MemFrom != cluster.MemoryAsked:
			hint = "request at most " + b.Amount(b.Value) + " with --mem"
		case spec.Takes(b.Resource, models) > spec.Request.Requested(b.Resource):
			hint = "with --exclusive it gets all CPUs and GPUs of its nodes: omit it, or request fewer nodes"
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

// CheckJoin refuses to move a job to a QOS, an account or an association that has its maximum of
// jobs. Scopes that the job counts for already do not refuse it.
func (x *Checker) CheckJoin(spec, old *cluster.JobSpec) *command.Refusal {
	if spec.QOS == old.QOS && spec.Association() == old.Association() || !x.Limited() {
		return nil
	}
	in := map[cluster.LimitScope]struct{}{}
	x.Accounts.Tree().Scopes(old, func(scope cluster.LimitScope) { in[scope] = struct{}{} })
	for _, b := range x.bounds(spec) {
		if _, already := in[b.Scope]; already {
			continue
		}
		switch b.Kind {
		case cluster.GrpSubmitJobs, cluster.MaxSubmitJobs, cluster.MaxSubmitJobsPerUser, cluster.MaxSubmitJobsPerAccount:
			if has := x.Accounts.Queued(b.Scope); has+1 > b.Value {
				return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(has, 1), ""), "change it when some of these jobs have ended")
			}
		}
	}
	return nil
}

// seconds returns a time limit in seconds; for none, more than any limit.
func seconds(limit time.Duration) int64 {
	if limit == 0 {
		return 1 << 51
	}
	return int64((limit + time.Second - 1) / time.Second)
}

// Tally counts submissions before they are stored, so that one command keeps the limits on
// submitted jobs as several would.
type Tally map[cluster.LimitScope]int64

// Add counts jobs of a specification, or refuses them.
func (q Tally) Add(x *Checker, spec *cluster.JobSpec, n int64) *command.Refusal {
	if !x.Limited() {
		return nil
	}
	for _, b := range x.bounds(spec) {
		switch b.Kind {
		case cluster.GrpSubmitJobs, cluster.MaxSubmitJobs, cluster.MaxSubmitJobsPerUser, cluster.MaxSubmitJobsPerAccount:
		default:
			continue
		}
		if has := x.Accounts.Queued(b.Scope) + q[b.Scope]; has+n > b.Value {
			return command.WithHint(command.Refuse(command.Exhausted, b.Exceeded(has, n), ""), "submit again when some of these jobs have ended")
		}
	}
	x.Accounts.Tree().Scopes(spec, func(scope cluster.LimitScope) { q[scope] += n })
	return nil
}
