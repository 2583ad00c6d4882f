package cli_test

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/api/gen/greylag/v1/greylagv1connect"
)

// accountBook answers calls about accounts with the data of a page.
type accountBook struct {
	greylagv1connect.UnimplementedAccountServiceHandler
	w          *world
	accounts   greylagv1.ListAccountsResponse
	shares     greylagv1.ListSharesResponse
	priorities greylagv1.ListPrioritiesResponse
	file       string
}

func (b *accountBook) ListAccounts(_ context.Context, r *greylagv1.ListAccountsRequest) (*greylagv1.ListAccountsResponse, error) {
	b.w.note(r)
	out := &greylagv1.ListAccountsResponse{Accounts: b.accounts.Accounts, Version: 7}
	for _, u := range b.accounts.Users {
		if r.Users && (r.User == "" || r.User == u.User) {
			out.Users = append(out.Users, u)
		}
	}
	return out, nil
}

func (b *accountBook) UpdateAccounts(_ context.Context, r *greylagv1.UpdateAccountsRequest) (*greylagv1.UpdateAccountsResponse, error) {
	b.w.note(r)
	return &greylagv1.UpdateAccountsResponse{Version: 8}, nil
}

func (b *accountBook) ExportAccounts(context.Context, *greylagv1.ExportAccountsRequest) (*greylagv1.ExportAccountsResponse, error) {
	return &greylagv1.ExportAccountsResponse{Toml: b.file, Version: 7}, nil
}

func (b *accountBook) ImportAccounts(_ context.Context, r *greylagv1.ImportAccountsRequest) (*greylagv1.ImportAccountsResponse, error) {
	if r.Toml == b.file {
		return &greylagv1.ImportAccountsResponse{Version: 7}, nil
	}
	diff := "-" + b.file + "+" + r.Toml
	if !r.DryRun {
		b.file = r.Toml
	}
	return &greylagv1.ImportAccountsResponse{Version: 8, Diff: diff}, nil
}

func (b *accountBook) ListShares(_ context.Context, r *greylagv1.ListSharesRequest) (*greylagv1.ListSharesResponse, error) {
	b.w.note(r)
	return &b.shares, nil
}

func (b *accountBook) ListPriorities(_ context.Context, r *greylagv1.ListPrioritiesRequest) (*greylagv1.ListPrioritiesResponse, error) {
	b.w.note(r)
	return &b.priorities, nil
}
