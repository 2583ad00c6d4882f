package certs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// usualToken is the default validity of a join token, and longestToken the maximum.
const usualToken, longestToken = time.Hour, 30 * 24 * time.Hour

func tokenKind(role pki.Role) command.TokenKind {
	switch role {
	case pki.RoleNode:
		return command.NodeToken
	case pki.RoleController:
		return command.ControllerToken
	case pki.RoleAuth:
		return command.AuthToken
	}
	return 0
}

// CreateToken makes a join token. Only this answer shows it: the state keeps its hash.
func (s *Service) CreateToken(ctx context.Context, p *greylagv1.CreateTokenRequest) (*greylagv1.CreateTokenResponse, error) {
	c := call.From(ctx)
	valid := p.GetValid().AsDuration()
	if valid == 0 {
		valid = usualToken
	}
	if valid < time.Second || valid > longestToken {
		return nil, call.Refuse(command.InvalidArgument, "", "a join token is valid for 1s to %s, not %s", longestToken, valid)
	}
	token, hash, err := pki.MintToken(s.Trust, pki.Role(wire.Word(p.GetRole())), s.Clock().Add(valid))
	if err != nil {
		return nil, wire.Unset("role", p.GetRole())
	}
	if holder := (pki.Peer{ClusterID: s.Trust.ClusterID(), Role: token.Role, Name: p.GetName()}); p.GetName() != "" {
		if err := holder.Validate(); err != nil {
			return nil, call.Refuse(command.InvalidArgument, "", "%v", err)
		}
	}
	// No request ID: a repetition mints another token, and an unread token expires unused.
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.CreateToken{
		Actor: c.Actor(), Hash: cluster.Digest(hash), Kind: tokenKind(token.Role), Expires: cluster.InstantOf(token.Expires),
		Name: p.GetName(), Replace: p.GetReplace(), Uses: max(1, p.GetUses()),
	}); err != nil {
		return nil, err
	}
	s.Logger.Info("join token created", "token", token.ID(), "role", token.Role, "user", c.User.User, "expires", token.Expires)
	return &greylagv1.CreateTokenResponse{Token: token.String(), Expires: timestamppb.New(token.Expires)}, nil
}

// Join exchanges a join token and a signing request for a certificate.
func (s *Service) Join(ctx context.Context, p *greylagv1.JoinRequest) (*greylagv1.JoinResponse, error) {
	token, err := pki.ParseToken(p.GetToken())
	if err != nil {
		return nil, err
	}
	now := s.Clock()
	if !s.Trust.Holds(token.CA) {
		return nil, call.Refuse(command.Denied, "use the token with its own cluster; tokens from before a CA rotation are invalid: create a new one", "the join token is of another cluster")
	}
	if token.Expired(now) {
		return nil, call.Refuse(command.Denied, "make a new one with gctl cluster token", "the join token expired at %s", token.Expires.UTC().Format(time.RFC3339))
	}
	name := p.GetName()
	var lease cluster.Lease
	if p.GetInstance() != "" {
		if lease, err = s.leaseOf(ctx, cluster.Digest(token.Hash()), p.GetInstance()); err == nil && lease.State == cluster.LeaseLaunched {
			err = s.checkIdentity(ctx, p) // in other states UseToken decides
		}
		name = lease.ID.NodeName()
	} else {
		err = s.checkToken(ctx, cluster.Digest(token.Hash()))
	}
	if err != nil {
		return nil, err
	}
	if off := p.GetClock().AsTime().Sub(now); p.GetClock() != nil && off.Abs() > joinTolerance {
		return nil, call.Refuse(command.InvalidArgument, "correct the clock and keep it synchronized: chronyc tracking; nothing was changed",
			"the clock of this host is %s the controller's", offText(off))
	}
	grant := pki.Grant{Peer: pki.Peer{ClusterID: s.Trust.ClusterID(), Role: token.Role, Name: name}}
	if token.Role == pki.RoleController {
		grant.Hosts = hostsOf(p.GetAdvertise())
	}
	// Signed before the token is used up: a bad request must not use it up.
	certificate, record, err := s.issue(p.GetCsr(), grant, command.CertificateJoined)
	if err != nil {
		return nil, err
	}
	record.Token = token.ID()
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.UseToken{
		Hash: cluster.Digest(token.Hash()), Kind: tokenKind(token.Role), Name: user(name, p.GetCsr()), Certificate: record, Instance: p.GetInstance(),
	}); err != nil {
		return nil, err
	}
	s.Logger.Info("joined", "token", token.ID(), "role", token.Role, "name", name, "instance", p.GetInstance(), "from", call.From(ctx).Source)
	response := &greylagv1.JoinResponse{
		Certificate: certificate, Ca: s.authorities(token.Role), ClusterId: s.Trust.ClusterID(),
		Cluster: s.Views.View().Policy().Cluster,
	}
	for _, m := range s.Members.Status().Members {
		response.Controllers = append(response.Controllers, m.Addr)
	}
	if lease.ID != 0 {
		response.Expires = timestamppb.New(lease.Expires.Time())
	}
	if token.Role == pki.RoleController {
		if response.CaKey, err = s.CA.KeyPEM(); err != nil {
			return nil, err
		}
	}
	return response, nil
}

// joinTolerance is the tolerated difference between the clock of a host that joins and the
// controller's. It includes the time in which the request was repeated.
const joinTolerance = 5 * time.Minute

// offText describes a difference between two clocks.
func offText(off time.Duration) string {
	if off < 0 {
		return (-off).Round(time.Second).String() + " behind"
	}
	return off.Round(time.Second).String() + " ahead of"
}

// checkToken refuses an unknown token. Any program can call Join: an invented token must write
// nothing to the log or the audit journal.
func (s *Service) checkToken(ctx context.Context, hash cluster.Digest) error {
	if s.Views.View().Hosts().HasToken(hash) {
		return nil
	}
	if err := s.Views.CatchUp(ctx); err != nil { // an earlier leader may have made it
		return err
	}
	if s.Views.View().Hosts().HasToken(hash) {
		return nil
	}
	return call.Refuse(command.NotFound, "make a new one with gctl cluster token", "the join token is unknown or has expired")
}

// user identifies the user of a token: a host and its request. The same request may come again,
// since its answer can get lost. Another request under the same name may come from a user who read
// the token on a command line, and must not get the certificate.
func user(name string, csr []byte) string {
	sum := sha256.Sum256(csr)
	return name + " (request " + hex.EncodeToString(sum[:16]) + ")"
}

// leaseOf returns the lease of an instance, by the hash of the join token of its launch. The controllers may learn the name
// of the instance only after it has booted: the host asks again then.
func (s *Service) leaseOf(ctx context.Context, hash cluster.Digest, instance string) (none cluster.Lease, _ error) {
	v := s.Views.View()
	l, known := v.LeaseByToken(hash, instance)
	if l == nil { // an earlier leader may have recorded it
		if err := s.Views.CatchUp(ctx); err != nil {
			return none, err
		}
		v = s.Views.View()
		l, known = v.LeaseByToken(hash, instance)
	}
	switch {
	case l != nil:
		return *l, nil
	case !known:
		return none, call.Refuse(command.NotFound, "the launch has ended, or was requested again with another token: end the instance", "the join token is of no launch")
	case requested(v, hash):
		return none, connect.NewError(connect.CodeUnavailable, fmt.Errorf("instance %.64q is not known yet: try again", instance))
	}
	return none, call.Refuse(command.Denied, "pass the instance ID of this host with --instance", "instance %.64q does not belong to the launch of the join token", instance)
}

// checkIdentity asks the provider program whether a host is the instance that it says it is. The token of the launch is
// readable by anything that can read the user data of the instance.
func (s *Service) checkIdentity(ctx context.Context, p *greylagv1.JoinRequest) error {
	if s.Identify == nil {
		return nil
	}
	if len(p.GetIdentity()) > burst.MaxDocument {
		return call.Refuse(command.InvalidArgument, "", "the identity document has %d bytes, at most %d", len(p.GetIdentity()), burst.MaxDocument)
	}
	if p.GetIdentity() == "" {
		return call.Refuse(command.Denied, "join with --identity; see the documentation of the provider program", "instance %.64q has no identity document, and this cluster requires one (burst.identity)", p.GetInstance())
	}
	select {
	case s.identifying <- struct{}{}: // each check is a process
		defer func() { <-s.identifying }()
	default:
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%d identity documents are being checked: try again", cap(s.identifying)))
	}
	err := s.Identify(ctx, p.GetInstance(), p.GetIdentity())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, burst.ErrNotProved):
		s.Logger.Error("identity document refused", "instance", p.GetInstance(), "from", call.From(ctx).Source, "err", err)
		return call.Refuse(command.Denied, "join from the instance itself", "%v", burst.ErrNotProved)
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the provider program cannot check the identity of instance %.64q: %w", p.GetInstance(), err))
}

// requested reports whether the cloud may have instances of the launch with a token that are not known yet.
func requested(v *state.View, hash cluster.Digest) bool {
	return slices.ContainsFunc(v.LeaseWork(), func(l *cluster.Lease) bool {
		return l.Token == hash && l.State == cluster.LeaseRequested
	})
}

// hostsOf returns the name or address in HOST:PORT, for a certificate.
func hostsOf(advertise string) []string {
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		host = advertise
	}
	if host == "" {
		return nil
	}
	return []string{host}
}

// RenewCertificate exchanges a valid certificate for a newer one of the same holder.
func (s *Service) RenewCertificate(ctx context.Context, p *greylagv1.RenewCertificateRequest) (*greylagv1.RenewCertificateResponse, error) {
	c := call.From(ctx)
	if c.Leaf == nil {
		return nil, call.Refuse(command.InvalidArgument, "", "a certificate is renewed over a connection that shows it")
	}
	certificate, record, err := s.issue(p.GetCsr(), pki.Grant{Peer: c.Machine, Hosts: c.Hosts()}, command.CertificateRenewed)
	if err != nil {
		return nil, err
	}
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.RecordCertificate{
		Certificate: record, Prior: cluster.InstantOf(pki.Issued(c.Leaf)),
	}); err != nil {
		return nil, err
	}
	s.Logger.Info("certificate renewed", "role", c.Machine.Role, "name", c.Machine.Name)
	return &greylagv1.RenewCertificateResponse{Certificate: certificate}, nil
}
