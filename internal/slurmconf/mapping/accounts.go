package mapping

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/greylag/greylag/internal/slurmconf"
	"github.com/greylag/greylag/pkg/cluster"
)

// tree collects accounts and users of a dump.
type tree struct {
	*mapper
	parent       string
	accounts     map[string]*cluster.Account // in the order of names
	order        []string
	users        map[cluster.AssociationKey]*cluster.Association
	keys         []cluster.AssociationKey
	defaults     map[string]string // user to default account
	coordinators map[string][]string
	at           map[string]setting // the lines of accounts
	admins       map[string]bool    // level and user, in the policy already
}

// accounts converts the lines of sacctmgr dump.
func (m *mapper) accounts() {
	if len(m.in.Dump) == 0 {
		return
	}
	t := &tree{
		mapper: m, parent: cluster.RootAccount, accounts: map[string]*cluster.Account{}, users: map[cluster.AssociationKey]*cluster.Association{},
		defaults: map[string]string{}, coordinators: map[string][]string{}, at: map[string]setting{}, admins: map[string]bool{},
	}
	for i := range m.in.Dump {
		e := &m.in.Dump[i]
		at := setting{e.Kind + " " + e.Name, "", e.File, e.Number}
		switch strings.ToLower(e.Kind) {
		case "cluster":
			if e.Name != m.out.Policy.Cluster {
				m.note(Check, at, "slurm.conf has the ClusterName %s", m.out.Policy.Cluster)
			}
			t.account(cluster.RootAccount, "", e, at)
		case "parent":
			t.parent = e.Name
			if e.Name != cluster.RootAccount && t.accounts[e.Name] == nil {
				m.note(Check, at, "no line defines this account: its sub-accounts and users are put under root")
				t.parent = cluster.RootAccount
			}
		case "account":
			t.account(e.Name, t.parent, e, at)
		case "user":
			t.user(e, at)
		default:
			m.note(Unknown, at, "unknown kind of line: ignored")
		}
	}
	t.finish()
}

// account converts an account, or for the name root the cluster.
func (t *tree) account(name, parent string, e *slurmconf.Entity, at setting) {
	if t.accounts[name] != nil {
		t.note(Check, at, "defined twice: the first line counts")
		return
	}
	a := &cluster.Account{Name: name, Parent: parent, Shares: 1}
	for _, p := range e.Pairs {
		s := setting{at.key + ": " + p.Key, p.Value, at.file, at.line}
		switch key := strings.ToLower(p.Key); key {
		case "description":
			if p.Value != name {
				a.Description = strings.Join(strings.FieldsFunc(p.Value, unicode.IsControl), " ")
			}
		case "organization", "classification":
		default:
			t.shared(s, key, p.Key, &a.Shares, &a.QOS, &a.DefaultQOS, &a.Limits)
		}
	}
	if name == cluster.RootAccount {
		a.Shares = 1
	}
	a.Limits = cluster.SortLimits(a.Limits)
	t.accounts[name], t.at[name] = a, at
	t.order = append(t.order, name)
}

// shared converts what accounts and users have in common.
func (t *tree) shared(s setting, key, written string, shares *int64, qos *[]string, preferred *string, limits *[]cluster.Limit) {
	switch key {
	case "fairshare", "shares":
		if strings.EqualFold(s.value, "parent") {
			*shares = cluster.SharesOfParent
			return
		}
		n, err := strconv.ParseInt(s.value, 10, 64)
		if err != nil || n < 0 || n > cluster.MaxShares {
			t.note(Check, s, "%q is not a number of shares: 1 is used", s.value)
			n = 1
		}
		*shares = n
	case "qos":
		for _, name := range words(s.value) {
			if strings.HasPrefix(name, "-") {
				t.note(Check, s, "%s: removed QOS are not converted", name)
				continue
			}
			*qos = append(*qos, strings.TrimLeft(name, "+="))
		}
	case "defaultqos", "defqos":
		*preferred = s.value
	case "priority":
		t.note(NotConverted, s, "accounts and users have no priority")
	default:
		if !off(s.value) || s.value == "0" {
			*limits = t.limit(s, written, *limits, false)
		}
	}
}

// user converts a user in the present account.
func (t *tree) user(e *slurmconf.Entity, at setting) {
	u := &cluster.Association{AssociationKey: cluster.AssociationKey{Account: t.parent, User: e.Name}, Shares: 1}
	for _, p := range e.Pairs {
		s := setting{at.key + ": " + p.Key, p.Value, at.file, at.line}
		switch key := strings.ToLower(p.Key); key {
		case "defaultaccount":
			t.defaults[e.Name] = p.Value
		case "partition":
			u.Partition = p.Value
		case "adminlevel":
			t.admin(s, e.Name)
		case "coordinator":
			for _, account := range words(p.Value) {
				t.coordinators[account] = append(t.coordinators[account], e.Name)
			}
		case "defaultwckey", "wckeys", "wckey":
		default:
			t.shared(s, key, p.Key, &u.Shares, &u.QOS, &u.DefaultQOS, &u.Limits)
		}
	}
	u.Limits = cluster.SortLimits(u.Limits)
	switch {
	case t.parent == cluster.RootAccount && e.Name == "root":
		return // an administrator anyway
	case t.users[u.AssociationKey] != nil:
		t.note(Check, at, "defined twice in account %s: the first line counts", t.parent)
		return
	}
	if _, known := t.out.Policy.Partition(u.Partition); u.Partition != "" && !known {
		t.note(Check, at, "no partition %q: left out", u.Partition)
		return
	}
	t.users[u.AssociationKey] = u
	t.keys = append(t.keys, u.AssociationKey)
}

func (t *tree) admin(s setting, user string) {
	p := &t.out.Policy
	list := &p.Operators
	switch strings.ToLower(s.value) {
	case "administrator", "admin":
		list = &p.Admins
	case "operator":
	default:
		return
	}
	if key := s.value + " " + user; user != "root" && !t.admins[key] {
		t.admins[key] = true
		*list = append(*list, user)
	}
}

// finish gives the accounts their coordinators and users their default account, and removes what
// the controllers would refuse.
func (t *tree) finish() {
	for account, users := range t.coordinators {
		if a := t.accounts[account]; a != nil && account != cluster.RootAccount {
			a.Coordinators = slices.Compact(slices.Sorted(slices.Values(users)))
		}
	}
	marked := map[string]bool{}
	for _, bare := range []bool{true, false} { // rather an association without a partition
		for _, key := range t.keys {
			if !marked[key.User] && t.defaults[key.User] == key.Account && (key.Partition == "") == bare {
				t.users[key].Default, marked[key.User] = true, true
			}
		}
	}
	for _, name := range t.order {
		a := t.accounts[name]
		if a.Parent != "" && a.Parent != cluster.RootAccount && t.accounts[a.Parent] == nil {
			a.Parent = cluster.RootAccount // the account above is left out
		}
		if a.DefaultQOS != "" && !slices.Contains(t.granted(name, a.QOS), a.DefaultQOS) {
			t.note(Check, t.at[name], "the default QOS %s is not among its QOS: left out", a.DefaultQOS)
			a.DefaultQOS = ""
		}
		if err := a.Validate(); err != nil {
			t.note(Check, t.at[name], "left out: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
			delete(t.accounts, name)
			continue
		}
		if name != cluster.RootAccount || len(a.QOS) > 0 || a.DefaultQOS != "" || len(a.Limits) > 0 {
			t.out.Accounts = append(t.out.Accounts, *a)
		}
	}
	for _, key := range t.keys {
		u := t.users[key]
		at := setting{key: key.String()}
		if u.DefaultQOS != "" && !slices.Contains(t.granted(key.Account, u.QOS), u.DefaultQOS) {
			t.note(Check, at, "the default QOS %s is not among its QOS: left out", u.DefaultQOS)
			u.DefaultQOS = ""
		}
		if key.Account != cluster.RootAccount && t.accounts[key.Account] == nil {
			t.note(Check, at, "left out, since account %s was left out", key.Account)
			continue
		}
		if err := u.Validate(); err != nil {
			t.note(Check, at, "left out: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		t.out.Users = append(t.out.Users, *u)
	}
}

// granted returns the QOS that an account with a list of its own may use: that list, or that of the
// nearest account above with one.
func (t *tree) granted(account string, list []string) []string {
	for range cluster.MaxAccountDepth {
		a := t.accounts[account]
		if len(list) > 0 || a == nil {
			break
		}
		list, account = a.QOS, a.Parent
	}
	if len(list) == 0 {
		return t.out.Policy.OpenQOS()
	}
	return list
}
