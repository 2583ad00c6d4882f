package step

import (
	"errors"
	"testing"
)

func TestExpandPath(t *testing.T) {
	values := map[byte]string{'t': "7", 'N': "n2", 'j': "123"}
	for _, c := range []struct {
		pattern, want string
		perTask       bool
	}{
		{"out", "out", false}, {"%j.out", "123.out", false}, {"%5j", "00123", false}, {"%2j", "123", false},
		{"%t", "7", true}, {"%3t-%N", "007-n2", true}, {"%4N", "n2", true}, {"%99t", "0000000007", true},
		{"%%t", "%t", false}, {"%%%t", "%7", true}, {"%a", "%a", false}, {`\%t`, "%t", false},
	} {
		got, err := ExpandPath(c.pattern, values)
		if err != nil || got != c.want || PerTask(c.pattern) != c.perTask {
			t.Errorf("%q: %q, per task %v: %v", c.pattern, got, PerTask(c.pattern), err)
		}
	}
	for _, bad := range []string{"%", "x%5", "%z", "%-t"} {
		if got, err := ExpandPath(bad, values); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestDecodeOrder(t *testing.T) {
	good := `{"job":12,"step":3,"node":1,"nodes":[{"name":"n1","tasks":2},{"name":"n2","tasks":1}],"contact":["a:1"],"fingerprint":"f","key":"k"}`
	o, err := DecodeOrder([]byte(good))
	if err != nil || o.ID() != "12.3" || o.Own().Name != "n2" || FirstRank(o.Nodes, 1) != 2 || CountTasks(o.Nodes) != 3 {
		t.Errorf("%+v: %v", o, err)
	}
	for _, bad := range []string{
		"", "{}", "[]", `{"node":-1,"nodes":[{}],"contact":["a"],"fingerprint":"f","key":"k"}`,
		`{"nodes":[{"tasks":-1}],"contact":["a"],"fingerprint":"f","key":"k"}`,
		`{"nodes":[{"tasks":99999999999}],"contact":["a"],"fingerprint":"f","key":"k"}`,
		`{"nodes":[{"tasks":1}],"contact":[],"fingerprint":"f","key":"k"}`,
	} {
		if _, err := DecodeOrder([]byte(bad)); !errors.Is(err, ErrBadOrder) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for want, ranks := range map[string][]int{"": nil, "4": {4}, "0-1": {0, 1}, "0,2-4,9": {0, 2, 3, 4, 9}} {
		if got := FormatRanks(ranks); got != want {
			t.Errorf("%v: %q", ranks, got)
		}
	}
	for want, list := range map[string][]int{"": nil, "2(x3),1": {2, 2, 2, 1}, "1,2": {1, 2}} {
		if got := FormatRepeats(list); got != want {
			t.Errorf("%v: %q", list, got)
		}
	}
}
