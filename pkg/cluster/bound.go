package cluster

import (
	"fmt"
	"strings"
	"time"
)

// LimitScope is a set of jobs that a limit counts together: those of an account and its descendants, of
// a user in an account (optionally in a partition), of a QOS, or of a user or an account in a QOS.
// A user alone stands for the user's jobs without an account.
type LimitScope struct {
	Account   string
	User      string
	QOS       string
	Partition string // of a user in an account who has an association for it
}

// ScopeOf returns the scope of one association.
func ScopeOf(key AssociationKey) LimitScope {
	return LimitScope{Account: key.Account, User: key.User, Partition: key.Partition}
}

// String returns the scope for messages.
func (s LimitScope) String() string {
	switch {
	case s.QOS != "" && s.User != "":
		return fmt.Sprintf("user %s in qos %s", s.User, s.QOS)
	case s.QOS != "" && s.Account != "":
		return fmt.Sprintf("account %s in qos %s", s.Account, s.QOS)
	case s.QOS != "":
		return "qos " + s.QOS
	case s.User != "" && s.Account != "":
		return AssociationKey{Account: s.Account, User: s.User, Partition: s.Partition}.String()
	case s.User != "":
		return "user " + s.User
	}
	return "account " + s.Account
}

// EffectiveLimit is one limit that applies to a job: to the total of a scope, or, for limits per job, to the
// job.
type EffectiveLimit struct {
	Limit
	Scope LimitScope // the jobs that are counted
	Of    LimitScope // the owner of the limit
}

// Scopes yields every scope that counts the job: of its user, its account and the ancestors, and
// its QOS. A nil tree has only the root. O(depth).
func (t *AccountTree) Scopes(spec *JobSpec, yield func(LimitScope)) {
	key := t.Resolve(spec.Association())
	yield(ScopeOf(key))
	t.ScopesOfAccount(key.Account, yield)
	if spec.QOS != "" {
		t.ScopesOfQOS(key, spec.QOS, yield)
	}
}

// ScopesOfAccount yields the scopes of an account and its ancestors.
func (t *AccountTree) ScopesOfAccount(account string, yield func(LimitScope)) {
	at := int32(-1)
	if t != nil {
		at = t.Account(account)
	}
	if at < 0 {
		if account != "" && account != RootAccount {
			yield(LimitScope{Account: account})
		}
		yield(LimitScope{Account: RootAccount})
		return
	}
	for ; at >= 0; at = t.Nodes[at].Parent {
		yield(LimitScope{Account: t.Nodes[at].Account.Name})
	}
}

// ScopesOfQOS yields the scopes of a QOS.
func (t *AccountTree) ScopesOfQOS(key AssociationKey, qos string, yield func(LimitScope)) {
	yield(LimitScope{QOS: qos})
	yield(LimitScope{User: key.User, QOS: qos})
	if key.Account != "" {
		yield(LimitScope{Account: key.Account, QOS: qos})
	}
}

// perJob reports whether only the nearest limit of a kind applies: the QOS's, else the user's, else
// that of the nearest account.
func perJob(kind LimitKind) bool {
	switch kind {
	case MaxTRESPerJob, MaxTRESPerNode, MaxJobs, MaxSubmitJobs, MaxWall, MaxTRESMinsPerJob:
		return true
	}
	return false
}

// Bounds returns every limit that applies to a job: all group limits, and of limits per user or job
// the nearest one in Slurm's order: QOS, user, account, ancestors. O(limits of all these).
func (t *AccountTree) Bounds(spec *JobSpec, qos *QOS) []EffectiveLimit {
	var out []EffectiveLimit
	user := ScopeOf(t.Resolve(spec.Association()))
	nearest := map[Limit]bool{} // with Value 0
	if qos != nil {
		out = qosBounds(spec, qos, nearest)
	}
	if t == nil || !t.Limited {
		return out
	}
	at := max(0, t.Find(spec.Association()))
	for _, n := range t.Up(at) {
		of := LimitScope{Account: n.Account.Name}
		if n.User != nil {
			of = user
		}
		for _, l := range n.Limits() {
			b := EffectiveLimit{Limit: l, Scope: of, Of: of}
			if perJob(l.Kind) {
				key := Limit{Kind: l.Kind, Resource: l.Resource}
				if nearest[key] {
					continue
				}
				nearest[key] = true
				b.Scope = user
			}
			out = append(out, b)
		}
	}
	return out
}

// qosBounds returns the limits of a QOS on a job, and records which limits of the user and the
// accounts they override.
func qosBounds(spec *JobSpec, qos *QOS, nearest map[Limit]bool) []EffectiveLimit {
	out := make([]EffectiveLimit, 0, len(qos.Limits))
	if qos.MaxTime > 0 {
		nearest[Limit{Kind: MaxWall}] = true
	}
	for _, l := range qos.Limits {
		b := EffectiveLimit{Limit: l, Scope: LimitScope{QOS: qos.Name}, Of: LimitScope{QOS: qos.Name}}
		switch l.Kind {
		case MaxJobsPerUser, MaxSubmitJobsPerUser, MaxTRESPerUser:
			b.Scope.User = spec.Owner.User
		case MaxJobsPerAccount, MaxSubmitJobsPerAccount, MaxTRESPerAccount:
			if spec.Account == "" {
				continue
			}
			b.Scope.Account = spec.Account
		}
		switch l.Kind {
		case MaxJobsPerUser:
			nearest[Limit{Kind: MaxJobs}] = true
		case MaxSubmitJobsPerUser:
			nearest[Limit{Kind: MaxSubmitJobs}] = true
		case MaxTRESPerJob, MaxTRESPerNode, MaxTRESMinsPerJob:
			nearest[Limit{Kind: l.Kind, Resource: l.Resource}] = true
		}
		out = append(out, b)
	}
	return out
}

// Reason returns the pending reason of a job that waits for the bound.
func (b *EffectiveLimit) Reason() Reason {
	qos := b.Of.QOS != ""
	of := func(account, other Reason) Reason {
		if qos {
			return other
		}
		return account
	}
	switch b.Kind {
	case GrpTRES:
		return b.groupReason(qos)
	case GrpJobs:
		return of(ReasonAssocGrpJobs, ReasonQOSGrpJobs)
	case GrpWall:
		return ReasonAssocGrpWall
	case GrpTRESMins:
		return ReasonAssocGrpTRESMins
	case GrpTRESRunMins:
		return of(ReasonAssocGrpTRESRunMins, ReasonQOSGrpTRESRunMins)
	case MaxTRESPerJob:
		return of(ReasonAssocMaxTRESPerJob, ReasonQOSMaxTRESPerJob)
	case MaxTRESPerNode:
		return of(ReasonAssocMaxTRESPerNode, ReasonQOSMaxTRESPerNode)
	case MinTRESPerJob:
		return ReasonQOSMinTRES
	case MaxTRESMinsPerJob:
		return of(ReasonAssocMaxTRESMinsPerJob, ReasonQOSMaxTRESMinsPerJob)
	case MaxJobs:
		return ReasonAssocMaxJobs
	case MaxWall:
		return ReasonAssocMaxWall
	case MaxJobsPerUser:
		return ReasonQOSMaxJobsPerUser
	case MaxJobsPerAccount:
		return ReasonQOSMaxJobsPerAccount
	case MaxTRESPerUser:
		return ReasonQOSMaxTRESPerUser
	case MaxTRESPerAccount:
		return ReasonQOSMaxTRESPerAccount
	}
	return ReasonNone
}

// groupReason is squeue's word for a group limit on a resource.
func (b *EffectiveLimit) groupReason(qos bool) Reason {
	account, other := ReasonAssocGrpGRES, ReasonQOSGrpGRES
	switch {
	case b.Resource == ResourceCPU:
		account, other = ReasonAssocGrpCPU, ReasonQOSGrpCPU
	case b.Resource == ResourceMem:
		account, other = ReasonAssocGrpMem, ReasonQOSGrpMem
	case b.Resource == ResourceNode:
		account, other = ReasonAssocGrpNode, ReasonQOSGrpNode
	case strings.HasPrefix(b.Resource, licencePrefix):
		account, other = ReasonAssocGrpLicence, ReasonQOSGrpLicence
	}
	if qos {
		return other
	}
	return account
}

// Exceeded describes how much of the bound is used and requested. A negative used means that the
// bound is on one job.
func (b *EffectiveLimit) Exceeded(used, asked int64) string {
	what := b.Kind.String()
	if b.Resource != "" {
		what += " " + b.Resource
	}
	text := fmt.Sprintf("%s of %s is %s", what, b.Of, b.Amount(b.Value))
	switch {
	case b.Kind == MaxTRESPerNode:
		return fmt.Sprintf("%s: the job requests up to %s on one node", text, b.Amount(asked))
	case used < 0:
		return fmt.Sprintf("%s: the job requests %s", text, b.Amount(asked))
	}
	if b.Scope != b.Of {
		text = fmt.Sprintf("%s, for %s", text, b.Scope)
	}
	also := ""
	if b.Kind == GrpTRESMins || b.Kind == GrpWall || b.Kind == GrpTRESRunMins {
		also = " with what runs"
	}
	return fmt.Sprintf("%s: %s used%s, the job requests %s", text, b.Amount(used), also, b.Amount(asked))
}

// Short returns the amount that a job requests of a bound with a minimum, and whether it is too
// little. For a type of GPU it counts only GPUs that the job is certain to get: it names no other
// type, or has whole nodes with that many. For models see [JobSpec.Takes].
func (b *EffectiveLimit) Short(spec *JobSpec, models map[string][]NodeModel) (asked int64, short bool) {
	if b.Kind != MinTRESPerJob {
		return 0, false
	}
	asked, _, _, _ = spec.whole(b.Resource, models)
	if !strings.HasPrefix(b.Resource, gpuPrefix) || len(spec.Request.GPUTypes) == 1 {
		asked = max(asked, spec.Request.Requested(b.Resource))
	}
	return asked, asked < b.Value
}

// Minutes returns how much of the bound's resource a job may use until its time limit, in units ×
// minutes. A job without a limit exceeds any bound on a resource that it uses. For models see
// [JobSpec.Takes].
func (b *EffectiveLimit) Minutes(spec *JobSpec, models map[string][]NodeModel) int64 {
	asked := spec.Takes(b.Resource, models)
	switch {
	case asked == 0:
		return 0
	case spec.TimeLimit == 0 || asked > 2*maxLimitValue/max(1, int64(spec.TimeLimit/time.Minute)):
		return 2 * maxLimitValue
	}
	return asked * int64((spec.TimeLimit+time.Minute-1)/time.Minute)
}
