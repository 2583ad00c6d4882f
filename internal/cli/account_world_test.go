package cli_test

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// accountBook answers about accounts with what a page has loaded.
type accountBook struct {
	greylagv1connect.UnimplementedAccountServiceHandler
	w          *world
	accounts   greylagv1.AccountsResponse
	shares     greylagv1.SharesResponse
	priorities greylagv1.PrioritiesResponse
	file       string
}

func (b *accountBook) Accounts(_ context.Context, r *greylagv1.AccountsRequest) (*greylagv1.AccountsResponse, error) {
	b.w.note(r)
	out := &greylagv1.AccountsResponse{Accounts: b.accounts.Accounts, Version: 7}
	for _, u := range b.accounts.Users {
		if r.Users && (r.User == "" || r.User == u.User) {
			out.Users = append(out.Users, u)
		}
	}
	return out, nil
}

func (b *accountBook) EditAccounts(_ context.Context, r *greylagv1.EditAccountsRequest) (*greylagv1.EditAccountsResponse, error) {
	b.w.note(r)
	return &greylagv1.EditAccountsResponse{Version: 8}, nil
}

func (b *accountBook) DumpAccounts(context.Context, *greylagv1.DumpAccountsRequest) (*greylagv1.DumpAccountsResponse, error) {
	return &greylagv1.DumpAccountsResponse{Toml: b.file, Version: 7}, nil
}

func (b *accountBook) LoadAccounts(_ context.Context, r *greylagv1.LoadAccountsRequest) (*greylagv1.LoadAccountsResponse, error) {
	if r.Toml == b.file {
		return &greylagv1.LoadAccountsResponse{Version: 7}, nil
	}
	diff := "-" + b.file + "+" + r.Toml
	if !r.DryRun {
		b.file = r.Toml
	}
	return &greylagv1.LoadAccountsResponse{Version: 8, Diff: diff}, nil
}

func (b *accountBook) Shares(_ context.Context, r *greylagv1.SharesRequest) (*greylagv1.SharesResponse, error) {
	b.w.note(r)
	return &b.shares, nil
}

func (b *accountBook) Priorities(_ context.Context, r *greylagv1.PrioritiesRequest) (*greylagv1.PrioritiesResponse, error) {
	b.w.note(r)
	return &b.priorities, nil
}
