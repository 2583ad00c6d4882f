// Package certs issues, checks, records, rotates and revokes the certificates of hosts.
package certs

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hint"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/hosts"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Members is the membership of the log: a raftlog.Log.
type Members interface {
	Status() raftlog.Status
}

// Peers are the other controllers.
type Peers interface {
	// Authority returns the CAs (DER) of the controller at addr and the private keys (PEM) that it has.
	Authority(ctx context.Context, addr string) (ca [][]byte, keys []byte, err error)
}

// Service checks the certificates of callers and answers the calls about them.
type Service struct {
	Views    *views.Source
	Leader   call.Proposer
	Members  Members
	Peers    Peers
	Trust    *pki.Trust
	Identity *pki.Identity
	CA       *pki.CA
	Clock    func() time.Time
	Logger   *slog.Logger
	// Identify checks the identity document of a leased instance; nil if instances need none. See burst.Program.Identify.
	Identify    func(ctx context.Context, instance, document string) error
	unrecorded  chan seen
	streams     *openStreams
	identifying chan struct{} // one element for each check of an identity document
}

// New prepares a Service with its exported fields set. Watch does its background work.
func New(s Service) *Service {
	const checksAtOnce = 4
	s.unrecorded, s.streams = make(chan seen, 16), &openStreams{all: make(map[*openStream]struct{})}
	s.identifying = make(chan struct{}, checksAtOnce)
	return &s
}

// CheckRevoked returns an error that wraps pki.ErrRevoked, with advice, if v holds a revocation of
// that certificate.
func CheckRevoked(v *state.View, peer pki.Peer, issued time.Time) error {
	h, known := v.Hosts().CertificateHolder(string(peer.Role), peer.Name)
	if !known || !h.Revoked(cluster.InstantOf(issued)) {
		return nil
	}
	by := ""
	if h.RevokedBy != "" {
		by = " by " + h.RevokedBy
	}
	err := fmt.Errorf("%w: %s %s, on %s%s: %s", pki.ErrRevoked, peer.Role, peer.Name, h.RevokedAt.Time().Format(time.RFC3339), by, h.Reason)
	return hint.New(&revokedError{err, peer.Role, peer.Role == pki.RoleController && removedController(v, peer.Name), peer.Role == pki.RoleNode && cluster.IsLeased(peer.Name)}, hosts.JoinHint(string(peer.Role)))
}

// removedController reports whether the controllers of that host name on record were all removed.
func removedController(v *state.View, name string) bool {
	removed := false
	for _, m := range v.Hosts().Controllers() {
		if m.Name == name && m.Retired == 0 {
			return false
		}
		removed = removed || m.Name == name
	}
	return removed
}

// revokedError refuses a revoked certificate.
type revokedError struct {
	error
	role    pki.Role
	removed bool // a controller that was removed from the cluster
	leased  bool // a leased node: its certificate is revoked when its lease has ended
}

// Unwrap returns the error without the advice.
func (e *revokedError) Unwrap() error { return e.error }

// Code returns the code for clients of an error about a revoked certificate of a controller or a leased node; "" for
// other errors.
func Code(err error) string {
	gone, ok := errors.AsType[*revokedError](err)
	switch {
	case ok && gone.removed:
		return client.CodeRemoved
	case ok && gone.role == pki.RoleController:
		return client.CodeRevoked
	case ok && gone.leased:
		return client.CodeLeaseEnded
	}
	return ""
}

// Revoked is CheckRevoked on this controller's state.
func (s *Service) Revoked(peer pki.Peer, issued time.Time) error {
	return CheckRevoked(s.Views.View(), peer, issued)
}

// Check refuses a call with a revoked certificate or one of a replaced CA, and records unknown
// certificates.
func (s *Service) Check(c *call.Caller) error {
	if c.Leaf != nil {
		if err := s.Trust.CheckIssuer(c.Leaf); err != nil {
			return err
		}
		if err := s.Revoked(c.Machine, pki.Issued(c.Leaf)); err != nil {
			return err
		}
		s.see(c.Machine, c.Leaf)
	}
	if c.User.Signer != nil { // the verifier has checked it, but not lately for an open stream
		signer := pki.Peer{ClusterID: s.Trust.ClusterID(), Role: pki.RoleAuth, Name: c.User.Host}
		if err := s.Revoked(signer, pki.Issued(c.User.Signer)); err != nil {
			return err
		}
		s.see(signer, c.User.Signer)
	}
	return nil
}

// certificateOf describes a certificate as the state records it.
func certificateOf(peer pki.Peer, leaf *x509.Certificate, issuer pki.Fingerprint, origin command.CertificateOrigin) command.Certificate {
	c := command.Certificate{
		Role: string(peer.Role), Name: peer.Name, Origin: origin,
		Issued: cluster.InstantOf(pki.Issued(leaf)), Expires: cluster.InstantOf(leaf.NotAfter),
	}
	leaf.SerialNumber.FillBytes(c.Serial[:])
	copy(c.CA[:], issuer[:])
	return c
}

// issue signs a certificate with a later issue time than all others of its holder.
func (s *Service) issue(csr []byte, grant pki.Grant, origin command.CertificateOrigin) (der []byte, c command.Certificate, err error) {
	at := s.Views.View().Hosts().NextCertificate(string(grant.Peer.Role), grant.Peer.Name, cluster.InstantOf(s.Clock()))
	authority := s.authorities(grant.Peer.Role)[0]
	if der, err = s.CA.SignBy(authority, csr, grant, at.Time()); err != nil {
		return nil, c, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, c, fmt.Errorf("sign certificate for %s: %w", grant.Peer, err)
	}
	return der, certificateOf(grant.Peer, leaf, pki.FingerprintOf(authority), origin), nil
}

// seen is a certificate that was issued outside the log, as by gctl init.
type seen struct {
	peer pki.Peer
	leaf *x509.Certificate
}

// see queues a certificate that the state lacks, for the leader to record.
func (s *Service) see(peer pki.Peer, leaf *x509.Certificate) {
	if !s.Views.Leads() || s.recorded(peer, leaf) {
		return
	}
	select {
	case s.unrecorded <- seen{peer, leaf}:
	default: // the next call queues it
	}
}

// recorded reports whether the state has the certificate.
func (s *Service) recorded(peer pki.Peer, leaf *x509.Certificate) bool {
	h, known := s.Views.View().Hosts().CertificateHolder(string(peer.Role), peer.Name)
	var serial [16]byte
	leaf.SerialNumber.FillBytes(serial[:])
	return known && slices.ContainsFunc(h.Certificates, func(c command.Certificate) bool { return c.Serial == serial })
}

// certificateLook is the interval at which open streams are checked against revocations.
const certificateLook = time.Second

// Watch records certificates that were seen and ends the streams of revoked ones, until ctx ends.
func (s *Service) Watch(ctx context.Context) {
	ticker := time.NewTicker(certificateLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.streams.recheck(s.Check)
			s.see(s.Identity.Peer(), s.Identity.Certificate().Leaf)
			s.completeRotation(ctx)
		case x := <-s.unrecorded:
			s.record(ctx, x)
		}
	}
}

// record proposes a certificate that was seen.
func (s *Service) record(ctx context.Context, x seen) {
	if s.recorded(x.peer, x.leaf) || s.Views.View().ClusterID() == "" {
		return
	}
	issuer, accepted := s.Trust.Issuer(x.leaf)
	if !accepted {
		return
	}
	c := certificateOf(x.peer, x.leaf, issuer, command.CertificateSeen)
	ctx, cancel := context.WithTimeout(ctx, views.LeaderTime)
	defer cancel()
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.RecordCertificate{Certificate: c, Prior: c.Issued}); err != nil {
		s.Logger.Debug("certificate not recorded", "role", c.Role, "name", c.Name, "err", err)
	}
}

// Enter lists a stream, which ends with the certificate of the program that reads it, until leave is
// called.
func (s *Service) Enter(c *call.Caller, end context.CancelCauseFunc) (leave func()) {
	remove, stop := s.streams.enter(c, end), s.endWithCertificate(c, end)
	return func() { remove(); stop() }
}

// openStreams are the streams under way.
type openStreams struct {
	mu  sync.Mutex
	all map[*openStream]struct{}
}

type openStream struct {
	caller *call.Caller
	end    context.CancelCauseFunc
}

// enter lists a stream until leave is called.
func (o *openStreams) enter(c *call.Caller, end context.CancelCauseFunc) (leave func()) {
	stream := &openStream{c, end}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[stream] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, stream)
	}
}

// recheck ends the streams of callers for whom check returns an error.
func (o *openStreams) recheck(check func(*call.Caller) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for stream := range o.all {
		if err := check(stream.caller); err != nil {
			stream.end(err)
		}
	}
}

// ListCertificates lists the certificates on record.
func (s *Service) ListCertificates(ctx context.Context, p *greylagv1.ListCertificatesRequest) (*greylagv1.ListCertificatesResponse, error) {
	v, asOf, err := s.Views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	response := &greylagv1.ListCertificatesResponse{AsOf: asOf, Rotation: s.rotationOf(v)}
	for h := range v.Hosts().CertificateHolders() {
		holder := &greylagv1.CertificateHolder{Role: wire.Enum[greylagv1.HostRole](h.Role), Name: h.Name, RevokedBy: h.RevokedBy, Reason: h.Reason}
		if h.RevokedAt != 0 {
			holder.Revoked = wire.Timestamp(h.RevokedAt)
		}
		for _, c := range h.Certificates {
			if c.Expires <= v.Now() {
				continue
			}
			holder.Certificates = append(holder.Certificates, &greylagv1.Certificate{
				Serial: hex.EncodeToString(c.Serial[:]), Issued: wire.Timestamp(c.Issued), Expires: wire.Timestamp(c.Expires),
				Origin: greylagv1.CertificateOrigin(c.Origin), Token: c.Token, Revoked: h.Revoked(c.Issued), Ca: hex.EncodeToString(c.CA[:]),
			})
		}
		response.Holders = append(response.Holders, holder)
	}
	return response, nil
}

// RevokeCertificates revokes every certificate of a holder that was issued until now.
func (s *Service) RevokeCertificates(ctx context.Context, p *greylagv1.RevokeCertificatesRequest) (*greylagv1.RevokeCertificatesResponse, error) {
	c := call.From(ctx)
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	if p.GetRole() == 0 {
		return nil, wire.Unset("role", p.GetRole())
	}
	if err := s.checkRevocation(p); err != nil {
		return nil, err
	}
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.RevokeCertificates{
		Request: id, Actor: c.Actor(), Role: wire.Word(p.GetRole()), Name: p.GetName(), Reason: p.GetReason(),
	}); err != nil {
		return nil, err
	}
	s.Logger.Warn("certificates revoked", "role", wire.Word(p.GetRole()), "name", p.GetName(), "user", c.User.User, "reason", p.GetReason())
	return &greylagv1.RevokeCertificatesResponse{}, nil
}

// maxKnown is the number of names that a refusal lists.
const maxKnown = 8

// checkRevocation refuses names that hold no certificate, and a revocation that would break the
// quorum.
func (s *Service) checkRevocation(p *greylagv1.RevokeCertificatesRequest) error {
	v := s.Views.View()
	var known []string
	found := false
	for h := range v.Hosts().CertificateHolders() {
		if h.Role == wire.Word(p.GetRole()) {
			known = append(known, h.Name)
			found = found || h.Name == p.GetName()
		}
	}
	if _, registered := v.Node(p.GetName()); !found && !(registered && p.GetRole() == greylagv1.HostRole_HOST_ROLE_NODE) {
		list := "none is recorded"
		if len(known) > 0 {
			list = "known: " + strings.Join(known[:min(len(known), maxKnown)], ", ")
		}
		return call.Refuse(command.NotFound, "gctl cert list shows all", "no certificate of %.20s %.100s; %s", wire.Word(p.GetRole()), p.GetName(), list)
	}
	if p.GetRole() != greylagv1.HostRole_HOST_ROLE_CONTROLLER || p.GetForce() {
		return nil
	}
	voters, left := 0, 0
	for _, m := range s.Members.Status().Members {
		if !m.Voter {
			continue
		}
		voters++
		if h, recorded := v.Hosts().CertificateHolder(wire.Word(p.GetRole()), MemberName(v, m.ID)); MemberName(v, m.ID) != p.GetName() && (!recorded || !h.Revoked(h.Newest())) {
			left++
		}
	}
	switch {
	case p.GetName() == s.Identity.Peer().Name:
		return call.Refuse(command.Conflict, "transfer leadership first: gctl cluster transfer; --force revokes it anyway", "controller %s leads the cluster", p.GetName())
	case left < voters/2+1 && left < voters:
		return call.Refuse(command.Conflict, "remove the controller first: gctl cluster remove ID; --force revokes it anyway",
			"without controller %s only %d of %d members could form a majority", p.GetName(), left, voters)
	}
	return nil
}
