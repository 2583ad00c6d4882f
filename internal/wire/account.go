package wire

import (
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxEdits bounds the edits of one request.
const maxEdits = 10_000

// ReadAccountEdits reads edits of accounts.
func ReadAccountEdits(edits []*greylagv1.AccountEdit) ([]command.AccountEdit, error) {
	if len(edits) > maxEdits {
		return nil, refuse("%d changes of accounts at once, at most %d", len(edits), maxEdits)
	}
	out := make([]command.AccountEdit, 0, len(edits))
	for i, e := range edits {
		if e.GetAction() == 0 {
			return nil, Unset(fmt.Sprintf("edits[%d].action", i), e.GetAction())
		}
		edit, err := readAccountEdit(e)
		if err != nil {
			return nil, err
		}
		out = append(out, edit)
	}
	return out, nil
}

func readAccountEdit(e *greylagv1.AccountEdit) (command.AccountEdit, error) {
	out := command.AccountEdit{Action: command.AccountAction(e.GetAction()), Account: e.GetAccount(), User: e.GetUser(), Partition: e.GetPartition()}
	if e != nil { // absent fields stay nil
		out.Parent, out.Description, out.Shares = e.Parent, e.Description, e.Shares
		out.Default, out.DefaultQOS = e.Default, e.DefaultQos
	}
	if out.Account == "" {
		return out, refuse("no account given")
	}
	out.Coordinators, out.QOS = wordsOf(e.GetCoordinators()), wordsOf(e.GetQos())
	for _, text := range e.GetLimits() {
		set, gone, _, err := cluster.ParseLimits(text)
		if err != nil {
			return out, refuse("%s", err)
		}
		out.Set, out.Unset = append(out.Set, set...), append(out.Unset, gone...)
	}
	return out, nil
}

func wordsOf(list *greylagv1.StringList) *[]string {
	if list == nil {
		return nil
	}
	words := list.GetAll()
	return &words
}

// Account writes an account.
func Account(a *cluster.Account, depth int32) *greylagv1.Account {
	return &greylagv1.Account{
		Name: a.Name, Parent: a.Parent, Description: a.Description, Shares: a.Shares, Coordinators: a.Coordinators,
		Qos: a.QOS, DefaultQos: a.DefaultQOS, Limits: limits(a.Limits), Depth: depth,
	}
}

// AccountUser writes a user of an account.
func AccountUser(u *cluster.Association) *greylagv1.AccountUser {
	return &greylagv1.AccountUser{
		Account: u.Account, User: u.User, Partition: u.Partition, Shares: u.Shares, Default: u.Default,
		Qos: u.QOS, DefaultQos: u.DefaultQOS, Limits: limits(u.Limits),
	}
}

func limits(all []cluster.Limit) []string {
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].String()
	}
	return out
}
