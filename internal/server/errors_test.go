package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/raftlog"
)

// TestOutcomeUnknown checks that the answer with an unknown outcome advises a person, and names
// nothing that only programs have.
func TestOutcomeUnknown(t *testing.T) {
	err := fmt.Errorf("%w: %w", raftlog.ErrOutcomeUnknown, context.DeadlineExceeded)
	if code := codes(err); code != connect.CodeUnavailable {
		t.Errorf("code %v", code)
	}
	if text := plain(err); text != "unknown whether the entry was committed: context deadline exceeded" {
		t.Errorf("got %q", text)
	}
	if hint := hintOf(err); !strings.HasPrefix(hint, "outcome unknown: check") || !strings.Contains(hint, "gqueue") {
		t.Errorf("hint %q", hint)
	}
	if hint := hintOf(raftlog.ErrNotLeader); hint != "" {
		t.Errorf("a hint for nothing: %q", hint)
	}
}
