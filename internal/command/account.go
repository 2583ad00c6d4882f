package command

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// AccountAction is what one edit does.
type AccountAction uint8

// The actions.
const (
	AddAccount    AccountAction = iota + 1 // it must not exist
	ModifyAccount                          // it must exist
	DeleteAccount                          // with all its users; nothing may be below it
	PutAccount                             // whether it exists or not, from the edit alone
)

// AccountEdit changes one account, or with User one user of it, and with Partition that
// user's association for one partition. A nil field is left
// as it is, or of something new as it is at first: one share, and no more.
type AccountEdit struct {
	Action      AccountAction
	Account     string
	User        string
	Parent      *string
	Description *string
	Shares      *int64
	Default     *bool // of a user: whether this is their default account
	// Coordinators and QOS replace the whole list.
	Coordinators *[]string
	QOS          *[]string
	DefaultQOS   *string
	Set          []cluster.Limit
	Unset        []cluster.Limit // their values do not matter
	Partition    string
}

// EditAccounts changes accounts and their users: all edits in order, or none.
type EditAccounts struct {
	Request RequestID
	Actor   Actor
	Edits   []AccountEdit
	Expect  uint64 // version of the accounts that must be in force; 0 means any
}

func (*EditAccounts) kind() kind { return kindEditAccounts }

func editAccountsFields(c *codec.Coder, x *EditAccounts) {
	requestIDFields(c, &x.Request)
	codec.Record(c, &x.Actor, actorFields)
	codec.List(c, &x.Edits, accountEdit)
	codec.Uint(c, &x.Expect)
}

func accountEdit(c *codec.Coder, x *AccountEdit) { codec.Record(c, x, accountEditFields) }

func accountEditFields(c *codec.Coder, x *AccountEdit) {
	codec.Uint(c, &x.Action)
	codec.String(c, &x.Account)
	codec.String(c, &x.User)
	codec.Optional(c, &x.Parent, codec.String)
	codec.Optional(c, &x.Description, codec.String)
	codec.Optional(c, &x.Shares, codec.Int[int64])
	codec.Optional(c, &x.Default, codec.Bool)
	codec.Optional(c, &x.Coordinators, wordList)
	codec.Optional(c, &x.QOS, wordList)
	codec.Optional(c, &x.DefaultQOS, codec.String)
	codec.List(c, &x.Set, limitFields)
	codec.List(c, &x.Unset, limitFields)
	codec.String(c, &x.Partition)
}

func wordList(c *codec.Coder, x *[]string) { codec.List(c, x, codec.String) }

func limitFields(c *codec.Coder, x *cluster.Limit) {
	codec.Uint(c, &x.Kind)
	codec.String(c, &x.Resource)
	codec.Int(c, &x.Value)
}

// AccountFields are those of an account.
func AccountFields(c *codec.Coder, x *cluster.Account) {
	codec.String(c, &x.Name)
	codec.String(c, &x.Parent)
	codec.String(c, &x.Description)
	codec.Int(c, &x.Shares)
	codec.List(c, &x.Coordinators, codec.String)
	codec.List(c, &x.QOS, codec.String)
	codec.String(c, &x.DefaultQOS)
	codec.List(c, &x.Limits, limitFields)
}

// AssociationFields are those of a user's place in an account.
func AssociationFields(c *codec.Coder, x *cluster.Association) {
	associationKey(c, &x.AssociationKey)
	codec.Int(c, &x.Shares)
	codec.Bool(c, &x.Default)
	codec.List(c, &x.QOS, codec.String)
	codec.String(c, &x.DefaultQOS)
	codec.List(c, &x.Limits, limitFields)
	codec.List(c, &x.Ceilings, limitFields)
	codec.Bool(c, &x.Delegated)
}

func associationKey(c *codec.Coder, x *cluster.AssociationKey) {
	codec.String(c, &x.Account)
	codec.String(c, &x.User)
	codec.String(c, &x.Partition)
}

// UsageFields are those of what a user of an account has used.
func UsageFields(c *codec.Coder, x *cluster.AccountUsage) {
	associationKey(c, &x.AssociationKey)
	usage(c, &x.Billed)
	codec.List(c, &x.Raw, resourceUsage)
}

func usage(c *codec.Coder, x *cluster.Usage) {
	codec.Int(c, &x.Value)
	codec.Uint(c, &x.Part)
	codec.Int(c, &x.Rate)
	codec.Int(c, &x.At)
}

func resourceUsage(c *codec.Coder, x *cluster.ResourceUsage) {
	codec.String(c, &x.Resource)
	usage(c, &x.Usage)
}

// ChargeFields are those of what a running job counts for.
func ChargeFields(c *codec.Coder, x *cluster.Charge) {
	associationKey(c, &x.AssociationKey)
	codec.String(c, &x.QOS)
	codec.Int(c, &x.Rate)
	codec.List(c, &x.Amounts, amount)
}

func amount(c *codec.Coder, x *cluster.Amount) {
	codec.String(c, &x.Resource)
	codec.Int(c, &x.Count)
}
