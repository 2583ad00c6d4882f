package config

import (
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
		`p:2: scheduling.depth: want a whole number or "unlimited", found the text "all"`, "p:3: scheduling.promise_horizon: -1h0m0s is before now",
		"p:4: scheduling.window: want a duration", "p:6: fair_share.algorithm: \"tree\" is none of", "fair_share.billing.gpu: want a number",
		"fair_share.billing.cpu: 0.0001 has more than three decimals", "fair_share.billing.mem: -1 is out of range", "fair_share.billing.x: NaN is out of range",
		"p:9: licences.a: want a whole number, found the number 1.5", "p:10: licences.b: -1 is out of range",
		"p:13: reservation[0].start: want a time with its zone", "p:14: reservation[0].end: the year 2300 is out of range",
		"p:17: reservation[1].end: is not after the start",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
