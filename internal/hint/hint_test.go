package hint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/greylag/greylag/internal/hint"
)

func TestHint(t *testing.T) {
	base := fmt.Errorf("reading: %w", fs.ErrNotExist)
	inner := hint.New(base, "create the file")
	outer := hint.New(fmt.Errorf("starting: %w", inner), "run gctl init")
	for _, x := range []struct {
		err           error
		message, hint string
	}{
		{nil, "", ""},
		{base, "reading: file does not exist", ""},
		{inner, "reading: file does not exist", "create the file"},
		{fmt.Errorf("gctl: %w", inner), "gctl: reading: file does not exist", "create the file"},
		{errors.Join(errors.New("first"), inner), "first\nreading: file does not exist", "create the file"},
		{outer, "starting: reading: file does not exist", "run gctl init"},
	} {
		if got := hint.Of(x.err); got != x.hint {
			t.Errorf("%v: hint %q, want %q", x.err, got, x.hint)
		}
		if x.err != nil && x.err.Error() != x.message {
			t.Errorf("message %q, want %q", x.err, x.message)
		}
		if x.hint != "" && !errors.Is(x.err, fs.ErrNotExist) {
			t.Errorf("%v does not wrap its cause", x.err)
		}
	}
}
