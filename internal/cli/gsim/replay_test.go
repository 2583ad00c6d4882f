package gsim

import (
	"errors"
	"strings"
	"testing"

	"github.com/greylag/greylag/internal/sim/reliability"
)

// TestReplayable: the error of a seed names the command that replays it, also with a doubled parameter.
func TestReplayable(t *testing.T) {
	seed := &reliability.SeedError{Seed: 7, Err: reliability.ErrViolation}
	for _, x := range []struct {
		words string
		err   error
		want  string
	}{
		{"", seed, "--scenario small --check-every 1 --seeds 7"},
		{"rate=21", errors.Join(seed), "--seeds 7 --model rate=21"},
		{"", &reliability.DoubledError{Word: "load=4m0s", Err: errors.Join(seed)}, "--seeds 7 --model load=4m0s"},
		{"rate=21", &reliability.DoubledError{Word: "load=4m0s", Err: seed}, "--seeds 7 --model rate=21,load=4m0s"},
	} {
		r := &reliable{scenario: "small", words: x.words}
		err := r.replayable(x.err)
		if !errors.Is(err, reliability.ErrViolation) || !strings.HasSuffix(err.Error(), x.want) {
			t.Errorf("%v, want the end %q", err, x.want)
		}
	}
}
