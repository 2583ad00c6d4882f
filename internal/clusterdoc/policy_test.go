package clusterdoc

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestPolicyIsWrittenAsItIsRead(t *testing.T) {
	standard := cluster.DefaultPolicy()
	text, err := WritePolicy(&standard)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadPolicy("policy.toml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	normal(&standard)
	normal(&read)
	if !reflect.DeepEqual(read, standard) {
		t.Errorf("read %+v\nwant %+v\nfrom\n%s", read, standard, text)
	}
	if !strings.Contains(string(text), "[[partition]]\nname = 'main'\nnodes = ['ALL']\n") {
		t.Errorf("not as a person would write it:\n%s", text)
	}
}

// TestPolicyTakesTablesBelow: what an administrator adds below the printed policy is read.
func TestPolicyTakesTablesBelow(t *testing.T) {
	standard := cluster.DefaultPolicy()
	text, err := WritePolicy(&standard)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\n[[reservation]]\nname = 'r'\nstart = 2027-01-15T08:00:00Z\nend = 2027-01-15T18:00:00Z\nnodes = ['ALL']\n[licences]\nmatlab = 2\n"...)
	read, err := ReadPolicy("policy.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	if s := read.Scheduling; len(s.Reservations) != 1 || len(s.Licences) != 1 || s.Licences[0].Count != 2 {
		t.Errorf("read %+v", s)
	}
	// Printed again, the reservations come last: where the next is added.
	again, err := WritePolicy(&read)
	if _, last, found := strings.Cut(string(again), "[[reservation]]"); err != nil || !found || strings.Contains(last, "\n[") {
		t.Errorf("%v: not last are the reservations of\n%s", err, again)
	}
}

// TestKindOf: what a file is for is known by its keys, where they are not those of several.
func TestKindOf(t *testing.T) {
	for _, kind := range []string{"gctld", "gnoded", "policy"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "etc", kind+".toml"))
		if got := KindOf(text); err != nil || got != kind {
			t.Errorf("etc/%s.toml is for %q, %v", kind, got, err)
		}
	}
	for text, want := range map[string]string{
		"[[qos]]\nname = 'q'\n": "policy", "data_dir = '/d'\nlisten = ':1'\n": "gctld",
		"": "", "name = 'x'": "", "name =": "", "nmae = 'x'": "",
	} {
		if got := KindOf([]byte(text)); got != want {
			t.Errorf("%q is for %q, want %q", text, got, want)
		}
	}
}

// normal makes absent and empty lists the same.
func normal(p *cluster.Policy) {
	for _, list := range []*[]string{&p.Admins, &p.Operators} {
		*list = append([]string{}, *list...)
	}
	for i := range p.Partitions {
		p.Partitions[i].Nodes = append([]string{}, p.Partitions[i].Nodes...)
		p.Partitions[i].AllowAccounts = append([]string{}, p.Partitions[i].AllowAccounts...)
	}
	s := &p.Scheduling
	s.FairShare.Billing = append([]cluster.BillingWeight{}, s.FairShare.Billing...)
	s.Licences = append([]cluster.Licence{}, s.Licences...)
	s.Reservations = append([]cluster.Reservation{}, s.Reservations...)
	for i := range s.Reservations {
		r := &s.Reservations[i]
		for _, list := range []*[]string{&r.Nodes, &r.Users, &r.Accounts} {
			*list = append([]string{}, *list...)
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	p, err := ReadPolicy("policy.toml", []byte("admins = [\"root\", \"ann\"]\nkill_wait = \"1m\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.DefaultPolicy()
	want.Admins, want.KillWait = []string{"root", "ann"}, time.Minute
	normal(&p)
	normal(&want)
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v", p)
	}
}

func TestPolicyFaults(t *testing.T) {
	_, err := ReadPolicy("policy.toml", []byte("max_aray = 3\n[[partition]]\nname = 3\nmax_time = \"soon\"\nmax_nodes = 9999999999\n"))
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{
		"policy.toml:1: max_aray: unknown key; did you mean max_array?", "policy.toml:3: partition[0].name",
		"policy.toml:4: partition[0].max_time", "policy.toml:5: partition[0].max_nodes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestInactiveTimes: a QOS has the times of the policy unless it sets its own, also to never.
func TestInactiveTimes(t *testing.T) {
	read := func(text string) (cluster.Policy, error) { return ReadPolicy("f", []byte(text)) }
	p, err := read("inactive_limit = \"2h\"\n[[qos]]\nname = \"standard\"\n[[qos]]\nname = \"shells\"\ninactive_limit = \"0s\"\n[[qos]]\nname = \"long\"\ninactive_limit = \"1d\"\n")
	if err != nil {
		t.Fatal(err)
	}
	for qos, want := range map[string]time.Duration{"standard": 2 * time.Hour, "shells": 0, "long": 24 * time.Hour} {
		if warn, limit := p.InactiveTimes(qos); warn != 30*time.Minute || limit != want {
			t.Errorf("%s: warned after %s and ended after %s, want %s", qos, warn, limit, want)
		}
	}
	const qos = "[[qos]]\nname = \"standard\"\n"
	for text, want := range map[string]string{
		"inactive_limit = \"10m\"\n" + qos:                           "f:1: inactive_limit: inactive_limit is 10:00, less than inactive_warning (30:00): set inactive_warning <= inactive_limit",
		"inactive_warning = \"0s\"\ninactive_limit = \"2h\"\n" + qos: "f:2: inactive_limit: inactive_limit requires inactive_warning > 0",
		"inactive_warning = \"-1s\"\n" + qos:                         "f:1: inactive_warning: -1s is out of range: 0s to 36500d",
		qos + "inactive_limit = \"10m\"":                             "f:3: qos[0].inactive_limit: inactive_limit is 10:00, less than",
		qos + "inactive_limit = \"-2m\"":                             "f:3: qos[0].inactive_limit: -2m0s is negative",
	} {
		if _, err := read(text); err == nil || strings.Count(err.Error(), "inactive_limit: ")+strings.Count(err.Error(), "inactive_warning: ") != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	standard := cluster.DefaultPolicy()
	text, err := WritePolicy(&standard)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(`[scheduling]
depth = 1
promise_horizon = "unlimited"
[scheduling.weights]
age = 3
[fair_share]
algorithm = "classic"
[fair_share.billing]
h100 = 2.5
[licences]
matlab = 4
[[reservation]]
name = "x"
start = 2026-11-21T16:00:00+01:00
end = "2026-11-22T16:00:00Z"
nodes = ["ALL"]
`)
	f.Add("[[partition]]\nname='a'\n[[qos]]\ntier=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 256<<10 {
			return
		}
		p, err := ReadPolicy("f", []byte(text))
		if err != nil {
			return
		}
		again, err := WritePolicy(&p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ReadPolicy("f", again)
		normal(&p)
		normal(&q)
		if err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("read %+v\nthen %+v, %v\nfrom\n%s", p, q, err, again)
		}
	})
}

// TestPolicyExample checks that the example states the default of every setting.
func TestPolicyExample(t *testing.T) {
	const name = "../../etc/policy.toml"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadPolicy(name, text)
	if err != nil {
		t.Fatal(err)
	}
	standard := cluster.DefaultPolicy()
	shown, err := WritePolicy(&got)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := WritePolicy(&standard); err != nil || string(shown) != string(want) {
		t.Errorf("example\n%s\ndefaults\n%s %v", shown, want, err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[policy](), reflect.TypeFor[partition](), reflect.TypeFor[scheduling](),
		reflect.TypeFor[weights](), reflect.TypeFor[fairShare](), reflect.TypeFor[reservation]()} {
		for i := range typ.NumField() {
			if key := typ.Field(i).Tag.Get("toml"); !strings.Contains(string(text), key) {
				t.Errorf("the example does not name %s", key)
			}
		}
	}
}
