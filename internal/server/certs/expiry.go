package certs

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

// freshConnection is the rest of a certificate's validity at which its connections are closed after
// each answer. The program then opens the next one with its renewed certificate.
const freshConnection = 24 * time.Hour

// CloseBeforeEnd closes a connection after its answer if the certificate that opened it expires
// soon.
func (s *Service) CloseBeforeEnd(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return
	}
	if s.Clock().After(r.TLS.PeerCertificates[0].NotAfter.Add(-freshConnection)) {
		w.Header().Set("Connection", "close") // over HTTP/2 as well, where open streams continue
	}
}

// Expired refuses a certificate that has expired since the handshake of its connection.
func (s *Service) Expired(c *call.Caller) error {
	if c.Leaf == nil || s.Clock().Before(c.Leaf.NotAfter) {
		return nil
	}
	return hint.New(fmt.Errorf("%w: the certificate of %s %s ended on %s", pki.ErrUntrusted, c.Machine.Role, c.Machine.Name, c.Leaf.NotAfter.UTC().Format(time.DateTime)),
		hosts.JoinHint(string(c.Machine.Role)))
}

// endWithCertificate ends a stream when the certificate of the program that reads it expires, until
// stop is called.
func (s *Service) endWithCertificate(c *call.Caller, end context.CancelCauseFunc) (stop func()) {
	if c.Leaf == nil {
		return func() {}
	}
	timer := time.AfterFunc(c.Leaf.NotAfter.Sub(s.Clock()), func() { end(s.Expired(c)) })
	return func() { timer.Stop() }
}
