package pki

import (
	"errors"
	"strings"
	"testing"
)

func TestClusterName(t *testing.T) {
	for _, name := range []string{"greylag", "a", "gpu-2", strings.Repeat("x", 40)} {
		id, err := NewClusterID(name)
		if err != nil || ValidClusterID(id) != nil || id == name {
			t.Fatalf("%q: id %q, %v", name, id, err)
		}
		if again, _ := NewClusterID(name); again == id {
			t.Errorf("%q twice makes %q", name, id)
		}
		if got := ClusterName(id); got != name {
			t.Errorf("the name of %q is %q, want %q", id, got, name)
		}
	}
	for _, name := range []string{"", "Lab", "-a", strings.Repeat("x", 41)} {
		if id, err := NewClusterID(name); !errors.Is(err, ErrBadPeer) {
			t.Errorf("%q makes %q, %v", name, id, err)
		}
	}
	for _, id := range []string{"page-1", "lab-cluster1", "-12345678", "12345678", ""} {
		if got := ClusterName(id); got != id {
			t.Errorf("the name of %q is %q", id, got)
		}
	}
}
