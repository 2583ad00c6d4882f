package server

import (
	"cmp"
	"context"
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/order"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// accountService answers requests about accounts. The state decides who may change one, since it
// has the coordinators.
type accountService struct{ *Server }

// maxPriorities bounds a list of priorities.
const maxPriorities = 100_000

// ListAccounts lists accounts and their users.
func (s *accountService) ListAccounts(ctx context.Context, p *greylagv1.ListAccountsRequest) (*greylagv1.ListAccountsResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	out := &greylagv1.ListAccountsResponse{Version: v.AccountsVersion(), AsOf: asOf}
	tree := v.Accounts().Tree
	if tree == nil {
		return out, nil
	}
	for _, name := range p.GetNames() {
		if tree.Account(name) < 0 {
			return nil, call.Refuse(command.NotFound, "gctl account list shows all", "there is no account %s", name)
		}
	}
	shown := chosenAccounts(tree, p.GetNames())
	var users []*greylagv1.AccountUser
	for _, i := range tree.Walk() {
		n := &tree.Nodes[i]
		switch {
		case !shown[i]:
		case n.User == nil:
			out.Accounts = append(out.Accounts, wire.Account(n.Account, tree.Depth(i)))
		case p.GetUsers() && (p.GetUser() == "" || n.User.User == p.GetUser()) && call.From(ctx).Sees(v, n.User.AssociationKey):
			users = append(users, wire.AccountUser(n.User))
		}
	}
	out.Users = users
	return out, nil
}

// chosenAccounts returns the named accounts and their descendants; all accounts if none is named.
func chosenAccounts(tree *cluster.AccountTree, names []string) []bool {
	shown := make([]bool, len(tree.Nodes))
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		shown[i] = len(names) == 0 || n.User == nil && slices.Contains(names, n.Account.Name) || n.Parent >= 0 && shown[n.Parent]
	}
	return shown
}

// UpdateAccounts changes accounts and users.
func (s *accountService) UpdateAccounts(ctx context.Context, p *greylagv1.UpdateAccountsRequest) (*greylagv1.UpdateAccountsResponse, error) {
	edits, err := wire.ReadAccountEdits(p.GetEdits())
	if err != nil {
		return nil, err
	}
	if refusal := s.cfg.State.View().CheckSupported(limitsIn(edits)); refusal != nil {
		return nil, refusal
	}
	c := call.From(ctx)
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	done, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.EditAccounts{Request: id, Actor: c.Actor(), Edits: edits, Expect: p.GetExpectVersion()})
	if err != nil {
		return nil, err
	}
	return &greylagv1.UpdateAccountsResponse{Version: done.Version, Notes: done.Notes, Warnings: audit.GPUTypesOf(s.cfg.State.View()).MissingIn(limitsIn(edits))}, nil
}

// limitsIn returns all limits that edits set.
func limitsIn(edits []command.AccountEdit) (limits []cluster.Limit) {
	for i := range edits {
		limits = append(limits, edits[i].Set...)
	}
	return limits
}

// ListShares lists the shares and the usage of accounts and users.
func (s *accountService) ListShares(ctx context.Context, p *greylagv1.ListSharesRequest) (*greylagv1.ListSharesResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	view, rules := v.Accounts(), &v.Policy().Scheduling.FairShare
	now := max(v.Now(), cluster.InstantOf(s.cfg.Clock()))
	out := &greylagv1.ListSharesResponse{Classic: rules.Classic, AsOf: asOf}
	c := call.From(ctx)
	all := order.ShareRows(view, rules, now)
	var shown []bool
	if view.Tree != nil {
		shown = chosenAccounts(view.Tree, p.GetAccounts())
	}
	add := func(i int) {
		x := &all[i]
		if i < len(shown) && !shown[i] || i >= len(shown) && len(p.GetAccounts()) > 0 {
			return
		}
		if x.User != "" && (p.GetUser() != "" && x.User != p.GetUser() || !c.Sees(v, cluster.AssociationKey{Account: x.Account, User: x.User})) {
			return
		}
		out.Shares = append(out.Shares, &greylagv1.Share{
			Account: x.Account, User: x.User, Partition: x.Part, Depth: x.Depth, Shares: x.Shares, NormShares: x.NormShares, Usage: x.Usage,
			NormUsage: x.NormUsage, EffectiveUsage: x.Effective, FairShare: x.FairShare, LevelFs: x.LevelFS,
		})
	}
	if view.Tree != nil {
		for _, i := range view.Tree.Walk() {
			add(int(i))
		}
	}
	for i := len(shown); i < len(all); i++ {
		add(i)
	}
	return out, nil
}

// ListPriorities lists the factors of the priorities of pending jobs.
func (s *accountService) ListPriorities(ctx context.Context, p *greylagv1.ListPrioritiesRequest) (*greylagv1.ListPrioritiesResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	snap := v.Snapshot()
	snap.Now = max(snap.Now, cluster.InstantOf(s.cfg.Clock()))
	parts, c := order.PartsOf(snap), call.From(ctx)
	out := &greylagv1.ListPrioritiesResponse{AsOf: asOf}
	tiers := order.Tiers(snap)
	for _, j := range snap.Pending {
		spec := j.Spec
		if len(p.GetJobs()) > 0 && !slices.Contains(p.GetJobs(), uint64(j.ID)) && !slices.Contains(p.GetJobs(), uint64(j.Array)) ||
			p.GetUser() != "" && spec.Owner.User != p.GetUser() || p.GetAccount() != "" && spec.Account != p.GetAccount() ||
			!c.Sees(v, cluster.AssociationKey{Account: spec.Account, User: spec.Owner.User}) {
			continue
		}
		x := parts(j)
		tier, over := tiers(j)
		out.Jobs = append(out.Jobs, &greylagv1.Priority{
			Job: uint64(j.ID), Ref: j.Ref().String(), User: spec.Owner.User, Account: spec.Account, Partition: spec.Partition, Qos: spec.QOS,
			Tier: tier, OverBudget: over, Priority: x.Priority, Age: x.Age, FairShare: x.FairShare, JobSize: x.JobSize,
			PartitionPart: x.Partition, QosPart: x.QOS, Nice: x.Nice,
		})
	}
	slices.SortStableFunc(out.Jobs, func(a, b *greylagv1.Priority) int {
		return cmp.Or(cmp.Compare(b.Tier, a.Tier), cmp.Compare(b.Priority, a.Priority))
	})
	out.Jobs = out.Jobs[:min(len(out.Jobs), maxPriorities)]
	return out, nil
}
