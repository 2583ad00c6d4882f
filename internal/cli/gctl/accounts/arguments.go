package accounts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// accountWords is the request in the arguments of add, modify or delete.
type accountWords struct {
	entity              string // account, user or coordinator, sacctmgr's entity; "": an account, or its users if any are named
	edit                *greylagv1.AccountEdit
	names, users, parts []string
	home                string       // the account becomes the users' default one
	lists               []listChange // of the current values
}

// listChange adds words to a list, or removes them.
type listChange struct {
	qos   bool // otherwise the coordinators
	more  bool
	words []string
}

// entityOf returns the entity of sacctmgr that a word names: account, user, coordinator or
// association; "" if none.
func entityOf(word string) string {
	switch word = strings.ToLower(word); word {
	case "account", "accounts", "acct":
		return "account"
	case "user", "users":
		return "user"
	case "coordinator", "coordinators", "coord":
		return "coordinator"
	case "association", "associations", "assoc":
		return "association"
	}
	return ""
}

// readAccountWords reads the arguments of add, modify and delete. Sacctmgr's are accepted: gctl
// account modify user where name=ada account=physics set maxjobs=3.
func readAccountWords(action string, args []string) (*accountWords, error) {
	w := &accountWords{edit: &greylagv1.AccountEdit{Action: wire.Enum[greylagv1.AccountAction](action)}}
	if entity := entityOf(args[0]); len(args) > 1 && entity != "" && entity != "association" {
		w.entity, args = entity, args[1:]
	}
	for _, word := range args {
		if err := w.read(word); err != nil {
			return nil, err
		}
	}
	if w.entity == "coordinator" {
		if action == "modify" || len(w.users) == 0 {
			return nil, &ui.UsageError{Problem: "coordinators can only be added or deleted", Advice: "write gctl account add coordinator USER account=NAME"}
		}
		w.lists = append(w.lists, listChange{more: action == "add", words: w.users})
		w.edit.Action, w.users = greylagv1.AccountAction_ACCOUNT_ACTION_MODIFY, nil
	}
	everywhere := w.entity == "user" && action == "modify" && len(w.names) == 0
	if len(w.names) == 0 && w.home != "" && !everywhere {
		w.names = []string{w.home}
	}
	switch {
	case len(w.names) == 0 && (w.entity != "user" || action == "add"), w.entity == "user" && len(w.users) == 0:
		return nil, &ui.UsageError{Problem: "no account given", Advice: "write gctl account " + action + " NAME, or NAME user=USER"}
	case w.home != "" && (len(w.users) == 0 || !everywhere && !slices.Contains(w.names, w.home)):
		return nil, &ui.UsageError{Problem: fmt.Sprintf("defaultaccount=%s is of a user and one of the user's accounts", w.home), Advice: "write gctl account modify " + w.home + " user=USER default=yes"}
	}
	return w, nil
}

// names reports whether a key selects accounts, users or partitions.
func names(key string) bool {
	return slices.Contains([]string{"name", "names", "user", "users", "account", "accounts", "partition", "partitions"}, key)
}

// read reads one argument.
func (w *accountWords) read(word string) error {
	key, value, pair := strings.Cut(word, "=")
	key = strings.ToLower(key)
	named := &w.names
	if w.entity == "user" || w.entity == "coordinator" {
		named = &w.users
	}
	switch {
	case pair && len(split(value)) == 0 && names(key): // of a script's empty variable: it would mean all
		return &ui.UsageError{Problem: fmt.Sprintf("%q is empty", word), Advice: "omit it for all, or give a name"}
	case key == "set" && !pair, key == "where" && !pair:
	case !pair, key == "name", key == "names":
		if !pair {
			value = word
		}
		*named = append(*named, split(value)...)
	case key == "user" || key == "users":
		w.users = append(w.users, split(value)...)
	case key == "account" || key == "accounts":
		w.names = append(w.names, split(value)...)
	case key == "partition" || key == "partitions":
		w.parts = append(w.parts, split(value)...)
	case key == "defaultaccount" && !isBool(value):
		w.home = value
	case strings.HasSuffix(key, "+") || strings.HasSuffix(key, "-"):
		list := strings.TrimSuffix(key[:len(key)-1], "s")
		if list != "qo" && list != "qoslevel" && list != "coordinator" {
			return &ui.UsageError{Problem: fmt.Sprintf("%q: += and -= work only for qos and coordinators", word), Advice: "write " + strings.TrimRight(key, "+-") + "=VALUE"}
		}
		w.lists = append(w.lists, listChange{qos: list != "coordinator", more: strings.HasSuffix(key, "+"), words: split(value)})
	default:
		return accountKey(w.edit, key, word, value)
	}
	return nil
}

// editsOf returns the edits. version is that of the accounts from which they follow, 0 when they
// follow from the arguments alone.
func (t commands) editsOf(ctx context.Context, c ui.Cluster, w *accountWords) (edits []*greylagv1.AccountEdit, version uint64, err error) {
	if len(w.names) > 0 && len(w.lists) == 0 {
		return w.each(), 0, nil
	}
	request := &greylagv1.ListAccountsRequest{Users: len(w.users) > 0}
	if len(w.users) == 1 {
		request.User = w.users[0]
	}
	answer, err := c.Accounts().ListAccounts(ctx, request)
	if err != nil {
		return nil, 0, err
	}
	edits = w.each()
	for _, user := range w.users {
		if len(w.names) > 0 {
			break
		}
		all := w.everywhere(user, answer.Users)
		if len(all) == 0 {
			in := "in no account"
			if w.home != "" {
				in = "not in account " + w.home
			}
			t.Complain(fmt.Sprintf("user %s is %s", user, in), "gctl account add NAME user="+user+" adds them to one")
			return nil, 0, ui.Exit(ui.NotFound)
		}
		edits = append(edits, all...)
	}
	if len(w.lists) > 0 {
		now := holdings{answer, ui.OpenQOS(ctx, c)}
		for _, e := range edits {
			for _, l := range w.lists {
				if err := now.change(e, l); err != nil {
					return nil, 0, err
				}
			}
		}
	}
	return edits, answer.Version, nil
}

// each returns one edit for each named account, user and partition.
func (w *accountWords) each() (out []*greylagv1.AccountEdit) {
	for _, name := range w.names {
		for _, user := range orOne(w.users) {
			for _, part := range orOne(w.parts) {
				out = append(out, w.editOf(name, user, part))
			}
		}
	}
	return out
}

func (w *accountWords) editOf(account, user, partition string) *greylagv1.AccountEdit {
	e := proto.CloneOf(w.edit)
	e.Account, e.User, e.Partition = account, user, partition
	if w.home == account {
		e.Default = proto.Bool(true)
	}
	return e
}

// everywhere returns one edit for each association of a user, in the named partitions if any: none
// when the new default account is not among them. Setting the default account is an edit of one
// association.
func (w *accountWords) everywhere(user string, all []*greylagv1.AccountUser) (out []*greylagv1.AccountEdit) {
	for _, u := range all {
		if u.User == user && (len(w.parts) == 0 || slices.Contains(w.parts, u.Partition)) {
			e := w.editOf(u.Account, u.User, u.Partition)
			e.Default = w.edit.Default
			out = append(out, e)
		}
	}
	if w.home == "" {
		return out
	}
	i := slices.IndexFunc(out, func(e *greylagv1.AccountEdit) bool { return e.Account == w.home })
	if i < 0 {
		return nil
	}
	out[i].Default = proto.Bool(true)
	if len(w.lists) == 0 && proto.Equal(w.edit, &greylagv1.AccountEdit{Action: w.edit.Action}) {
		return out[i : i+1]
	}
	return out
}

// holdings are the current accounts, and the open QOS.
type holdings struct {
	*greylagv1.ListAccountsResponse
	qos []string
}

// qosOf returns the QOS of jobs charged to an account, or to a user of it: its own, else those of
// the parent account, else the open ones.
func (h *holdings) qosOf(account, user, partition string) (names []string, all bool) {
	for _, u := range h.Users {
		if u.Account == account && u.User == user && u.Partition == partition && len(u.Qos) > 0 {
			return u.Qos, false
		}
	}
	for range cluster.MaxAccountDepth {
		a := h.account(account)
		if len(a.GetQos()) > 0 {
			return a.Qos, false
		}
		account = a.GetParent()
	}
	return h.qos, true
}

// account finds an account by name; nil if it does not exist.
func (h *holdings) account(name string) *greylagv1.Account {
	if i := slices.IndexFunc(h.Accounts, func(a *greylagv1.Account) bool { return a.Name == name }); i >= 0 {
		return h.Accounts[i]
	}
	return nil
}

// change turns an edit into one of a whole list, from the current values.
func (h *holdings) change(e *greylagv1.AccountEdit, l listChange) error {
	list, now, all := &e.Coordinators, h.account(e.Account).GetCoordinators(), false
	if l.qos {
		list = &e.Qos
		now, all = h.qosOf(e.Account, e.User, e.Partition)
	}
	switch {
	case *list != nil:
		now, all = (*list).All, false
	case e.Action == greylagv1.AccountAction_ACCOUNT_ACTION_ADD:
		now, all = nil, false
	}
	next := slices.DeleteFunc(slices.Clone(now), func(word string) bool { return slices.Contains(l.words, word) })
	if l.more {
		next = append(next, l.words...)
	}
	switch {
	case all && l.more && len(next) == len(now): // they may have them, and later ones
		return nil
	case len(next) == 0 && l.qos:
		return &ui.UsageError{
			Problem: "account " + e.Account + " would have no qos of its own left and inherit those of its parent",
			Advice:  "write qos= to inherit, or name the remaining ones: qos=NAME",
		}
	}
	*list = &greylagv1.StringList{All: next}
	return nil
}

// orOne returns a list, or one empty word.
func orOne(words []string) []string {
	if len(words) == 0 {
		return []string{""}
	}
	return words
}

// split splits a list at commas.
func split(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

func isBool(word string) bool {
	return slices.Contains([]string{"yes", "true", "1", "no", "false", "0"}, word)
}

// accountKey reads one KEY=VALUE.
func accountKey(e *greylagv1.AccountEdit, key, word, value string) error {
	wrong := func(want string) error {
		return &ui.UsageError{Problem: fmt.Sprintf("%q: want %s", word, want), Advice: "see gctl account --help"}
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
		if !isBool(value) {
			return wrong("yes or no")
		}
		e.Default = proto.Bool(value == "yes" || value == "true" || value == "1")
	case "coordinators", "coordinator":
		e.Coordinators = &greylagv1.StringList{All: split(value)}
	case "qos", "qoslevel":
		e.Qos = &greylagv1.StringList{All: split(value)}
	case "defaultqos":
		e.DefaultQos = &value
	default:
		_, _, known, err := cluster.ParseLimits(word)
		switch {
		case !known:
			return unknownKey(key, word)
		case err != nil:
			return &ui.UsageError{Problem: err.Error(), Advice: "see gctl account --help"}
		}
		e.Limits = append(e.Limits, word)
	}
	return nil
}

// unknownKey refuses a key, and suggests the likely one.
func unknownKey(key, word string) error {
	advice := "see gctl account --help for the keys and limits"
	known := []string{"parent", "description", "shares", "fairshare", "default", "defaultaccount", "coordinators", "qos", "defaultqos", "partition", "account", "user"}
	for k := cluster.GrpTRES; k <= cluster.MaxTRESMinsPerJob; k++ {
		known = append(known, strings.ToLower(k.String()))
	}
	known = append(known, strings.ToLower(cluster.MaxTRESPerNode.String()))
	switch near := getopt.Closest(key, known); {
	case key == "organization" || key == "organisation":
		advice = "an organisation is an account with sub-accounts: parent=NAME"
	case key == "cluster" || key == "clusters":
		advice = "omit it: there is only this cluster"
	case near != "":
		advice = "did you mean " + near + "?"
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown key %q", word), Advice: advice}
}
