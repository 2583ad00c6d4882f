package ui

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/greylag/greylag/internal/auth"
)

// TestStatusWithoutAName checks that a caller without a user name is denied, not unanswered:
// another attempt would end the same.
func TestStatusWithoutAName(t *testing.T) {
	for _, why := range []error{auth.ErrNoDaemon, auth.ErrUnknownUser, auth.ErrForeign} {
		err := connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w: uid 65534", why))
		if got := StatusOf(err); got != Denied || NoAnswer(err) {
			t.Errorf("%v: status %d, want %d", err, got, Denied)
		}
	}
}
