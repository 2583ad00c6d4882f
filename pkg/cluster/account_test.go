package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	for text, want := range map[string]string{
		"GrpTRES=gpu=64":                      "GrpTRES=gpu=64",
		"grptres=gres/gpu:h100=8,cpu=16":      "GrpTRES=gpu:h100=8 GrpTRES=cpu=16",
		"MaxTRESPerJob=mem=100G,mem=1024":     "MaxTRESPerJob=mem=100G MaxTRESPerJob=mem=1G",
		"GrpTRES=license/matlab=2,node=4":     "GrpTRES=licence:matlab=2 GrpTRES=node=4",
		"MaxWall=90":                          "MaxWall=1:30:00",
		"GrpWall=2-00:00:00":                  "GrpWall=2-00:00:00",
		"MaxJobs=0":                           "MaxJobs=0",
		"MaxJobs=-1":                          "gone MaxJobs=0",
		"MaxWall=UNLIMITED":                   "gone MaxWall=0:00",
		"GrpTRES=gpu=-1,cpu=3":                "GrpTRES=cpu=3 gone GrpTRES=gpu=0",
		"MaxTRES=gpu=8":                       "MaxTRESPerJob=gpu=8",
		"grpnodes=4":                          "GrpTRES=node=4",
		"GrpMem=4G":                           "GrpTRES=mem=4G",
		"MaxCPUMins=-1":                       "gone MaxTRESMinsPerJob=cpu=0",
		"MaxSubmitPU=9":                       "MaxSubmitJobsPerUser=9",
		"MaxTRESPN=gpu=4,mem=1T":              "MaxTRESPerNode=gpu=4 MaxTRESPerNode=mem=1T",
		"MinTRES=gpu=2":                       "MinTRESPerJob=gpu=2",
		"MinCPUs=8":                           "MinTRESPerJob=cpu=8",
		"GrpNodes=node=4":                     "not a limit",
		"MaxJobs=many":                        "not a limit",
		"MaxJobs=9999999999999999999":         "not a limit",
		"MaxWidgets=3":                        "not a limit",
		"GrpTRES=gpus=3":                      "not a limit",
		"GrpTRES=3":                           "not a limit",
		"GrpTRES=gpu=":                        "not a limit: GrpTRES=gpu has no value",
		"MaxWall=":                            "not a limit: MaxWall has no value",
		"GrpTRES=gpu:=3":                      "not a limit",
		"MaxWall=soon":                        "not a time",
		"GrpTRES=mem=lots":                    "not a size",
		"GrpTRESMins=gpu=60000,licence:a=100": "GrpTRESMins=gpu=60000 GrpTRESMins=licence:a=100",
	} {
		set, gone, _, err := ParseLimits(text)
		var got []string
		for _, l := range set {
			got = append(got, l.String())
		}
		for _, l := range gone {
			got = append(got, "gone "+l.String())
		}
		if err != nil {
			got = []string{err.Error()[:min(len(err.Error()), len(want))]}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, strings.Join(got, " "), want)
		}
	}
}

func FuzzParseLimits(f *testing.F) {
	f.Add("GrpTRES=gpu=64,mem=3G")
	f.Add("MaxWall=1-0")
	f.Fuzz(func(t *testing.T, text string) {
		set, _, _, err := ParseLimits(text)
		if err != nil {
			return
		}
		for _, l := range set {
			again, _, known, err := ParseLimits(l.String())
			if err != nil || !known || len(again) != 1 || again[0] != l {
				t.Fatalf("%q gives %s, which gives %v %v", text, l, again, err)
			}
			if got := again[0].String(); got != l.String() {
				t.Fatalf("%s and %s", l, got)
			}
		}
	})
}

func TestSortLimits(t *testing.T) {
	got := SortLimits([]Limit{{GrpTRES, "gpu", 1}, {MaxJobs, "", 3}, {GrpTRES, "cpu", 2}, {GrpTRES, "gpu", 5}})
	want := []Limit{{GrpTRES, "cpu", 2}, {GrpTRES, "gpu", 5}, {MaxJobs, "", 3}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if l, found := LimitOf(got, GrpTRES, "gpu"); !found || l.Value != 5 {
		t.Error(l, found)
	}
}

func TestBill(t *testing.T) {
	a := Allocation{Nodes: []NodeAllocation{
		{Node: "n1", GPUs: []int32{0, 1}, CPUs: 8, Memory: 3 * GiB}, {Node: "n2", GPUs: []int32{0}, CPUs: 8, Memory: GiB + 1},
	}}
	r := Request{Licences: []Licence{{Name: "matlab", Count: 2}}}
	amounts := a.Amounts(&r, func(node string, _ int32) string {
		return map[string]string{"n1": "h100", "n2": "a100"}[node]
	})
	want := []Amount{{"cpu", 16}, {"gpu", 3}, {"gpu:a100", 1}, {"gpu:h100", 2}, {"licence:matlab", 2}, {"mem", 4097}, {"node", 2}}
	if !slices.Equal(amounts, want) {
		t.Fatalf("%v, want %v", amounts, want)
	}
	for _, c := range []struct {
		billing []BillingWeight
		extra   int32
		want    int64
	}{
		{nil, 0, 0},
		{[]BillingWeight{{"gpu", 1000}, {"cpu", 10}, {"mem", 2}}, 0, 3000 + 160 + 8},
		{[]BillingWeight{{"gpu", 1000}, {"gpu:h100", 2500}}, 0, 2*2500 + 1000},
		{[]BillingWeight{{"gpu", 1000}, {"h100", 2500}}, 50, 9000},
		{[]BillingWeight{{"h100", 2500}, {"licence:matlab", 7}}, 0, 5014},
		{[]BillingWeight{{"gpu", 1000}}, -100, 0},
	} {
		f := FairSharePolicy{Billing: c.billing}
		if got := f.Bill(amounts, nil, c.extra); got != c.want {
			t.Errorf("%v %d%%: %d, want %d", c.billing, c.extra, got, c.want)
		}
	}
}

// TestBillInstances: an instance counts its share of its parent, unless its profile has a weight of its own.
func TestBillInstances(t *testing.T) {
	amounts := []Amount{{"gpu", 10}, {"gpu:1g.10gb", 8}, {"gpu:3g.40gb", 1}, {"gpu:h100", 1}}
	instances := []Amount{{"1g.10gb@a100:8", 1}, {"1g.10gb@h100:8", 7}, {"3g.40gb@h100:28", 1}}
	for _, c := range []struct {
		billing []BillingWeight
		want    int64
	}{
		{nil, 0},
		{[]BillingWeight{{"gpu", 1000}}, 1000 + 1000 + 500 + 142},                             // 142.86
		{[]BillingWeight{{"gpu", 1000}, {"gpu:h100", 3000}}, 3000 + 3000 + 1500 + 142},        // of two parents
		{[]BillingWeight{{"gpu", 1000}, {"h100", 3000}, {"1g.10gb", 50}}, 3000 + 8*50 + 1500}, // its own, without gpu:
		{[]BillingWeight{{"gpu", 1000}, {"gpu:1g.10gb", 0}, {"gpu:3g.40gb", 7}}, 1000 + 7},    // nothing
		{[]BillingWeight{{"gpu", 1}, {"h100", 1}, {"a100", 1}}, 1 + (7*8+8+28)/56},            // rounded down once
		{[]BillingWeight{{"gpu", MaxBilling}}, MaxBilling + MaxBilling*(7*8+8+28)/56},         // the most
	} {
		f := FairSharePolicy{Billing: c.billing}
		if got := f.Bill(amounts, instances, 0); got != c.want {
			t.Errorf("%v: %d, want %d", c.billing, got, c.want)
		}
	}
}

func TestAsked(t *testing.T) {
	r := Request{Nodes: 2, GPUsPerNode: 4, GPUTypes: []string{"h100", "a100"}, TasksPerNode: 2, CPUsPerTask: 3, MemPerGPU: GiB}
	for resource, want := range map[string]int64{
		"gpu": 8, "gpu:h100": 8, "gpu:a100": 8, "gpu:v100": 0, "cpu": 12, "node": 2, "mem": 8192, "licence:x": 0,
	} {
		if got := r.Requested(resource); got != want {
			t.Errorf("%s: %d, want %d", resource, got, want)
		}
	}
	spread := Request{GPUs: 6, TasksPerNode: 1, CPUsPerTask: 1}
	if spread.Requested("gpu") != 6 || spread.Requested("gpu:any") != 6 || spread.Requested("node") != 1 {
		t.Error("GPUs spread as the scheduler likes")
	}
}

func TestAskedOnNode(t *testing.T) {
	each := Request{Nodes: 2, GPUsPerNode: 4, GPUTypes: []string{"h100", "a100"}, TasksPerNode: 2, CPUsPerTask: 3, MemPerGPU: GiB}
	for resource, want := range map[string]int64{"gpu": 4, "gpu:h100": 4, "gpu:v100": 0, "cpu": 6, "node": 0, "mem": 4096, "licence:x": 0} {
		if got := each.RequestedOnNode(resource); got != want {
			t.Errorf("%s: %d, want %d", resource, got, want)
		}
	}
	for _, c := range []struct {
		r    Request
		want int64
	}{
		{Request{GPUs: 6}, 6}, {Request{GPUs: 6, Nodes: 1}, 6}, {Request{GPUs: 6, Nodes: 3}, 4}, {Request{GPUs: 6, Nodes: 3, GPUsPerNode: 2}, 2}, {Request{Nodes: 3}, 0},
	} {
		if got := c.r.RequestedOnNode("gpu"); got != c.want {
			t.Errorf("%+v: %d, want %d", c.r, got, c.want)
		}
	}
}

func TestMayGet(t *testing.T) {
	a100, h100 := Amount{"gpu:a100", 8}, Amount{"gpu:h100", 8}
	models := map[string][]NodeModel{"main": {{GPUs: []Amount{a100}}}, "big": {{GPUs: []Amount{a100}}, {GPUs: []Amount{h100}}}}
	any := JobSpec{Partition: "main"}
	both := JobSpec{Partition: "main", OtherPartitions: []string{"big"}}
	named := JobSpec{Partition: "main", Request: Request{GPUTypes: []string{"h100"}}}
	for i, c := range []struct {
		spec     *JobSpec
		resource string
		models   map[string][]NodeModel
		want     bool
	}{
		{&any, "gpu:a100", models, true}, {&any, "gpu:h100", models, false}, {&any, "gpu:h100", nil, true}, {&any, "gpu", models, true}, {&any, "cpu", models, true},
		{&both, "gpu:h100", models, true}, {&both, "gpu:v100", models, false}, {&named, "gpu:h100", models, true},
	} {
		if got := c.spec.MayGet(c.resource, c.models); got != c.want {
			t.Errorf("%d: %s: %t", i, c.resource, got)
		}
	}
}

// TestTree checks that nodes without a path to the root and cycles are left out, and that a listing
// is depth first, users before accounts.
func TestTree(t *testing.T) {
	accounts := []*Account{
		{Name: "b", Parent: "root"}, {Name: "a", Parent: "root"}, {Name: "a1", Parent: "a"}, {Name: "lost", Parent: "nowhere"},
		{Name: "x", Parent: "y"}, {Name: "y", Parent: "x"},
	}
	users := []*Association{
		{AssociationKey: AssociationKey{Account: "a", User: "zoe"}}, {AssociationKey: AssociationKey{Account: "a", User: "ada"}}, {AssociationKey: AssociationKey{Account: "x", User: "u"}},
	}
	tree := NewAccountTree(slices.Values(accounts), slices.Values(users))
	var got []string
	for _, i := range tree.Walk() {
		n := &tree.Nodes[i]
		word := strings.Repeat("-", int(tree.Depth(i))) + n.Account.Name
		if n.User != nil {
			word += ":" + n.User.User
		}
		got = append(got, word)
	}
	if want := "root -a --a:ada --a:zoe --a1 -b"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
	if tree.Account("lost") != -1 || tree.Find(AssociationKey{Account: "x", User: "u"}) != -1 || tree.Find(AssociationKey{Account: "a", User: "eve"}) != tree.Account("a") {
		t.Error("found what is not there, or not what is")
	}
}

// TestFind finds every user by name and partition, whatever the input order.
func TestFind(t *testing.T) {
	var accounts []*Account
	var users []*Association
	for a := range 7 {
		accounts = append(accounts, &Account{Name: fmt.Sprintf("a%d", a), Parent: RootAccount})
		for u := range 5 * a {
			for _, part := range []string{"gpu", "", "cpu"}[:1+u%3] {
				users = append(users, &Association{AssociationKey: AssociationKey{Account: fmt.Sprintf("a%d", a), User: fmt.Sprintf("u%d", u), Partition: part}})
			}
		}
	}
	slices.SortFunc(users, func(a, b *Association) int { // in an unusual order
		return cmp.Or(strings.Compare(b.User, a.User), strings.Compare(a.Account, b.Account), strings.Compare(b.Partition, a.Partition))
	})
	tree := NewAccountTree(slices.Values(accounts), slices.Values(users))
	for _, u := range users {
		n := tree.Nodes[tree.Find(u.AssociationKey)]
		if n.User != u || tree.Resolve(u.AssociationKey) != u.AssociationKey {
			t.Fatalf("%s is found as %v", u.AssociationKey, n.User)
		}
		other := u.AssociationKey
		other.Partition = "other"
		if n := tree.Nodes[tree.Find(other)]; n.Account.Name != u.Account || n.User != nil && n.User.AssociationKey != u.WithoutPartition() {
			t.Fatalf("%s is found as %v", other, n.User)
		}
	}
	if n := tree.Find(AssociationKey{Account: "a0", User: "u0"}); n != tree.Account("a0") {
		t.Errorf("of an account without users node %d is found", n)
	}
}

// TestPartitions checks that an association with a partition is preferred to the one without, which
// applies to all other partitions.
func TestPartitions(t *testing.T) {
	ada := AssociationKey{Account: "uni", User: "ada"}
	onGPU, onCPU := ada, ada
	onGPU.Partition, onCPU.Partition = "gpu", "cpu"
	tree := NewAccountTree(slices.Values([]*Account{{Name: "uni", Parent: "root", Limits: []Limit{{MaxJobs, "", 9}}}}), slices.Values([]*Association{
		{AssociationKey: ada, Limits: []Limit{{GrpJobs, "", 5}}}, {AssociationKey: onGPU, Limits: []Limit{{GrpJobs, "", 2}, {MaxJobs, "", 1}}},
	}))
	if tree.Resolve(onGPU) != onGPU || tree.Resolve(onCPU) != ada || (*AccountTree)(nil).Resolve(onGPU) != ada {
		t.Error("the association of a partition")
	}
	for part, want := range map[string]string{
		"gpu": "user ada in account uni on partition gpu GrpJobs=2, MaxJobs=1 of user ada in account uni on partition gpu",
		"cpu": "user ada in account uni GrpJobs=5, MaxJobs=9 of user ada in account uni",
	} {
		spec := &JobSpec{Account: "uni", Owner: Identity{User: "ada"}, Partition: part}
		all := tree.Bounds(spec, nil)
		got := fmt.Sprintf("%s %s, %s of %s", all[0].Of, all[0].Limit, all[1].Limit, all[1].Scope)
		var scopes []LimitScope
		tree.Scopes(spec, func(s LimitScope) { scopes = append(scopes, s) })
		if got != want || len(all) != 2 || scopes[0] != all[0].Scope || scopes[1] != (LimitScope{Account: "uni"}) {
			t.Errorf("on %s: %s, want %s; counted in %v", part, got, want, scopes)
		}
	}
}

// TestNearest checks that of limits per job or user the nearest applies, and of group limits all.
func TestNearest(t *testing.T) {
	tree := NewAccountTree(slices.Values([]*Account{
		{Name: "root", Limits: []Limit{{GrpTRES, "gpu", 100}, {MaxJobs, "", 9}}},
		{Name: "uni", Parent: "root", Limits: []Limit{{GrpTRES, "gpu", 50}, {MaxTRESPerJob, "gpu", 8}, {MaxWall, "", 60}}},
	}), slices.Values([]*Association{{AssociationKey: AssociationKey{Account: "uni", User: "ada"}, Limits: []Limit{{MaxTRESPerJob, "gpu", 16}}}}))
	spec := &JobSpec{Account: "uni", Owner: Identity{User: "ada"}, QOS: "q"}
	show := func(bounds []EffectiveLimit) string {
		var out []string
		for _, b := range bounds {
			out = append(out, b.Of.String()+" "+b.Limit.String())
		}
		slices.Sort(out)
		return strings.Join(out, "; ")
	}
	want := "account root GrpTRES=gpu=100; account root MaxJobs=9; account uni GrpTRES=gpu=50; account uni MaxWall=1:00; user ada in account uni MaxTRESPerJob=gpu=16"
	if got := show(tree.Bounds(spec, nil)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	qos := &QOS{Name: "q", MaxTime: time.Hour, Limits: []Limit{{MaxTRESPerJob, "gpu", 2}, {MaxJobsPerUser, "", 1}}}
	want = "account root GrpTRES=gpu=100; account uni GrpTRES=gpu=50; qos q MaxJobsPerUser=1; qos q MaxTRESPerJob=gpu=2"
	if got := show(tree.Bounds(spec, qos)); got != want {
		t.Errorf("with a qos %s, want %s", got, want)
	}
}

func TestInvalidAccounts(t *testing.T) {
	for _, a := range []Account{
		{Name: "", Parent: "root"}, {Name: "a"}, {Name: "root", Parent: "a"}, {Name: "a", Parent: "a"}, {Name: "a", Parent: "root", Shares: -2}, {Name: "root", Shares: SharesOfParent},
		{Name: "a", Parent: "root", QOS: []string{"x"}, DefaultQOS: "y"}, {Name: "a", Parent: "root", Limits: []Limit{{MaxJobsPerUser, "", 1}}},
		{Name: "a", Parent: "root", Limits: []Limit{{GrpTRES, "", 1}}}, {Name: "a", Parent: "root", Limits: []Limit{{99, "", 1}}},
		{Name: "a", Parent: "root", Limits: []Limit{{MaxJobs, "gpu", 1}}}, {Name: "a", Parent: "root", Description: strings.Repeat("x", 2000)},
	} {
		if err := a.Validate(); !errors.Is(err, ErrInvalidAccount) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	u := Association{AssociationKey: AssociationKey{Account: "a", User: "u", Partition: "a b\n"}}
	if err := u.Validate(); !errors.Is(err, ErrInvalidAccount) {
		t.Errorf("%+v: %v", u, err)
	}
}
