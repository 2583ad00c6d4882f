package auth

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/pkg/cluster"
	"github.com/greylag/greylag/test/scenario"
)

func person(name string, uid uint32, role command.Role) Caller {
	return Caller{User: Identity{Identity: cluster.Identity{User: name, UID: uid}, Host: "login1"}, Role: role}
}

func program(role pki.Role) Caller {
	return Caller{Machine: pki.Peer{ClusterID: "prod", Role: role, Name: "h1"}}
}

// procedures returns the table of procedures, with RaisePriority and names that the API does not have.
func procedures() []*procedure.Procedure {
	names := []procedure.Name{"JobService/NoSuch", ""}
	for _, p := range procedure.All() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	all := make([]*procedure.Procedure, 0, len(names))
	for _, name := range names {
		all = append(all, procedure.Of(name))
	}
	return append(all, procedure.RaisePriority)
}

// TestPolicyTable writes the whole table and compares it with the reviewed file.
func TestPolicyTable(t *testing.T) {
	lent := person("alice", 1001, command.RoleUser)
	lent.Machine = program(pki.RoleController).Machine
	columns := []struct {
		head   string
		caller Caller
	}{
		{"anonymous", Caller{}}, {"user", person("alice", 1001, command.RoleUser)},
		{"operator", person("olga", 1002, command.RoleOperator)}, {"admin", person("root", 0, command.RoleAdmin)},
		{"node", program(pki.RoleNode)}, {"auth", program(pki.RoleAuth)}, {"controller", program(pki.RoleController)},
		{"user via controller", lent},
	}
	var b strings.Builder
	b.WriteString("# Who may call what: all, own (only on what is theirs), or - (never).\n")
	fmt.Fprintf(&b, "%-36s", "")
	for _, c := range columns {
		fmt.Fprintf(&b, " %-10s", c.head)
	}
	b.WriteString("\n")
	for _, rpc := range procedures() {
		fmt.Fprintf(&b, "%-36s", rpc.Name)
		for _, c := range columns {
			own, others := Allow(c.caller, rpc, Own), Allow(c.caller, rpc, Others)
			for _, err := range []error{own, others} {
				if err != nil && !errors.Is(err, ErrDenied) && !errors.Is(err, ErrNoCaller) {
					t.Errorf("%s: %v", rpc.Name, err)
				}
			}
			word := map[[2]bool]string{{true, true}: "all", {true, false}: "own", {false, false}: "-", {false, true}: "OTHERS ONLY"}[[2]bool{own == nil, others == nil}]
			fmt.Fprintf(&b, " %-10s", word)
		}
		b.WriteString("\n")
	}
	got := strings.ReplaceAll(b.String(), " \n", "\n")
	for strings.Contains(got, " \n") {
		got = strings.ReplaceAll(got, " \n", "\n")
	}
	scenario.Golden(t, "testdata/policy.txt", got)
}

func TestRoleOf(t *testing.T) {
	policy := cluster.DefaultPolicy()
	policy.Operators = []string{"olga", "root"}
	for _, c := range []struct {
		admins []string
		name   string
		uid    uint32
		want   command.Role
	}{
		{[]string{"root"}, "root", 0, command.RoleAdmin},
		{[]string{"root"}, "toor", 0, command.RoleAdmin}, // a second name for uid 0
		{[]string{"root"}, "root", 1001, command.RoleUser},
		{[]string{"root"}, "olga", 1002, command.RoleOperator},
		{[]string{"root", "olga"}, "olga", 1002, command.RoleAdmin},
		{[]string{"toor"}, "toor", 0, command.RoleOperator},
		{nil, "root", 0, command.RoleOperator},
		{[]string{""}, "", 5, command.RoleUser},
		{[]string{"root"}, "alice", 1001, command.RoleUser},
	} {
		policy.Admins = c.admins
		if got := RoleOf(&policy, cluster.Identity{User: c.name, UID: c.uid}); got != c.want {
			t.Errorf("admins %q, %s uid %d: %v, want %v", c.admins, c.name, c.uid, got, c.want)
		}
	}
}

func TestViewOf(t *testing.T) {
	owner := cluster.Identity{User: "alice", UID: 1001, GID: 1}
	lent := person("bob", 1003, command.RoleUser)
	lent.Machine = program(pki.RoleController).Machine
	for name, c := range map[string]struct {
		caller          Caller
		public, private View
	}{
		"owner":             {person("alice", 1001, command.RoleUser), Full, Full},
		"other":             {person("bob", 1003, command.RoleUser), Summary, Hidden},
		"same uid":          {person("bob", 1001, command.RoleUser), Summary, Hidden},
		"same name":         {person("alice", 1003, command.RoleUser), Summary, Hidden},
		"operator":          {person("olga", 1002, command.RoleOperator), Full, Full},
		"admin":             {person("root", 0, command.RoleAdmin), Full, Full},
		"anonymous":         {Caller{}, Hidden, Hidden},
		"node":              {program(pki.RoleNode), Hidden, Hidden},
		"controller":        {program(pki.RoleController), Full, Full},
		"by way of another": {lent, Summary, Hidden},
	} {
		for private, want := range map[bool]View{false: c.public, true: c.private} {
			if got := ViewOf(&cluster.Policy{Private: private}, c.caller, owner); got != want {
				t.Errorf("%s, private %v: %v, want %v", name, private, got, want)
			}
		}
	}
}

// TestRedactShowsOnlyWhatIsListed fills every field and checks which ones are left. A new field of
// a job is hidden until it is added to Redact and here.
func TestRedactShowsOnlyWhatIsListed(t *testing.T) {
	var full cluster.JobSpec
	fill(t, reflect.ValueOf(&full).Elem())
	var left []string
	seen := reflect.ValueOf(Redact(&full)).Elem()
	for i := range seen.NumField() {
		if !seen.Field(i).IsZero() {
			left = append(left, seen.Type().Field(i).Name)
		}
	}
	want := "Owner Account Partition QOS Request TimeLimit Nice Begin Deadline ArrayLimit ArraySize OtherPartitions"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("a summary shows %s, want %s", got, want)
	}
}

func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.String:
		v.SetString("secret")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	default:
		t.Fatalf("cannot fill a %s", v.Kind())
	}
}
