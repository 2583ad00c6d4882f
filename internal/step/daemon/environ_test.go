package daemon

import (
	"slices"
	"testing"

	"github.com/greylag/greylag/internal/step"
)

// TestEnvironmentFromOutside: a step of a program outside the job has the search paths of the job's image, not those of
// the program's host; without an image it has its own.
func TestEnvironmentFromOutside(t *testing.T) {
	own := []string{"PATH=/image/bin", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64", "GREYLAG_JOB_ID=7", "HOME=/image"}
	for _, test := range []struct {
		image, outside bool
		want           []string
	}{
		{true, true, []string{"PATH=/image/bin", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64", "MINE=1"}},
		{false, true, []string{"PATH=/login/bin", "LD_PRELOAD=/login/lib.so", "MINE=1"}},
		{true, false, []string{"PATH=/login/bin", "LD_PRELOAD=/login/lib.so", "MINE=1"}},
	} {
		d := &daemon{node: step.Node{Name: "n1", Tasks: 1}}
		d.Order = step.Order{Job: 7, Nodes: []step.Node{d.node}, Env: own, Image: test.image}
		d.program = step.Program{Outside: test.outside, Env: []string{"PATH=/login/bin", "LD_PRELOAD=/login/lib.so", "MINE=1"}}
		got := d.environ(0)
		for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "MINE"} {
			entry := func(list []string) string {
				value, _ := newEnvironment(list).get(name)
				return value
			}
			if entry(got) != entry(test.want) {
				t.Errorf("image %t, outside %t: %s is %q, want %q in %v", test.image, test.outside, name, entry(got), entry(test.want), slices.Sorted(slices.Values(got)))
			}
		}
	}
}
