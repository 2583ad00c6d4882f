package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/certs"
	"github.com/greylag/greylag/internal/server/views"
)

// Errors of controllers that do not belong to the cluster.
var (
	errNotMember  = errors.New("this controller is not a member of the cluster: ask another one")
	errPassedOn   = errors.New("the controller that forwarded the call is not a member of the cluster")
	errOutsider   = fmt.Errorf("%w: the certificate belongs to a controller that is not a member of the cluster", auth.ErrDenied)
	errNotItself  = fmt.Errorf("%w: a controller may add only itself as a member", auth.ErrDenied)
	errNoIdentity = errors.New("the controller at that address showed no certificate of this cluster")
)

// AddMember makes a controller that has joined a member, and records its host.
func (s *clusterService) AddMember(ctx context.Context, p *greylagv1.AddMemberRequest) (*greylagv1.AddMemberResponse, error) {
	if p.GetId() == "" || p.GetAddress() == "" {
		return nil, call.Refuse(command.InvalidArgument, "", "a member needs an id and an address")
	}
	if err := s.views.CatchUp(ctx); err != nil { // an earlier leader may have removed it
		return nil, err
	}
	if m, _ := s.cfg.State.View().Hosts().Controller(p.GetId()); m.Retired != 0 {
		return nil, s.memberError(ctx, fmt.Errorf("add member %s: %w", p.GetId(), raftlog.ErrRetired))
	}
	name, err := s.hostAt(p.GetId(), p.GetAddress())
	if err != nil {
		return nil, s.memberError(ctx, err)
	}
	c := call.From(ctx)
	if c.User.User == "" && c.Machine.Name != name {
		return nil, errNotItself
	}
	if m, known := s.cfg.State.View().Hosts().Controller(p.GetId()); !known || m.Name != name {
		if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.RecordMember{Actor: c.Actor(), ID: p.GetId(), Name: name}); err != nil {
			return nil, err
		}
	}
	return &greylagv1.AddMemberResponse{}, s.memberError(ctx, s.cfg.Members.AddMember(ctx, p.GetId(), p.GetAddress()))
}

// hostAt returns the host name of the controller that answers at an address, from its certificate.
func (s *Server) hostAt(id, addr string) (string, error) {
	who, leaf, err := s.cfg.Members.Identify(addr)
	if err != nil {
		return "", fmt.Errorf("add member %s: %w", id, err)
	}
	if who != id {
		return "", fmt.Errorf("add member %s: %w: it reports the ID %q", id, raftlog.ErrWrongMember, who)
	}
	return s.controllerName(leaf)
}

// controllerName is the name in a certificate of a controller.
func (s *Server) controllerName(leaf *x509.Certificate) (string, error) {
	if leaf == nil {
		return "", errNoIdentity
	}
	peer, err := s.cfg.Trust.Verify(leaf, s.cfg.Clock())
	if err != nil {
		return "", err
	}
	if peer.Role != pki.RoleController {
		return "", fmt.Errorf("%w: %s is not a controller", pki.ErrWrongRole, peer)
	}
	return peer.Name, nil
}

// RemoveMember removes a controller permanently: first the state refuses its ID, then the log
// configuration drops it. If a call is interrupted in between, the next call finishes it.
func (s *clusterService) RemoveMember(ctx context.Context, p *greylagv1.RemoveMemberRequest) (*greylagv1.RemoveMemberResponse, error) {
	if err := s.views.CatchUp(ctx); err != nil {
		return nil, err
	}
	if err := s.retire(ctx, p.GetId()); err != nil {
		return nil, s.memberError(ctx, err)
	}
	err := s.cfg.Members.RemoveMember(ctx, p.GetId())
	if errors.Is(err, raftlog.ErrNoMember) {
		err = nil // removed by an earlier call
	}
	if err != nil {
		return nil, s.memberError(ctx, err)
	}
	return &greylagv1.RemoveMemberResponse{}, nil
}

// retire makes the state refuse a member ID permanently. The last voter is not retired.
func (s *Server) retire(ctx context.Context, id string) error {
	s.retiring.Lock()
	defer s.retiring.Unlock()
	m, recorded := s.cfg.State.View().Hosts().Controller(id)
	member, others := false, 0
	for _, x := range s.cfg.Members.Status().Members {
		if x.ID == id {
			member = true
		} else if y, _ := s.cfg.State.View().Hosts().Controller(x.ID); x.Voter && y.Retired == 0 {
			others++
		}
	}
	switch {
	case !member && !recorded:
		return fmt.Errorf("remove member %.64s: %w", id, raftlog.ErrNoMember)
	case member && others == 0:
		return fmt.Errorf("remove member %s: %w", id, raftlog.ErrLastVoter)
	case m.Retired != 0:
		return nil
	}
	_, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.RetireMember{Actor: call.From(ctx).Actor(), ID: id})
	return err
}

// memberError adds advice to errors of the log about members.
func (s *Server) memberError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	hint := "gctl cluster status shows the members; name one by its ID in the column MEMBER"
	taken, isTaken := errors.AsType[*raftlog.AddressError](err)
	switch {
	case errors.Is(err, raftlog.ErrRetired):
		gone := s.explain(ctx, string(call.From(ctx).RPC.Name), call.Refuse(command.Conflict, command.RejoinHint, "%s", plain(err)))
		gone.Meta().Set(codeHeader, client.CodeRemoved)
		return gone
	case errors.Is(err, raftlog.ErrLastVoter), errors.Is(err, raftlog.ErrOnlyVoter):
		hint = "another controller joins with what gctl cluster token --controller prints"
	case isTaken:
		hint = "remove the member that has the address: gctl cluster remove " + taken.Holder
	case codes(err) == connect.CodeNotFound, codes(err) == connect.CodeFailedPrecondition:
	case codes(err) != connect.CodeUnknown:
		return err
	}
	code := command.Conflict
	if codes(err) == connect.CodeNotFound {
		code = command.NotFound
	}
	return call.Refuse(code, hint, "%s", plain(err))
}

// isMember reports whether a controller of that host name belongs to the cluster. If this
// controller does not know it, it first catches up with the committed log.
func (s *Server) isMember(ctx context.Context, name string) bool {
	if s.memberNamed(name) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, views.LeaderTime)
	defer cancel()
	return s.views.Confirm(ctx) == nil && s.memberNamed(name)
}

func (s *Server) memberNamed(name string) bool {
	v := s.cfg.State.View()
	return name != "" && slices.ContainsFunc(s.cfg.Members.Status().Members, func(m raftlog.Member) bool { return certs.MemberName(v, m.ID) == name })
}

// serves returns an error for a call that a controller must not answer unless it is a member.
func (s *Server) serves(p *procedure.Procedure) error {
	if p.Anytime || s.cfg.Members.IsMember() {
		return nil
	}
	return errNotMember
}

// checkPeer refuses calls from a controller that is not a member: those of PeerService and
// those that it forwards.
func (s *Server) checkPeer(ctx context.Context, c *call.Caller) error {
	between := c.Passed || c.RPC.BetweenControllers()
	switch {
	case !between || c.Via.Role != pki.RoleController || s.isMember(ctx, c.Via.Name):
		return nil
	case c.Passed: // its caller can ask another controller
		return errPassedOn
	}
	return errOutsider
}
