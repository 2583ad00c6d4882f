package clusterdoc

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
)

// accounts is a file of all accounts and their users, for gctl account dump and load.
type accounts struct {
	Accounts []account     `toml:"account"`
	Users    []association `toml:"user"`
}

type account struct {
	Name         string    `toml:"name"`
	Parent       string    `toml:"parent"` // "": at the top
	Description  string    `toml:"description"`
	Shares       share     `toml:"shares"`
	Coordinators []string  `toml:"coordinators"`
	QOS          []string  `toml:"qos"`
	DefaultQOS   string    `toml:"default_qos"`
	Limits       limitList `toml:"limits"`
}

type association struct {
	Name       string    `toml:"name"`
	Account    string    `toml:"account"`
	Partition  string    `toml:"partition"` // "": where no other association is for the partition
	Default    bool      `toml:"default"`   // the account of jobs without one
	Shares     share     `toml:"shares"`
	QOS        []string  `toml:"qos"`
	DefaultQOS string    `toml:"default_qos"`
	Limits     limitList `toml:"limits"`
}

// share is a number of shares, or "parent"; it is 1 if not set.
type share struct {
	n   int64
	set bool
}

func (s *share) Read(d *strict.Decoder, path string, value any) {
	s.set = true
	if value == shareOfParent {
		s.n = cluster.SharesOfParent
		return
	}
	strict.Assign(d, path, value, &s.n)
	if s.n < 0 {
		d.Fault(path, "%d shares: want 0 or more, or %q", s.n, shareOfParent)
	}
}

// shareOfParent is the word for the shares of the account above.
const shareOfParent = "parent"

func (s share) Write() any {
	if n := s.count(); n != cluster.SharesOfParent {
		return n
	}
	return shareOfParent
}

func (s share) count() int64 {
	if !s.set {
		return 1
	}
	return s.n
}

// limitList is limits in the form of gctl account, such as "GrpTRES=gpu=64,cpu=512".
type limitList []cluster.Limit

func (l *limitList) Read(d *strict.Decoder, path string, value any) {
	var words []string
	d.List(path, value, reflect.ValueOf(&words).Elem())
	*l = nil
	for i, word := range words {
		set, gone, _, err := cluster.ParseLimits(word)
		if err == nil && len(gone) > 0 {
			err = fmt.Errorf("%w: %q has no value", cluster.ErrBadLimit, word)
		}
		if err != nil {
			d.Fault(path+"["+strconv.Itoa(i)+"]", "%v", err)
		}
		*l = append(*l, set...)
	}
	*l = cluster.SortLimits(*l)
}

func (l limitList) Write() any {
	words := make([]string, len(l))
	for i := range l {
		words[i] = l[i].String()
	}
	return words
}

// ReadAccounts reads a file of accounts; faults contain name. The error is strict.Faults. The state
// checks that the accounts make a tree.
func ReadAccounts(name string, text []byte) ([]cluster.Account, []cluster.Association, error) {
	var file accounts
	var all []cluster.Account
	var users []cluster.Association
	faults := strict.Decode(name, []strict.Source{{Name: name, Text: text}}, &file, func(c *strict.Checker) {
		for i, a := range file.Accounts {
			out := cluster.Account{
				Name: a.Name, Parent: cmp.Or(a.Parent, cluster.RootAccount), Description: a.Description, Shares: a.Shares.count(),
				Coordinators: a.Coordinators, QOS: a.QOS, DefaultQOS: a.DefaultQOS, Limits: a.Limits,
			}
			if out.Name == cluster.RootAccount {
				out.Parent = a.Parent
			}
			if err := out.Validate(); err != nil {
				c.Fault("account["+strconv.Itoa(i)+"]", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			all = append(all, out)
		}
		for i, u := range file.Users {
			out := cluster.Association{
				AssociationKey: cluster.AssociationKey{Account: u.Account, User: u.Name, Partition: u.Partition}, Shares: u.Shares.count(),
				Default: u.Default, QOS: u.QOS, DefaultQOS: u.DefaultQOS, Limits: u.Limits,
			}
			if err := out.Validate(); err != nil {
				c.Fault("user["+strconv.Itoa(i)+"]", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
			}
			users = append(users, out)
		}
	})
	if len(faults) > 0 {
		return nil, nil, faults
	}
	return all, users, nil
}

// WriteAccounts writes accounts and their users as a file that ReadAccounts reads, in the order
// given. It leaves out defaults, so that the file is short.
func WriteAccounts(all []cluster.Account, users []cluster.Association) ([]byte, error) {
	var out strings.Builder
	table := func(kind string, v any) error {
		text, err := toml.Marshal(brief(reflect.ValueOf(v)))
		if err != nil {
			return fmt.Errorf("write accounts: %w", err)
		}
		if out.Len() > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "[[%s]]\n%s", kind, text)
		return nil
	}
	for i := range all {
		a := &all[i]
		parent := a.Parent
		if parent == cluster.RootAccount {
			parent = ""
		}
		if err := table("account", account{
			a.Name, parent, a.Description, share{a.Shares, true}, a.Coordinators, a.QOS, a.DefaultQOS, a.Limits,
		}); err != nil {
			return nil, err
		}
	}
	for i := range users {
		u := &users[i]
		if err := table("user", association{
			u.User, u.Account, u.Partition, u.Default, share{u.Shares, true}, u.QOS, u.DefaultQOS, u.Limits,
		}); err != nil {
			return nil, err
		}
	}
	return []byte(out.String()), nil
}

// brief returns a struct with the keys of another whose values are not the defaults.
func brief(v reflect.Value) any {
	var fields []reflect.StructField
	var values []reflect.Value
	for i := range v.NumField() {
		if v.Field(i).IsZero() || v.Field(i).Kind() == reflect.Slice && v.Field(i).Len() == 0 {
			continue
		}
		if s, ok := v.Field(i).Interface().(share); ok && s.count() == 1 {
			continue
		}
		w := strict.EncodeValue(v.Field(i))
		fields = append(fields, reflect.StructField{Name: v.Type().Field(i).Name, Type: w.Type(), Tag: v.Type().Field(i).Tag})
		values = append(values, w)
	}
	out := reflect.New(reflect.StructOf(fields)).Elem()
	for i := range values {
		out.Field(i).Set(values[i])
	}
	return out.Interface()
}
