package audit

import (
	"reflect"
	"testing"

	"github.com/greylag/greylag/pkg/cluster"
)

func TestPolicyDiff(t *testing.T) {
	base := cluster.DefaultPolicy()
	for want, change := range map[string]func(*cluster.Policy){
		"order": func(p *cluster.Policy) { p.QOS[0], p.QOS[1] = p.QOS[1], p.QOS[0] },
		`partition "main" removed, partition "new" added`: func(p *cluster.Policy) { p.Partitions[0].Name = "new" },
		`scheduling, reservation, qos "` + base.QOS[0].Name + `"`: func(p *cluster.Policy) {
			p.Scheduling.Window++
			p.Scheduling.Reservations = []cluster.Reservation{{Name: "r"}}
			p.QOS[0].Priority++
		},
	} {
		changed := cluster.DefaultPolicy()
		change(&changed)
		if got := policyDiff(&base, &changed); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if SamePolicy(&base, &changed) {
			t.Errorf("%s: the policies count as equal", want)
		}
	}
	other := base
	if other.Version++; !SamePolicy(&base, &other) {
		t.Error("policies that differ in the version only are not equal")
	}
}

// TestPolicyPartsAreComplete: a change of any field of the policy is in one of the parts.
func TestPolicyPartsAreComplete(t *testing.T) {
	typ := reflect.TypeFor[cluster.Policy]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var p cluster.Policy
		setFirst(reflect.ValueOf(&p).Elem().Field(i))
		if changed := policyDiff(&cluster.Policy{}, &p); name != "Version" && changed == "order" {
			t.Errorf("no part of the policy covers the field %s", name)
		}
	}
}

// setFirst sets the first field, entry or value that can be set.
func setFirst(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		setFirst(v.Field(0))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setFirst(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}
