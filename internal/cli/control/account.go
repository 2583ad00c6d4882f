package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

func (t *tool) account() *cobra.Command {
	c := &cobra.Command{
		Use: "account", Short: "Accounts, their users and limits", GroupID: people, Args: choose,
		Long: "Accounts are the tree of organisations and projects that share the cluster. Each\nhas shares among its siblings, limits, and users, who have shares and limits of\ntheir own. Without accounts everybody may submit and all users share alike.\n\n" + accountKeys,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(t.accountEdit("add", "NAME [user=U[,U...]] [KEY=VALUE...]", "Make an account, or put users into one"))
	c.AddCommand(t.accountEdit("modify", "NAME [user=U[,U...]] KEY=VALUE...", "Change an account, or users of one"))
	c.AddCommand(t.accountEdit("delete", "NAME [user=U[,U...]]", "Delete an account with its users, or users of one"))
	c.AddCommand(t.accountMove(), t.accountList(), t.accountDump(), t.accountLoad())
	return c
}

const accountKeys = `Keys:
  parent=NAME             the account above; root is the top
  shares=N|parent         among its siblings; 1 at first (also: fairshare); parent:
                          none of its own, but what the account above has
  user=U[,U...]           these users of the account, not the account itself
  partition=P[,P...]      of these users what holds in these partitions alone
  default=yes|no          of a user: the account of jobs that name none
  coordinators=U[,U...]   who may change the account's users and those below
  qos=Q[,Q...] defaultqos=Q
  description=TEXT
Limits, in sacctmgr's words; -1 takes one away:
  GrpTRES GrpTRESMins GrpTRESRunMins MaxTRESPerJob MaxTRESMinsPerJob
                          such as GrpTRES=gpu=64,gpu:h100=32,cpu=512,mem=4T,node=8
  GrpJobs GrpSubmitJobs MaxJobs MaxSubmitJobs
                          such as MaxJobs=10
  GrpWall MaxWall         such as MaxWall=2-00:00:00
Grp limits are for all jobs of an account and those below together, Max limits for
each job, or with Jobs for each user.
`

// accountEdit is add, modify or delete.
func (t *tool) accountEdit(action, use, short string) *cobra.Command {
	return &cobra.Command{
		Use: action + " " + use, Short: short, Long: short + ".\n\n" + accountKeys, Args: cobra.MinimumNArgs(1),
		RunE: t.on(func(ctx context.Context, c cli.Cluster, args []string) error {
			edits, err := accountEdits(action, args)
			if err != nil {
				return err
			}
			return t.sendEdits(ctx, c, edits)
		}),
	}
}

func (t *tool) sendEdits(ctx context.Context, c cli.Cluster, edits []*greylagv1.AccountEdit) error {
	answer, err := c.Accounts().EditAccounts(ctx, &greylagv1.EditAccountsRequest{RequestId: client.NewRequestID(), Edits: edits})
	if err != nil {
		return err
	}
	if t.json {
		return t.WriteJSON(struct {
			Version uint64   `json:"version"`
			Notes   []string `json:"notes,omitempty"`
		}{answer.Version, answer.Notes})
	}
	for _, e := range edits {
		what := "account " + e.Account
		if e.User != "" {
			what = e.User + " in " + what
		}
		if e.Partition != "" {
			what += " on partition " + e.Partition
		}
		t.Note("%s %s", what, map[string]string{"add": "added", "modify": "changed", "delete": "deleted"}[e.Action])
	}
	for _, note := range answer.Notes {
		t.Note("%s", note)
	}
	return nil
}

// accountEdits reads the words of add, modify and delete. sacctmgr's "account", "user"
// and "set" are understood: gctl account add user ada account=physics.
func accountEdits(action string, args []string) ([]*greylagv1.AccountEdit, error) {
	e := &greylagv1.AccountEdit{Action: action}
	var names, users, parts []string
	entity := ""
	for i, word := range args {
		key, value, pair := strings.Cut(word, "=")
		key = strings.ToLower(key)
		switch {
		case i == 0 && len(args) > 1 && (word == "account" || word == "user"):
			entity = word
		case word == "set":
		case !pair && entity == "user":
			users = append(users, split(word)...)
		case !pair:
			names = append(names, split(word)...)
		case key == "user" || key == "users" || key == "name" && entity == "user":
			users = append(users, split(value)...)
		case key == "account" || key == "accounts" || key == "name":
			names = append(names, split(value)...)
		case key == "partition" || key == "partitions":
			parts = append(parts, split(value)...)
		default:
			if err := accountKey(e, key, word, value); err != nil {
				return nil, err
			}
		}
	}
	if len(names) == 0 || entity == "user" && len(users) == 0 {
		return nil, &cli.UsageError{Problem: "no account is named", Advice: "write gctl account " + action + " NAME, or NAME user=USER"}
	}
	return each(e, names, users, parts), nil
}

// each is one edit for each account, user and partition that are named.
func each(e *greylagv1.AccountEdit, names, users, parts []string) (out []*greylagv1.AccountEdit) {
	for _, name := range names {
		for _, user := range orOne(users) {
			for _, part := range orOne(parts) {
				one := proto.CloneOf(e)
				one.Account, one.User, one.Partition = name, user, part
				out = append(out, one)
			}
		}
	}
	return out
}

// orOne is a list, or one empty word.
func orOne(words []string) []string {
	if len(words) == 0 {
		return []string{""}
	}
	return words
}

// split is a list with commas.
func split(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

// accountKey reads one KEY=VALUE.
func accountKey(e *greylagv1.AccountEdit, key, word, value string) error {
	wrong := func(want string) error {
		return &cli.UsageError{Problem: fmt.Sprintf("%q: want %s", word, want), Advice: "see gctl account --help"}
	}
	switch key {
	case "parent":
		e.Parent = &value
	case "description", "desc":
		e.Description = &value
	case "shares", "fairshare", "share":
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case strings.EqualFold(value, "parent"):
			n = cluster.SharesOfParent
		case err != nil || n < 0:
			return wrong("a number of shares, 0 or more, or parent")
		}
		e.Shares = &n
	case "default", "defaultaccount":
		yes := value == "yes" || value == "true" || value == "1"
		if !yes && value != "no" && value != "false" && value != "0" {
			return wrong("yes or no")
		}
		e.Default = &yes
	case "coordinators", "coordinator":
		e.Coordinators = &greylagv1.WordList{Words: split(value)}
	case "qos", "qoslevel":
		e.Qos = &greylagv1.WordList{Words: split(value)}
	case "defaultqos":
		e.DefaultQos = &value
	default:
		_, _, known, err := cluster.ParseLimits(word)
		switch {
		case !known:
			return &cli.UsageError{Problem: fmt.Sprintf("unknown key %q", word), Advice: "see gctl account --help for the keys and limits"}
		case err != nil:
			return &cli.UsageError{Problem: err.Error(), Advice: "see gctl account --help"}
		}
		e.Limits = append(e.Limits, word)
	}
	return nil
}

func (t *tool) accountMove() *cobra.Command {
	return &cobra.Command{
		Use: "move NAME PARENT", Short: "Put an account, with all below it, under another", Args: cobra.ExactArgs(2),
		Long: "Puts an account under another, with its users, jobs, usage and all accounts below.\nThe top is root.",
		RunE: t.on(func(ctx context.Context, c cli.Cluster, args []string) error {
			return t.sendEdits(ctx, c, []*greylagv1.AccountEdit{{Action: "modify", Account: args[0], Parent: &args[1]}})
		}),
	}
}

func (t *tool) accountList() *cobra.Command {
	request := &greylagv1.AccountsRequest{}
	c := &cobra.Command{
		Use: "list [NAME...]", Short: "Accounts as a tree", Aliases: []string{"show"},
		RunE: t.on(func(ctx context.Context, c cli.Cluster, args []string) error {
			request.Names = args
			if len(args) > 1 { // as sacctmgr show has it
				switch args[0] {
				case "account", "accounts":
					request.Names = args[1:]
				case "user", "users":
					if len(args) > 2 {
						return &cli.UsageError{Problem: "several users are named", Advice: "name one: gctl account list --user NAME; --users shows all"}
					}
					request.Names, request.User = nil, args[1]
				}
			}
			request.Users = request.Users || request.User != "" || t.json
			answer, err := c.Accounts().Accounts(ctx, request)
			if err != nil {
				return err
			}
			if t.json {
				return t.WriteJSON(accountsOf(answer))
			}
			if len(answer.Accounts) == 0 {
				t.Note("there are no accounts: everybody may submit, and all users share alike")
				return nil
			}
			return t.WriteTable(accountTable(answer, request.User != ""))
		}),
	}
	c.Flags().BoolVarP(&request.Users, "users", "u", false, "with their users")
	c.Flags().StringVar(&request.User, "user", "", "only the accounts of a user")
	return c
}

// accountTable is accounts as a tree, each with its users under it; or only those that
// have users.
func accountTable(a *greylagv1.AccountsResponse, only bool) cli.Table {
	table := cli.Table{Head: []string{"ACCOUNT", "USER", "SHARES", "DEFAULT", "QOS", "COORDINATORS", "LIMITS"}, Right: "llrllll", Wide: []int{5, 4}}
	users := map[string][]*greylagv1.AccountUser{}
	for _, u := range a.Users {
		users[u.Account] = append(users[u.Account], u)
	}
	for _, x := range a.Accounts {
		if only && len(users[x.Name]) == 0 {
			continue
		}
		indent := strings.Repeat("  ", int(x.Depth))
		table.Rows = append(table.Rows, withLimits(x.Limits, indent+x.Name, "", sharesText(x.Shares), "", qosText(x.Qos, x.DefaultQos), strings.Join(x.Coordinators, ","))...)
		for _, u := range users[x.Name] {
			standard := ""
			if u.Default {
				standard = "yes"
			}
			table.Rows = append(table.Rows, withLimits(u.Limits, indent+"  "+x.Name, userText(u.User, u.Partition), sharesText(u.Shares), standard, qosText(u.Qos, u.DefaultQos), "")...)
		}
	}
	return table
}

// sharesText is a number of shares, or that they are the parent's.
func sharesText(n int64) string {
	if n == cluster.SharesOfParent {
		return "parent"
	}
	return strconv.FormatInt(n, 10)
}

// userText is a user, and behind @ the partition that an association is for.
func userText(user, partition string) string {
	if partition == "" {
		return user
	}
	return user + "@" + partition
}

// withLimits is a row with one limit, and a further row for each other.
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

// qosText is a list of QOS, the default one with a star.
func qosText(all []string, preferred string) string {
	if preferred != "" && !slices.Contains(all, preferred) {
		return preferred + "*"
	}
	out := slices.Clone(all)
	for i := range out {
		if out[i] == preferred {
			out[i] += "*"
		}
	}
	return strings.Join(out, ",")
}
