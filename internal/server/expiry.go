package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state/hosts"
)

// freshConnection is how long before the end of its certificate a connection is closed after each
// answer, so that the program opens the next one with the certificate that it has renewed since.
const freshConnection = 24 * time.Hour

// closeBeforeEnd has a connection end with its answer when the certificate that opened it ends soon.
func (s *Server) closeBeforeEnd(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return
	}
	if s.cfg.Clock().After(r.TLS.PeerCertificates[0].NotAfter.Add(-freshConnection)) {
		w.Header().Set("Connection", "close") // over HTTP/2 as well, where streams under way go on
	}
}

// expired refuses a certificate that has ended since the handshake of its connection.
func (s *Server) expired(c *call.Caller) error {
	if c.Leaf == nil || s.cfg.Clock().Before(c.Leaf.NotAfter) {
		return nil
	}
	return hint.New(fmt.Errorf("%w: the certificate of %s %s ended on %s", pki.ErrUntrusted, c.Machine.Role, c.Machine.Name, c.Leaf.NotAfter.UTC().Format(time.DateTime)),
		hosts.JoinHint(string(c.Machine.Role)))
}

// endWithCertificate ends a stream with the certificate of the program that reads it, until stop is called.
func (s *Server) endWithCertificate(c *call.Caller, end context.CancelCauseFunc) (stop func()) {
	if c.Leaf == nil {
		return func() {}
	}
	timer := time.AfterFunc(c.Leaf.NotAfter.Sub(s.cfg.Clock()), func() { end(s.expired(c)) })
	return func() { timer.Stop() }
}
