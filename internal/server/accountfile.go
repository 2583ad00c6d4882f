package server

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/clusterdoc"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAccountsFile bounds a file of accounts; maxEditsAtOnce the edits of one command,
// which are one log entry.
const (
	maxAccountsFile = 14 << 20
	maxEditsAtOnce  = 2000
)

// book is all accounts and their users, as in a file.
type book struct {
	accounts []cluster.Account
	users    []cluster.Association
}

// bookOf returns what is in force: accounts after their parents, siblings by name.
func bookOf(v *state.View) book {
	var b book
	tree := v.Accounts().Tree
	if tree == nil {
		return b
	}
	for _, i := range tree.Walk() {
		switch n := &tree.Nodes[i]; {
		case n.User != nil:
			b.users = append(b.users, *n.User)
		case i > 0 || len(n.Account.Limits)+len(n.Account.QOS)+len(n.Account.Coordinators) > 0 || n.Account.Description != "":
			b.accounts = append(b.accounts, *n.Account)
		}
	}
	return b
}

// ExportAccounts returns all accounts as a file.
func (s *accountService) ExportAccounts(ctx context.Context, p *greylagv1.ExportAccountsRequest) (*greylagv1.ExportAccountsResponse, error) {
	v, _, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	if v.Policy().Private && call.From(ctx).Role < command.RoleOperator {
		return nil, call.Refuse(command.Denied, "gctl account list shows your accounts", "only operators see all accounts and users")
	}
	b := bookOf(v)
	text, err := clusterdoc.WriteAccounts(b.accounts, b.users)
	if err != nil {
		return nil, err
	}
	return &greylagv1.ExportAccountsResponse{Toml: string(text), Version: v.AccountsVersion()}, nil
}

// ImportAccounts makes the accounts equal to a file. Only differences are changed, in one step up
// to maxEditsAtOnce changes.
func (s *accountService) ImportAccounts(ctx context.Context, p *greylagv1.ImportAccountsRequest) (*greylagv1.ImportAccountsResponse, error) {
	if len(p.GetToml()) > maxAccountsFile {
		return nil, call.Refuse(command.InvalidArgument, "", "the accounts have %d bytes: at most %d", len(p.GetToml()), maxAccountsFile)
	}
	accounts, users, err := clusterdoc.ReadAccounts(cmp.Or(p.GetName(), "accounts"), []byte(p.GetToml()))
	if err != nil {
		return nil, err
	}
	next := book{accounts, users}
	if why := next.duplicate(); why != "" {
		return nil, call.Refuse(command.InvalidArgument, "", "%s", why)
	}
	c := call.From(ctx)
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	if c.Role < command.RoleOperator {
		return nil, call.Refuse(command.Denied, "coordinators may change users: gctl account modify", "%s may not load accounts: requires role operator", c.User.User)
	}
	if strings.TrimSpace(p.GetToml()) == "" { // all accounts would be deleted
		return nil, call.Refuse(command.InvalidArgument, "edit what gctl account dump prints", "the list of accounts is empty")
	}
	now := bookOf(v)
	next.sortLike(now)
	before, err := clusterdoc.WriteAccounts(now.accounts, now.users)
	if err != nil {
		return nil, err
	}
	after, err := clusterdoc.WriteAccounts(next.accounts, next.users)
	if err != nil {
		return nil, err
	}
	out := &greylagv1.ImportAccountsResponse{Diff: diff(string(before), string(after)), Version: v.AccountsVersion()}
	edits := editsFrom(now, next)
	if refusal := v.CheckSupported(limitsIn(edits)); refusal != nil {
		return nil, refusal
	}
	out.Warnings = audit.GPUTypesOf(v).MissingIn(limitsIn(edits))
	if p.GetDryRun() {
		return out, s.tryAccounts(ctx, v, &command.EditAccounts{Actor: c.Actor(), Edits: edits})
	}
	for edits := range slices.Chunk(edits, maxEditsAtOnce) {
		// No request ID: a repetition finds no difference.
		done, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.EditAccounts{Actor: c.Actor(), Edits: edits, Expect: out.Version})
		if err != nil {
			return nil, err
		}
		out.Version = done.Version
	}
	return out, nil
}

// tryAccounts refuses what a change that is no dry run would be refused for.
func (s *accountService) tryAccounts(ctx context.Context, v *state.View, c *command.EditAccounts) error {
	if len(c.Edits) == 0 {
		return nil
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if refusal := v.TryAccounts(c); refusal != nil {
		return refusal
	}
	return nil
}

// duplicate names what a file has more than once.
func (b *book) duplicate() string {
	accounts, users := map[string]bool{}, map[cluster.AssociationKey]bool{}
	for i := range b.accounts {
		if name := b.accounts[i].Name; accounts[name] {
			return "account " + name + " appears twice"
		}
		accounts[b.accounts[i].Name] = true
	}
	for i := range b.users {
		if k := b.users[i].AssociationKey; users[k] {
			return k.String() + " appears twice"
		}
		users[b.users[i].AssociationKey] = true
	}
	return ""
}

// sortLike sorts what is also in another book in the order of that book, and the rest to the end,
// so that only changes are shown.
func (b *book) sortLike(other book) {
	accounts, users := map[string]int{}, map[cluster.AssociationKey]int{}
	for i := range other.accounts {
		accounts[other.accounts[i].Name] = i - len(other.accounts)
	}
	for i := range other.users {
		users[other.users[i].AssociationKey] = i - len(other.users)
	}
	slices.SortStableFunc(b.accounts, func(x, y cluster.Account) int { return accounts[x.Name] - accounts[y.Name] })
	slices.SortStableFunc(b.users, func(x, y cluster.Association) int {
		return users[x.AssociationKey] - users[y.AssociationKey]
	})
}

// editsFrom returns the edits that change one book to the other: accounts, then users, then
// deletions, descendants before ancestors.
func editsFrom(now, next book) []command.AccountEdit {
	var out []command.AccountEdit
	accounts, users := map[string]cluster.Account{}, map[cluster.AssociationKey]cluster.Association{}
	for _, a := range now.accounts {
		accounts[a.Name] = a
	}
	for _, u := range now.users {
		users[u.AssociationKey] = u
	}
	chosen := map[string]bool{} // users with a default account
	for _, u := range next.users {
		chosen[u.User] = chosen[u.User] || u.Default
	}
	for _, a := range next.accounts {
		if old, known := accounts[a.Name]; !known || !reflect.DeepEqual(old, a) {
			out = append(out, command.AccountEdit{
				Action: command.PutAccount, Account: a.Name, Parent: &a.Parent, Description: &a.Description, Shares: &a.Shares,
				Coordinators: &a.Coordinators, QOS: &a.QOS, DefaultQOS: &a.DefaultQOS, Set: a.Limits,
			})
		}
		delete(accounts, a.Name)
	}
	for _, u := range next.users {
		if old, known := users[u.AssociationKey]; !known || !reflect.DeepEqual(old, u) && (chosen[u.User] || old.Default != u.Default || !same(old, u)) {
			e := command.AccountEdit{
				Action: command.PutAccount, Account: u.Account, User: u.User, Partition: u.Partition, Shares: &u.Shares, QOS: &u.QOS, DefaultQOS: &u.DefaultQOS, Set: u.Limits,
			}
			if chosen[u.User] {
				e.Default = &u.Default
			}
			out = append(out, e)
		}
		delete(users, u.AssociationKey)
	}
	for _, u := range slices.Backward(now.users) {
		if _, gone := users[u.AssociationKey]; !gone {
			continue
		}
		if _, all := accounts[u.Account]; !all { // the others are deleted with their account
			out = append(out, command.AccountEdit{Action: command.DeleteAccount, Account: u.Account, User: u.User, Partition: u.Partition})
		}
	}
	for _, a := range slices.Backward(now.accounts) {
		if _, gone := accounts[a.Name]; gone && !strings.EqualFold(a.Name, cluster.RootAccount) {
			out = append(out, command.AccountEdit{Action: command.DeleteAccount, Account: a.Name})
		}
	}
	return out
}

// same compares users except for their default account.
func same(a, b cluster.Association) bool {
	a.Default, b.Default = false, false
	return reflect.DeepEqual(a, b)
}
