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
	"github.com/greylag/greylag/pkg/cluster"
)

// accountWords is what the words of add, modify or delete ask for.
type accountWords struct {
	entity              string // account, user or coordinator, as sacctmgr says what is meant; "": an account, or its users when any are named
	edit                *greylagv1.AccountEdit
	names, users, parts []string
	home                string       // the account that becomes the users' default one
	lists               []listChange // of what holds now
}

// listChange adds words to a list, or takes them away.
type listChange struct {
	qos   bool // else the coordinators
	more  bool
	words []string
}

// entityOf is which of account, user, coordinator and association a word of sacctmgr
// means; "" when none.
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

// readAccountWords reads the words of add, modify and delete. Those of sacctmgr are
// understood: gctl account modify user where name=ada account=physics set maxjobs=3.
func readAccountWords(action string, args []string) (*accountWords, error) {
	w := &accountWords{edit: &greylagv1.AccountEdit{Action: action}}
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
			return nil, &ui.UsageError{Problem: "coordinators are added or deleted", Advice: "write gctl account add coordinator USER account=NAME"}
		}
		w.lists = append(w.lists, listChange{more: action == "add", words: w.users})
		w.edit.Action, w.users = "modify", nil
	}
	everywhere := w.entity == "user" && action == "modify" && len(w.names) == 0
	if len(w.names) == 0 && w.home != "" && !everywhere {
		w.names = []string{w.home}
	}
	switch {
	case len(w.names) == 0 && (w.entity != "user" || action == "add"), w.entity == "user" && len(w.users) == 0:
		return nil, &ui.UsageError{Problem: "no account is named", Advice: "write gctl account " + action + " NAME, or NAME user=USER"}
	case w.home != "" && (len(w.users) == 0 || !everywhere && !slices.Contains(w.names, w.home)):
		return nil, &ui.UsageError{Problem: fmt.Sprintf("defaultaccount=%s is of a user and one of the user's accounts", w.home), Advice: "write gctl account modify " + w.home + " user=USER default=yes"}
	}
	return w, nil
}

// names reports whether a key says which accounts, users and partitions are meant.
func names(key string) bool {
	return slices.Contains([]string{"name", "names", "user", "users", "account", "accounts", "partition", "partitions"}, key)
}

// read takes one word.
func (w *accountWords) read(word string) error {
	key, value, pair := strings.Cut(word, "=")
	key = strings.ToLower(key)
	named := &w.names
	if w.entity == "user" || w.entity == "coordinator" {
		named = &w.users
	}
	switch {
	case pair && len(split(value)) == 0 && names(key): // of a script's empty variable: all would be meant
		return &ui.UsageError{Problem: fmt.Sprintf("%q names nothing", word), Advice: "leave it out to mean all, or name what is meant"}
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
			return &ui.UsageError{Problem: fmt.Sprintf("%q: only qos and coordinators are added to or taken from", word), Advice: "write " + strings.TrimRight(key, "+-") + "=VALUE"}
		}
		w.lists = append(w.lists, listChange{qos: list != "coordinator", more: strings.HasSuffix(key, "+"), words: split(value)})
	default:
		return accountKey(w.edit, key, word, value)
	}
	return nil
}

// editsOf are what is to be done. version is that of the accounts from which they follow, 0
// when they follow from the words alone.
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
			t.Complain(fmt.Sprintf("user %s is %s", user, in), "gctl account add NAME user="+user+" puts them into one")
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

// each is one edit for each account, user and partition that are named.
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

// everywhere is one edit for each association of a user, with the partitions if any are
// named: none when the account that is to be the default one is not among them. That alone
// is an edit of one association.
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

// holdings are the accounts as they are, and the QOS that are open.
type holdings struct {
	*greylagv1.ListAccountsResponse
	qos []string
}

// qosOf is which QOS jobs may have that an account pays for, or a user of it: their own,
// else those of the account above, else those that are open.
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

// account is one by its name; nil when there is none.
func (h *holdings) account(name string) *greylagv1.Account {
	if i := slices.IndexFunc(h.Accounts, func(a *greylagv1.Account) bool { return a.Name == name }); i >= 0 {
		return h.Accounts[i]
	}
	return nil
}

// change makes an edit one of a whole list, from what holds now.
func (h *holdings) change(e *greylagv1.AccountEdit, l listChange) error {
	list, now, all := &e.Coordinators, h.account(e.Account).GetCoordinators(), false
	if l.qos {
		list = &e.Qos
		now, all = h.qosOf(e.Account, e.User, e.Partition)
	}
	switch {
	case *list != nil:
		now, all = (*list).Words, false
	case e.Action == "add":
		now, all = nil, false
	}
	next := slices.DeleteFunc(slices.Clone(now), func(word string) bool { return slices.Contains(l.words, word) })
	if l.more {
		next = append(next, l.words...)
	}
	switch {
	case all && l.more && len(next) == len(now): // they may have them, and those that come later
		return nil
	case len(next) == 0 && l.qos:
		return &ui.UsageError{
			Problem: "no qos would be left of those of account " + e.Account + ", and then those of the account above hold",
			Advice:  "write qos= for that, or name what is left: qos=NAME",
		}
	}
	*list = &greylagv1.WordList{Words: next}
	return nil
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
		e.Coordinators = &greylagv1.WordList{Words: split(value)}
	case "qos", "qoslevel":
		e.Qos = &greylagv1.WordList{Words: split(value)}
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

// unknownKey refuses a key, and says what is likely meant.
func unknownKey(key, word string) error {
	advice := "see gctl account --help for the keys and limits"
	known := []string{"parent", "description", "shares", "fairshare", "default", "defaultaccount", "coordinators", "qos", "defaultqos", "partition", "account", "user"}
	for k := cluster.GrpTRES; k <= cluster.MaxTRESMinsPerJob; k++ {
		known = append(known, strings.ToLower(k.String()))
	}
	known = append(known, strings.ToLower(cluster.MaxTRESPerNode.String()))
	switch near := getopt.Closest(key, known); {
	case key == "organization" || key == "organisation":
		advice = "an organisation is an account, and others are below it: parent=NAME"
	case key == "cluster" || key == "clusters":
		advice = "leave it out: there is this cluster alone"
	case near != "":
		advice = "did you mean " + near + "?"
	}
	return &ui.UsageError{Problem: fmt.Sprintf("unknown key %q", word), Advice: advice}
}
