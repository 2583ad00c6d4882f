package server_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

// shifted is a clock that a test sets.
type shifted struct{ by atomic.Int64 }

func (s *shifted) now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

// TestACertificateEndsOnOpenConnections checks that calls and streams of a connection that was
// opened while the certificate was valid are refused after its end, and so is a renewal.
func TestACertificateEndsOnOpenConnections(t *testing.T) {
	var clock shifted
	w := newWorld(t, options{clock: clock.now})
	n := newNode(w, "n1")
	n.next()
	id := w.identity(pki.RoleNode, "n2")
	renewal := client.Renewal(client.Seeds(w.all[0].addr), w.ca.Trust(), id)
	_, csr, err := pki.NewRequest(pki.RoleNode)
	must(t, err)
	clock.by.Store(int64(pki.Lifetime + time.Minute))
	_, err = n.session.Report(t.Context(), &greylagv1.ReportTasksRequest{Epoch: n.epoch})
	says(t, "report", err, "the certificate of node n1 ended on", "gctl cluster token --node")
	_, err = renewal(t.Context(), csr)
	says(t, "renew", err, "ended on")
}

// TestAStreamEndsWithItsCertificate checks that the program opens the next stream with a new
// certificate.
func TestAStreamEndsWithItsCertificate(t *testing.T) {
	var clock shifted
	w := newWorld(t, options{clock: clock.now})
	clock.by.Store(int64(pki.Lifetime - 5*time.Second))
	n := newNode(w, "n1")
	select {
	case err := <-n.ended:
		says(t, "the stream", err, "ended on", "gctl cluster token --node")
	case <-time.After(time.Minute):
		t.Error("the stream of a certificate that has ended stays open")
	}
}

// TestConnectionsTakeUpRenewedCertificates checks that a program that keeps calling on one
// connection changes to its renewed certificate before the old one ends.
func TestConnectionsTakeUpRenewedCertificates(t *testing.T) {
	var clock shifted
	w := newWorld(t, options{clock: clock.now})
	id := w.identity(pki.RoleNode, "n1")
	config := pki.ClientTLS(w.ca.Trust(), id)
	config.ClientSessionCache = nil // a resumed session has the certificate of the first, until that ends by the real clock
	session := w.client(client.Config{TLS: config}, nil).Node()
	register := func() {
		_, err := session.Register(t.Context(), &greylagv1.RegisterNodeRequest{BootId: "boot", Cpus: 8, Memory: 32 << 30})
		must(t, err)
	}
	register()
	clock.by.Store(int64(pki.Lifetime - time.Hour))
	renewed := time.Now().Add(50 * time.Minute) // as far as a handshake accepts it
	must(t, w.ca.Issue(filepath.Join(w.dir, "pki-node-n1"), pki.Grant{Peer: id.Peer()}, renewed))
	must(t, id.Check())
	register() // the last call on the old connection
	clock.by.Store(int64(pki.Lifetime + time.Minute))
	register()
}
