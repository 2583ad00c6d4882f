package state

import (
	"slices"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// editAccounts changes accounts: all edits or none. O(edits log n), and O(jobs) if accounts
// with jobs move.
func (s *State) editAccounts(c *command.EditAccounts) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	switch {
	case len(c.Edits) == 0:
		return command.Refuse(command.InvalidArgument, "no account given", "")
	case c.Expect != 0 && c.Expect != s.accounts.Version():
		return s.remember(c.Request, command.Refuse(command.Conflict, "the accounts changed in the meantime", "check them and try again: gctl account list"))
	}
	with := accounts.Edit{Actor: c.Actor, Policy: s.policy, Ledger: s.credits.Ledger(), BillsChange: credits.Amendable}
	d, refusal := s.accounts.Draft(c.Edits, with, s.hasher)
	if refusal != nil {
		return s.remember(c.Request, refusal)
	}
	s.adopt(d)
	return s.remember(c.Request, &command.Done{Version: s.accounts.Version(), Notes: d.Notes})
}

// adopt puts a draft of the accounts in force and updates the tables that depend on it.
func (s *State) adopt(d *accounts.Draft) {
	s.accounts.Adopt(d, s.index, s.now)
	if d.Moved {
		s.accounts.Recount(s.allActive)
		s.accounts.ResetUsageRates(s.now, s.holding.Get)
	}
	s.credits.FollowAccounts(s.env(), d.Touched, d.Left)
	s.specs.clear()
	s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
}

// meter updates counts and usage for a job that changes from old to j. old is nil for a new job.
// O(depth), and O(resources log n) when it starts or ends.
func (s *State) meter(old, j *cluster.Job) {
	s.accounts.CountChange(old, j)
	switch before, after := accounts.Runs(old), accounts.Runs(j); {
	case after && !before:
		s.beginCharge(j)
	case before && !after:
		s.accounts.End(s.now, j.ID)
	case before && after && old.Alloc != j.Alloc: // its nodes changed
		s.accounts.End(s.now, j.ID)
		s.beginCharge(j)
	}
}

// beginCharge charges a job from now on for its allocation, at the weights in force.
func (s *State) beginCharge(j *cluster.Job) {
	j.TRES = j.Alloc.Amounts(&j.Spec.Request, func(node string, gpu int32) string {
		if n, known := s.nodes.Get(node); known && int(gpu) < len(n.GPUs) {
			return n.GPUs[gpu].Type
		}
		return ""
	})
	s.chargeUsage(j)
}

// chargeUsage counts the usage of a job from now on, at the weights in force.
func (s *State) chargeUsage(j *cluster.Job) {
	qos, _ := s.policy.QOSNamed(j.Spec.QOS)
	s.accounts.Begin(s.now, j.ID, &cluster.Charge{
		AssociationKey: s.accounts.Tree().Resolve(j.Spec.Association()), QOS: j.Spec.QOS,
		Rate: s.billingRate(j, qos.UsageExtra), Amounts: j.TRES,
	})
}

// billingRate returns the rate at which a job's allocation counts as usage. The jobs on a shared GPU count equal parts
// of it.
func (s *State) billingRate(j *cluster.Job, extra int32) int64 {
	rate := s.policy.Scheduling.FairShare.Bill(j.TRES, s.instances(j), extra)
	if !j.Spec.Request.Share.On() {
		return rate
	}
	others := slices.DeleteFunc(slices.Clone(j.TRES), func(a cluster.Amount) bool {
		_, typed := cluster.GPUTypeOf(a.Resource)
		return typed || a.Resource == cluster.ResourceGPU
	})
	rest := s.policy.Scheduling.FairShare.Bill(others, nil, extra)
	return rest + (rate-rest)/int64(s.sharers(j))
}

// Accounts returns the accounts with their users and usage, at the instant of the view. O(1).
func (v *View) Accounts() *cluster.AccountView { return v.accounts.View() }

// AccountsVersion grows with each change of accounts; 0 before the first.
func (v *View) AccountsVersion() uint64 { return v.accounts.Version() }

// Coordinates reports whether a user is a coordinator of an account or of one of its ancestors.
// O(depth log n).
func (v *View) Coordinates(user, account string) bool { return v.accounts.Coordinates(user, account) }

// ChainOf returns the payers of a user's jobs in an account: the user, the account and its
// ancestors. With user "" it begins with the account. O(depth).
func (v *View) ChainOf(account, user string) accounting.PayerPath {
	return v.accounts.Chain(account, user)
}

// Deleted reports whether an account of the ledger, or a user in one, was deleted.
func (v *View) Deleted(id accounting.PayerID) bool {
	account, user := accounts.PayerOf(id)
	return v.accounts.Len() > 0 && (!v.accounts.Has(account) || user != "" && !v.accounts.Member(account, user))
}

// admission returns the checker of submissions for the present policy, accounts and nodes.
func (s *State) admission() *admission.Checker {
	s.rebuildPartitionIndex()
	return &admission.Checker{
		Now: s.now, Policy: s.policy, Accounts: &s.accounts, Nodes: &s.nodes.Map, Fabric: s.fabric.tree,
		Index: s.partitions, Localities: s.localities, Offers: s.leases.Offers(),
	}
}

// rebuildPartitionIndex updates the index after a change of the policy or of the nodes. O(1)
// without a change, else O(partitions × nodes).
func (s *State) rebuildPartitionIndex() {
	if s.partitions == nil {
		s.partitions = admission.NewIndex(s.policy, s.nodes.All())
		s.specs.clear()
		clear(s.localities)
	}
}
