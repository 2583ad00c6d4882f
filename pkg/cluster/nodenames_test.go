package cluster

import "testing"

// TestNodeNames checks which sets have leased nodes: CLOUD alone does, ALL does not.
func TestNodeNames(t *testing.T) {
	for _, c := range []struct {
		set  []string
		node string
		has  bool
	}{
		{[]string{"ALL"}, "n1", true},
		{[]string{"ALL"}, "cloud-7", false},
		{[]string{"ALL"}, "cloudy", true},
		{[]string{"CLOUD"}, "cloud-7", true},
		{[]string{"CLOUD"}, "n1", false},
		{[]string{"CLOUD", "n[1-2]"}, "n2", true},
		{[]string{"ALL", "CLOUD"}, "n2", true},
		{[]string{"ALL", "CLOUD"}, "cloud-1", true},
		{[]string{"cloud-[1-3]"}, "cloud-2", true},
		{nil, "n1", false},
		{nil, "cloud-1", false},
	} {
		s := ParseNodeNames(c.set)
		if s.Has(c.node) != c.has {
			t.Errorf("%q has %s: %v, want %v", c.set, c.node, !c.has, c.has)
		}
	}
	cloud, one := ParseNodeNames([]string{LeasedNodes}), ParseNodeNames([]string{"n1"})
	if cloud.Disjoint(&one) || one.Disjoint(&cloud) {
		t.Error("a set without a list is called disjoint")
	}
}
