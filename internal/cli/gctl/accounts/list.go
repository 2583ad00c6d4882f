package accounts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/pkg/cluster"
)

// accountListing selects the accounts and users of gctl account list, and the format.
type accountListing struct {
	names, users []string
	withUsers    bool
	format       string
	form         tool.TableForm
}

func (t commands) accountList() *cobra.Command {
	l := &accountListing{}
	c := &cobra.Command{
		Use: "list [NAME...]", Short: "List accounts as a tree", Aliases: []string{"show"},
		Long: `Prints accounts as a tree; --users includes users. With --format, -p or -P
prints one line per account and user, like sacctmgr show associations;
--format accepts
` + strings.Join(accountColumnNames(), ",") + `
and the limit names. sacctmgr syntax also works: gctl account show user ada,
gctl account show associations account=physics format=user,share,maxjobs.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			if err := l.read(args); err != nil {
				return err
			}
			request := &greylagv1.ListAccountsRequest{Names: l.names, Users: l.withUsers || len(l.users) > 0 || t.JSON}
			if len(l.users) == 1 {
				request.User = l.users[0]
			}
			answer, err := c.Accounts().ListAccounts(ctx, request)
			if err != nil {
				return err
			}
			answer.Users = slices.DeleteFunc(answer.Users, func(u *greylagv1.AccountUser) bool {
				return len(l.users) > 0 && !slices.Contains(l.users, u.User)
			})
			if t.JSON {
				return t.WriteJSON(accountsOf(answer))
			}
			if len(answer.Accounts) == 0 {
				t.Note("no accounts are defined: all users may submit, with equal shares")
				return nil
			}
			return t.printAccounts(answer, l)
		}),
	}
	f := c.Flags()
	f.BoolVarP(&l.withUsers, "users", "u", false, "with their users")
	f.StringSliceVar(&l.users, "user", nil, "only these `USERS` and their accounts")
	f.StringVar(&l.format, "format", "", "these `COLUMNS`, one line per account and user")
	l.form.AddFlags(c)
	return c
}

// read reads the arguments after list or show, including sacctmgr's.
func (l *accountListing) read(args []string) error {
	entity := ""
	if len(args) > 0 {
		if entity = entityOf(args[0]); entity != "" {
			args = args[1:]
		} else if advice := notAccounts[strings.ToLower(args[0])]; advice != "" {
			return &ui.UsageError{Problem: fmt.Sprintf("lists accounts and users, not %s", args[0]), Advice: advice}
		}
	}
	l.withUsers = l.withUsers || entity == "user" || entity == "association"
	for _, word := range args {
		key, value, pair := strings.Cut(word, "=")
		switch key = strings.ToLower(key); {
		case !pair && slices.Contains([]string{"where", "tree", "withassoc", "withcoordinator"}, key):
			l.withUsers = l.withUsers || key == "withassoc"
		case !pair && entity == "user", key == "user", key == "users", key == "name" && entity == "user":
			if !pair {
				value = word
			}
			l.users = append(l.users, split(value)...)
		case !pair:
			l.names = append(l.names, split(word)...)
		case key == "account", key == "accounts", key == "name", key == "names":
			l.names = append(l.names, split(value)...)
		case key == "format":
			l.format = value
		default:
			return &ui.UsageError{Problem: fmt.Sprintf("accounts cannot be selected by %q", word), Advice: "write account=NAME, user=NAME or format=COLUMNS"}
		}
	}
	return nil
}

// notAccounts are other entities of sacctmgr, and the command for each.
var notAccounts = map[string]string{
	"qos": "gctl show policy has the qos", "tres": "gctl info lists what the nodes have", "cluster": "gctl cluster status", "clusters": "gctl cluster status",
	"event": "gctl audit", "events": "gctl audit", "transaction": "gctl audit", "transactions": "gctl audit", "reservation": "gctl show reservations",
	"reservations": "gctl show reservations", "runawayjobs": "there are none: jobs and their ends are in one log", "stats": "gctl cluster status",
}

// printAccounts prints the selected accounts and users.
func (t commands) printAccounts(a *greylagv1.ListAccountsResponse, l *accountListing) error {
	if l.format == "" && !l.form.Parsable && !l.form.Parsable2 {
		return t.WriteTableAs(accountTable(a, len(l.users) > 0), l.form)
	}
	table, err := accountRows(a, l.format, len(l.users) > 0)
	if err != nil {
		return err
	}
	return t.WriteTableAs(table, l.form)
}

// accountColumn is a property of an account, and of a user of one; nil: not applicable.
type accountColumn struct {
	name    string
	account func(*greylagv1.Account) string
	user    func(*greylagv1.AccountUser) string
}

func accountColumns() []accountColumn {
	return []accountColumn{
		{"account", func(a *greylagv1.Account) string { return a.Name }, func(u *greylagv1.AccountUser) string { return u.Account }},
		{"parent", func(a *greylagv1.Account) string { return a.Parent }, nil},
		{"user", nil, func(u *greylagv1.AccountUser) string { return u.User }},
		{"partition", nil, func(u *greylagv1.AccountUser) string { return u.Partition }},
		{"share", func(a *greylagv1.Account) string { return sharesText(a.Shares) }, func(u *greylagv1.AccountUser) string { return sharesText(u.Shares) }},
		{"default", nil, func(u *greylagv1.AccountUser) string { return defaultText(u) }},
		{"qos", func(a *greylagv1.Account) string { return strings.Join(a.Qos, ",") }, func(u *greylagv1.AccountUser) string { return strings.Join(u.Qos, ",") }},
		{"defaultqos", func(a *greylagv1.Account) string { return a.DefaultQos }, func(u *greylagv1.AccountUser) string { return u.DefaultQos }},
		{"coordinators", func(a *greylagv1.Account) string { return strings.Join(a.Coordinators, ",") }, nil},
		{"description", func(a *greylagv1.Account) string { return a.Description }, nil},
		{"limits", func(a *greylagv1.Account) string { return strings.Join(a.Limits, " ") }, func(u *greylagv1.AccountUser) string { return strings.Join(u.Limits, " ") }},
	}
}

func accountColumnNames() (names []string) {
	for _, c := range accountColumns() {
		names = append(names, c.name)
	}
	return names
}

// accountColumnNamed finds a column by its name here or in sacctmgr.
func accountColumnNamed(word string) (accountColumn, error) {
	name, _, _ := strings.Cut(strings.ToLower(word), "%")
	same := map[string]string{
		"parentname": "parent", "shares": "share", "fairshare": "share", "defaultaccount": "default", "defaultacct": "default", "def": "default",
		"qoslevel": "qos", "coord": "coordinators", "descr": "description", "desc": "description", "acct": "account",
	}
	if first, ok := same[name]; ok {
		name = first
	}
	all := accountColumns()
	if i := slices.IndexFunc(all, func(c accountColumn) bool { return c.name == name }); i >= 0 {
		return all[i], nil
	}
	kind, resource, known := cluster.ParseLimitKind(name)
	if !known {
		return accountColumn{}, &ui.UsageError{Problem: fmt.Sprintf("no column %q", word), Advice: "columns: " + strings.Join(accountColumnNames(), ",") + ", and limits such as GrpTRES"}
	}
	of := func(limits []string) string { return limitText(limits, kind, resource) }
	return accountColumn{word, func(a *greylagv1.Account) string { return of(a.Limits) }, func(u *greylagv1.AccountUser) string { return of(u.Limits) }}, nil
}

// limitText returns the limits of a kind, on a resource if one is named.
func limitText(limits []string, kind cluster.LimitKind, resource string) string {
	var values []string
	for _, l := range limits {
		name, value, _ := strings.Cut(l, "=")
		if name != kind.String() {
			continue
		}
		if resource == "" {
			values = append(values, value)
		} else if amount, ok := strings.CutPrefix(value, resource+"="); ok {
			values = append(values, amount)
		}
	}
	return strings.Join(values, ",")
}

// accountRows returns a line for each account and for each user of it; only users if only is set.
func accountRows(a *greylagv1.ListAccountsResponse, format string, only bool) (ui.Table, error) {
	table := ui.Table{}
	var columns []accountColumn
	if format == "" {
		format = strings.Join(accountColumnNames(), ",")
	}
	for _, word := range split(format) {
		c, err := accountColumnNamed(word)
		if err != nil {
			return table, err
		}
		columns = append(columns, c)
		table.Head = append(table.Head, strings.ToUpper(c.name))
	}
	users := usersByAccount(a)
	for _, x := range a.Accounts {
		if !only {
			table.Rows = append(table.Rows, cells(columns, func(c *accountColumn) string {
				if c.account == nil {
					return ""
				}
				return c.account(x)
			}))
		}
		for _, u := range users[x.Name] {
			table.Rows = append(table.Rows, cells(columns, func(c *accountColumn) string {
				if c.user == nil {
					return ""
				}
				return c.user(u)
			}))
		}
	}
	return table, nil
}

func cells(columns []accountColumn, text func(*accountColumn) string) []string {
	row := make([]string, len(columns))
	for i := range columns {
		row[i] = text(&columns[i])
	}
	return row
}

// defaultText returns "yes" for the account of the user's jobs that name none.
func defaultText(u *greylagv1.AccountUser) string {
	if u.Default {
		return "yes"
	}
	return ""
}

func usersByAccount(a *greylagv1.ListAccountsResponse) map[string][]*greylagv1.AccountUser {
	users := map[string][]*greylagv1.AccountUser{}
	for _, u := range a.Users {
		users[u.Account] = append(users[u.Account], u)
	}
	return users
}

// accountTable returns accounts as a tree, each with its users under it; or only those with users.
func accountTable(a *greylagv1.ListAccountsResponse, only bool) ui.Table {
	table := ui.Table{Head: []string{"ACCOUNT", "USER", "SHARES", "DEFAULT", "QOS", "COORDINATORS", "LIMITS"}, Right: "llrllll", Wide: []int{5, 4}}
	users := usersByAccount(a)
	for _, x := range a.Accounts {
		if only && len(users[x.Name]) == 0 {
			continue
		}
		indent := strings.Repeat("  ", int(x.Depth))
		table.Rows = append(table.Rows, withLimits(x.Limits, indent+x.Name, "", sharesText(x.Shares), "", qosText(x.Qos, x.DefaultQos), strings.Join(x.Coordinators, ","))...)
		for _, u := range users[x.Name] {
			table.Rows = append(table.Rows, withLimits(u.Limits, indent+"  "+x.Name, userText(u.User, u.Partition), sharesText(u.Shares), defaultText(u), qosText(u.Qos, u.DefaultQos), "")...)
		}
	}
	return table
}

// sharesText formats shares, or that they are the parent's.
func sharesText(n int64) string {
	if n == cluster.SharesOfParent {
		return "parent"
	}
	return strconv.FormatInt(n, 10)
}

// userText formats a user, and after @ the partition of the association.
func userText(user, partition string) string {
	if partition == "" {
		return user
	}
	return user + "@" + partition
}

// withLimits returns a row with one limit, and a further row for each other.
func withLimits(limits []string, cells ...string) [][]string {
	if len(limits) == 0 {
		limits = []string{""}
	}
	var rows [][]string
	for _, l := range limits {
		rows = append(rows, append(slices.Clone(cells), l))
		cells = make([]string, len(cells))
	}
	return rows
}

// qosText formats a list of QOS, the default one with a star. A default that is not in the list is
// labelled: alone it restricts nothing.
func qosText(all []string, preferred string) string {
	out := slices.Clone(all)
	if i := slices.Index(all, preferred); i >= 0 {
		out[i] += "*"
	} else if preferred != "" {
		out = append(out, "default "+preferred)
	}
	return strings.Join(out, ",")
}
