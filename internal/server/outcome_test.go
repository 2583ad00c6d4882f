package server

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/greylag/greylag/internal/raftlog"
)

// TestUnknownOutcomeIsOneLine checks that the answer names no ephemeral address.
func TestUnknownOutcomeIsOneLine(t *testing.T) {
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40123}
	err := unknownOutcome(&net.OpError{Op: "read", Net: "tcp", Source: from, Addr: from, Err: syscall.ECONNRESET})
	if text := plain(err); !errors.Is(err, raftlog.ErrOutcomeUnknown) || strings.ContainsAny(text, "\n") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("%q", text)
	}
}
