package state

import (
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/command"
)

// TestArraysOfLongSpecifications checks that an array is refused if the records of its elements together
// would be too large, and accepted otherwise.
func TestArraysOfLongSpecifications(t *testing.T) {
	s := queue(0, true)
	for _, c := range []struct {
		args, last int32
		refused    bool
	}{{1, 99_999, false}, {1000, 999, false}, {1000, 99_999, true}} {
		batch := batch(0, 1, true)
		batch.Jobs[0].Array = []command.IndexRange{{First: 0, Last: c.last, Step: 1}}
		batch.Jobs[0].Spec.Args = strings.Split(strings.Repeat("an argument of a script,", int(c.args)), ",")
		r, refused := s.Apply(s.index+1, s.now, batch).(*command.Refusal)
		if refused != c.refused || refused && !strings.Contains(r.Error(), "an array can have at most ") {
			t.Errorf("%d arguments, %d elements: %v", c.args, c.last+1, r)
		}
	}
}
