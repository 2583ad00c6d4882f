package clusterdoc

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

const scheduled = `
[scheduling]
depth = 1
window = "7d"
promise_horizon = "unlimited"
max_switch_wait = "0s"
[scheduling.weights]
age = 3
[fair_share]
algorithm = "classic"
[fair_share.billing]
h100 = 2.5
gpu = 1
[licences]
matlab = 4
[[reservation]]
name = "course"
start = 2026-11-21T16:00:00+01:00
end = "2026-11-22T16:00:00Z"
nodes = ["gpu[1-2]"]
accounts = ["physics"]
`

func TestSchedulingPolicy(t *testing.T) {
	p, err := ReadPolicy("policy.toml", []byte(scheduled))
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.DefaultScheduling()
	want.Depth, want.Window, want.PromiseHorizon, want.MaxSwitchWait = 1, 7*24*time.Hour, cluster.Unlimited, 0
	want.Weights.Age, want.FairShare.Classic = 3, true
	want.FairShare.Billing = []cluster.BillingWeight{{Resource: "gpu", Milli: 1000}, {Resource: "h100", Milli: 2500}}
	want.Licences = []cluster.Licence{{Name: "matlab", Count: 4}}
	want.Reservations = []cluster.Reservation{{
		Name: "course", Start: cluster.InstantOf(time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)),
		End:   cluster.InstantOf(time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC)),
		Nodes: []string{"gpu[1-2]"}, Accounts: []string{"physics"},
	}}
	if !reflect.DeepEqual(p.Scheduling, want) {
		t.Errorf("read %+v\nwant %+v", p.Scheduling, want)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestSchedulingFaults(t *testing.T) {
	_, err := ReadPolicy("p", []byte(`[scheduling]
depth = "all"
promise_horizon = "-1h"
window = 5
[fair_share]
algorithm = "tree"
billing = { gpu = "1", cpu = 0.0001, mem = -1, x = nan }
[licences]
a = 1.5
b = -1
[[reservation]]
name = "x"
start = 2026-11-21T16:00:00
end = 2300-01-01T00:00:00Z
[[reservation]]
start = 2026-11-21T16:00:00Z
end = 2026-11-21T15:00:00Z
`))
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{
		`p:2: scheduling.depth: want an integer or "unlimited", found the string "all"`, "p:3: scheduling.promise_horizon: -1h0m0s is negative",
		"p:4: scheduling.window: want a duration", "p:6: fair_share.algorithm: \"tree\" is not one of", "fair_share.billing.gpu: expected a number",
		"fair_share.billing.cpu: 0.0001 has more than three decimals", "fair_share.billing.mem: -1 is out of range", "fair_share.billing.x: NaN is out of range",
		"p:9: licences.a: expected an integer, found the number 1.5", "p:10: licences.b: -1 is out of range",
		"p:13: reservation[0].start: expected a time with its zone", "p:14: reservation[0].end: the year 2300 is out of range",
		"p:17: reservation[1].end: is not after the start",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// reservations reads lines of reservations: its name, when it begins and ends, its nodes, and for whom.
func reservations(lines ...string) []byte {
	var text strings.Builder
	for _, line := range lines {
		w := strings.Fields(line)
		fmt.Fprintf(&text, "[[reservation]]\nname = %q\nstart = 2026-11-%sT08:00:00Z\nend = 2026-11-%sT08:00:00Z\nnodes = [%q]\nusers = [", w[0], w[1], w[2], w[3])
		if len(w) > 4 {
			fmt.Fprintf(&text, "%q", w[4])
		}
		text.WriteString("]\n")
	}
	return []byte(text.String())
}

func TestReservationsThatOverlap(t *testing.T) {
	for _, x := range []struct {
		lines []string
		want  string
	}{
		{[]string{"a 10 12 n[1-3] ada", "b 11 14 n[2-4] bob"}, `p:11: reservation[1].nodes: reservation "b" has n[2-3] from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "a": give one of them other nodes or another time`},
		{[]string{"b 11 14 n[2-4] bob", "a 10 12 n[1-3] ada"}, `p:11: reservation[1].nodes: reservation "a" has n[2-3] from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "b": give one of them other nodes or another time`},
		{[]string{"a 10 20 n1 ada", "b 11 12 n1 bob", "c 13 14 n1 cyd"}, `p:11: reservation[1].nodes: reservation "b" has n1 from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "a": give one of them other nodes or another time
p:17: reservation[2].nodes: reservation "c" has n1 from 2026-11-13T08:00:00Z to 2026-11-14T08:00:00Z, and so has reservation "a": give one of them other nodes or another time`},
		{[]string{"a 10 12 ALL ada", "b 11 14 n2 bob"}, `p:11: reservation[1].nodes: reservation "b" has n2 from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "a": give one of them other nodes or another time`},
		{[]string{"a 10 12 n1 ada", "b 11 14 ALL bob"}, `p:11: reservation[1].nodes: reservation "b" has n1 from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "a": give one of them other nodes or another time`},
		{[]string{"a 10 12 ALL ada", "b 11 14 ALL bob"}, `p:11: reservation[1].nodes: reservation "b" has every node from 2026-11-11T08:00:00Z to 2026-11-12T08:00:00Z, and so has reservation "a": give one of them other nodes or another time`},
		{[]string{"a 10 12 n1 ada", "b 12 14 n1 bob", "c 10 14 n2 ada"}, ""},         // one after the other, and concurrent ones
		{[]string{"a 10 12 n1 ada", "m 11 14 n1", "n 10 20 ALL", "o 10 20 ALL"}, ""}, // maintenance
	} {
		_, err := ReadPolicy("p", reservations(x.lines...))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("%q:\n%s\nwant\n%s", x.lines, got, x.want)
		}
	}
}
