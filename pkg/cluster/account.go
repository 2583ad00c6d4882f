package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInvalidAccount is wrapped by every error about an account or an association.
var ErrInvalidAccount = errors.New("invalid account")

// RootAccount is the root of the account tree. It need not be defined; its limits apply to the
// whole cluster.
const RootAccount = "root"

// Bounds of accounts.
const (
	MaxShares       = 1 << 31
	MaxAccounts     = 1 << 20
	MaxAccountDepth = 32
	maxOfAccount    = 1000 // coordinators, QOS or limits of one account
	maxDescription  = 1024
)

// SharesOfParent means no shares of its own (FairShare=parent in sacctmgr): a user ranks as the
// account does, and the children of an account compete as if they were children of its parent.
const SharesOfParent = -1

// Account is a node of the tree of organisations, projects and groups that share the cluster. Its
// users are attached to it as associations.
type Account struct {
	Name         string
	Parent       string // another account; RootAccount at the top level, "" for RootAccount itself
	Description  string
	Shares       int64    // among its siblings, or SharesOfParent
	Coordinators []string // users who may change the users of this account and of its descendants
	QOS          []string // granted to its jobs; empty means inherited from the parent
	DefaultQOS   string   // "" means inherited from the parent, at the root from the policy
	Limits       []Limit  // by kind and resource
}

// AssociationKey names a user in an account, optionally in one partition.
type AssociationKey struct {
	Account   string
	User      string
	Partition string // "": all partitions without an association of their own
}

// String returns the key for messages.
func (k AssociationKey) String() string {
	text := "user " + k.User + " in account " + k.Account
	if k.Partition != "" {
		text += " on partition " + k.Partition
	}
	return text
}

// WithoutPartition returns the key of the same user and account without a partition.
func (k AssociationKey) WithoutPartition() AssociationKey {
	return AssociationKey{Account: k.Account, User: k.User}
}

// Association is a user's place in an account: the right to charge it, with its own shares and
// limits. An association with a partition applies to jobs whose first partition it is, instead of
// the one without.
type Association struct {
	AssociationKey
	Shares     int64
	Default    bool     // the account of the user's jobs that name none; one association of a user has it
	QOS        []string // empty means inherited from the account
	DefaultQOS string
	Limits     []Limit
	Ceilings   []Limit // those of Limits that an operator set: coordinators may not lift them
	// Delegated reports that a coordinator created it for a partition. Settings that an operator
	// makes on the association without a partition apply to it too.
	Delegated bool
}

// Validate checks an account by itself, sorts its lists and reports every error.
func (a *Account) Validate() error {
	var faults []error
	fault := faultIn(&faults, "account %q", a.Name)
	checkWord(fault, "account", a.Name)
	switch {
	case (a.Name == RootAccount) != (a.Parent == ""):
		fault("its parent is %q", a.Parent)
	case a.Name == a.Parent:
		fault("it cannot be its own parent")
	}
	checkName(fault, "parent", a.Parent, maxName)
	if len(a.Description) > maxDescription { // the state checks the references: it was less strict once
		fault("the description has %d bytes, at most %d", len(a.Description), maxDescription)
	}
	checkSharing(fault, a.Shares, &a.QOS, a.DefaultQOS, &a.Limits)
	if a.Name == RootAccount && a.Shares == SharesOfParent {
		fault("nothing is above it whose shares it could have")
	}
	a.Coordinators = sorted(a.Coordinators)
	checkUsers(fault, a.Coordinators)
	return errors.Join(faults...)
}

// Validate checks an association by itself, sorts its lists and reports every error.
func (a *Association) Validate() error {
	var faults []error
	fault := faultIn(&faults, "user %q of account %q", a.User, a.Account)
	checkWord(fault, "account", a.Account)
	checkWord(fault, "user", a.User)
	if a.Partition != "" {
		checkWord(fault, "partition", a.Partition)
	}
	checkSharing(fault, a.Shares, &a.QOS, a.DefaultQOS, &a.Limits)
	a.Ceilings = SortLimits(a.Ceilings)
	checkLimits(fault, a.Ceilings, false)
	return errors.Join(faults...)
}

// faultIn collects the errors of one account or association.
func faultIn(faults *[]error, of string, args ...any) func(string, ...any) {
	return func(format string, more ...any) {
		*faults = append(*faults, fmt.Errorf("%w: %s: %s", ErrInvalidAccount, fmt.Sprintf(of, args...), fmt.Sprintf(format, more...)))
	}
}

func checkUsers(fault func(string, ...any), users []string) {
	if len(users) > maxOfAccount {
		fault("%d coordinators, at most %d", len(users), maxOfAccount)
	}
	for _, u := range users {
		checkWord(fault, "coordinator", u)
	}
}

// checkSharing checks the fields that accounts and associations share.
func checkSharing(fault func(string, ...any), shares int64, qos *[]string, defaultQOS string, limits *[]Limit) {
	if (shares < 0 || shares > MaxShares) && shares != SharesOfParent {
		fault("%d shares, want 0 to %d, or the parent's", shares, MaxShares)
	}
	*qos = sorted(*qos)
	if len(*qos) > maxOfAccount {
		fault("%d qos, at most %d", len(*qos), maxOfAccount)
	}
	for _, q := range *qos {
		checkWord(fault, "qos", q)
	}
	checkName(fault, "default qos", defaultQOS, maxName)
	if len(*qos) > 0 && defaultQOS != "" && !slices.Contains(*qos, defaultQOS) {
		fault("the default qos %q is not among its qos", defaultQOS)
	}
	*limits = SortLimits(*limits)
	checkLimits(fault, *limits, false)
}

// sorted returns the list sorted and without duplicates; nil when it is empty.
func sorted(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(words)))
}
