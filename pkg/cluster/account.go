package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// ErrInvalidAccount is wrapped by every fault of an account or an association.
var ErrInvalidAccount = errors.New("invalid account")

// RootAccount is the account that all others are below. It need not be defined; to
// define it gives the whole cluster limits.
const RootAccount = "root"

// Bounds of accounts.
const (
	MaxShares       = 1 << 31
	MaxAccounts     = 1 << 20
	MaxAccountDepth = 32
	maxOfAccount    = 1000 // coordinators, QOS or limits of one account
	maxDescription  = 1024
)

// SharesOfParent stands for no shares of one's own, FairShare=parent in sacctmgr: a
// user ranks as the account does, and what is below an account competes as if that
// were not there.
const SharesOfParent = -1

// Account is a node of the tree of organisations, projects and groups that share
// the cluster. Its users are below it as associations.
type Account struct {
	Name         string
	Parent       string // another account; RootAccount for those at the top, "" for RootAccount itself
	Description  string
	Shares       int64    // among its siblings, or SharesOfParent
	Coordinators []string // users who may change the users of this account and of those below
	QOS          []string // which its jobs may have; empty means what the parent has
	DefaultQOS   string   // "" means the parent's, and at last the policy's
	Limits       []Limit  // by kind and resource
}

// AssociationKey names a user in an account, or there in one partition alone.
type AssociationKey struct {
	Account   string
	User      string
	Partition string // "": all for which the user has none of its own there
}

// String is for messages.
func (k AssociationKey) String() string {
	text := "user " + k.User + " in account " + k.Account
	if k.Partition != "" {
		text += " on partition " + k.Partition
	}
	return text
}

// Everywhere is the key of the same user in the account, without a partition.
func (k AssociationKey) Everywhere() AssociationKey {
	return AssociationKey{Account: k.Account, User: k.User}
}

// Association is a user's place in an account: the right to charge it, with shares
// and limits of their own. One with a partition is for the jobs whose first partition
// it is, instead of the one without.
type Association struct {
	AssociationKey
	Shares     int64
	Default    bool     // the account of the user's jobs that name none; one of a user's is
	QOS        []string // empty means what the account has
	DefaultQOS string
	Limits     []Limit
	Ceilings   []Limit // of Limits those that an operator set: coordinators may not lift them
	// Delegated says that a coordinator made it, for a partition: what an operator sets of the
	// one without a partition holds for it too.
	Delegated bool
}

// Validate checks an account by itself, sorts its lists and reports every fault.
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
	if len(a.Description) > maxDescription { // what it may hold the state says: it was less strict once
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

// Validate checks an association by itself, sorts its lists and reports every fault.
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

// faultIn gathers faults of one thing.
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

// checkSharing checks what accounts and associations have in common.
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

// sorted is a list in order, each word once; nil when it is empty.
func sorted(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(words)))
}
