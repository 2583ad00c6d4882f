package certs

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/hosts"
	"github.com/greylag/greylag/internal/wire"
)

// authorities returns the CA certificates (DER) that a host of that role accepts, the one that signs
// its next certificate first.
func (s *Service) authorities(role pki.Role) [][]byte {
	if list := s.Views.View().Hosts().Rotation().Authorities(string(role)); list != nil {
		return list
	}
	return s.Trust.DERs()
}

// ListAuthorities returns the CA certificates that the caller's host must accept.
func (s *Service) ListAuthorities(ctx context.Context, _ *greylagv1.ListAuthoritiesRequest) (*greylagv1.ListAuthoritiesResponse, error) {
	if _, _, err := s.Views.Fresh(ctx, nil); err != nil {
		return nil, err
	}
	return &greylagv1.ListAuthoritiesResponse{Ca: s.authorities(call.From(ctx).Machine.Role)}, nil
}

// GetAuthority returns the CAs of this controller and its private keys.
func (s *Service) GetAuthority(context.Context, *greylagv1.GetAuthorityRequest) (*greylagv1.GetAuthorityResponse, error) {
	keys, err := s.CA.KeyPEM()
	if err != nil {
		return nil, err
	}
	return &greylagv1.GetAuthorityResponse{Ca: s.Trust.DERs(), CaKey: keys}, nil
}

// RotateAuthority carries out one step of a rotation of the CA.
func (s *Service) RotateAuthority(ctx context.Context, p *greylagv1.RotateAuthorityRequest) (*greylagv1.RotateAuthorityResponse, error) {
	c := call.From(ctx)
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	step := &command.RotateCA{Request: id, Actor: c.Actor(), Force: p.GetForce()}
	switch p.GetStep() {
	case greylagv1.RotationStep_ROTATION_STEP_BEGIN:
		step.Step = command.BeginRotation
		if !s.Views.View().Hosts().Rotation().Underway() { // else the state refuses
			step.Old, step.New, err = s.nextCA()
		}
	case greylagv1.RotationStep_ROTATION_STEP_FINISH:
		step.Step = command.FinishRotation
		if v := s.Views.View(); p.GetForce() || len(v.Hosts().Unrenewed(v.Now(), false)) == 0 { // else the state refuses
			err = s.checkControllers(ctx, v.Hosts().Rotation())
		}
	case greylagv1.RotationStep_ROTATION_STEP_CANCEL:
		step.Step = command.CancelRotation
	default:
		err = wire.Unset("step", p.GetStep())
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, step); err != nil {
		return nil, err
	}
	s.Logger.Warn("rotation of the CA", "step", wire.Word(p.GetStep()), "user", c.User.User)
	return &greylagv1.RotateAuthorityResponse{}, nil
}

// nextCA makes the CA that replaces the present one, and keeps its key. A controller that accepts
// two CAs without a rotation was restored during one, which goes on.
func (s *Service) nextCA() (previous, next []byte, err error) {
	present := s.Trust.DERs()
	if len(present) > 1 {
		return present[0], present[1], nil
	}
	ca, err := pki.NewCA(s.Trust.ClusterID(), s.Clock())
	if err != nil {
		return nil, nil, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return nil, nil, err
	}
	return present[0], ca.Trust().DERs()[0], s.CA.AddKeys(key)
}

// checkControllers refuses to finish a rotation while a controller lacks the new CA: it could not
// talk to the others once they show certificates of it.
func (s *Service) checkControllers(ctx context.Context, r hosts.Rotation) error {
	if r.Phase != hosts.RotationRenewing {
		return nil
	}
	var late []string
	for _, m := range s.Members.Status().Members {
		if m.ID == s.Views.ID {
			continue
		}
		theirs, keys, err := s.Peers.Authority(ctx, m.Addr)
		if err != nil {
			late = append(late, fmt.Sprintf("%s (does not answer)", m.Addr))
		} else if !slices.ContainsFunc(theirs, func(der []byte) bool { return string(der) == string(r.New) }) || !pki.KeyFits(keys, r.New) {
			late = append(late, m.Addr)
		}
	}
	if len(late) > 0 {
		return call.Refuse(command.Conflict, "start them and try again in some seconds, or remove them: gctl cluster remove ID",
			"controllers without the new CA: %s", strings.Join(late, ", "))
	}
	return nil
}

// completeRotation ends a rotation once every controller shows a certificate of the new CA, after it has
// encrypted the secrets under that CA.
func (s *Service) completeRotation(ctx context.Context) {
	v := s.Views.View()
	if !s.Views.Leads() || v.Hosts().Rotation().Phase != hosts.RotationFinishing || len(s.unrenewedControllers(v)) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, views.LeaderTime)
	defer cancel()
	if err := s.resealSecrets(ctx, v); err != nil {
		s.Logger.Debug("secrets not encrypted under the new CA", "err", err)
		return
	}
	if _, _, err := call.Propose[*command.Done](ctx, s.Leader, &command.RotateCA{Step: command.CompleteRotation}); err != nil {
		s.Logger.Debug("rotation of the CA not completed", "err", err)
		return
	}
	s.Logger.Info("rotation of the CA completed: the old CA is no longer accepted")
}

// unrenewedControllers returns the members, as controller/NAME, whose newest certificate is not of
// the new CA. A member without a record counts: its certificate is recorded within seconds.
func (s *Service) unrenewedControllers(v *state.View) (names []string) {
	late := v.Hosts().Unrenewed(v.Now(), true)
	for _, m := range s.Members.Status().Members {
		name := "controller/" + MemberName(v, m.ID)
		_, recorded := v.Hosts().CertificateHolder("controller", MemberName(v, m.ID))
		if !recorded || slices.Contains(late, name) {
			names = append(names, name)
		}
	}
	return names
}

// rotationOf describes the rotation for the API; nil for none.
func (s *Service) rotationOf(v *state.View) *greylagv1.Rotation {
	r := v.Hosts().Rotation()
	if r.Phase == hosts.NoRotation {
		return nil
	}
	answer := &greylagv1.Rotation{Phase: wire.Enum[greylagv1.RotationPhase](r.Phase.String()), NewCa: caID(r.New), Started: wire.Timestamp(r.Started), By: r.By}
	if r.Underway() {
		answer.OldCa = caID(r.Old)
		answer.WaitsFor = v.Hosts().Unrenewed(v.Now(), false)
	}
	if r.Phase == hosts.RotationFinishing {
		answer.WaitsFor = s.unrenewedControllers(v)
	}
	return answer
}

// caID returns the part of a CA's fingerprint that lists of certificates show.
func caID(der []byte) string {
	f := pki.FingerprintOf(der)
	return hex.EncodeToString(f[:len(command.Certificate{}.CA)])
}

// MemberName returns the host name of a member; "" if it is not recorded.
func MemberName(v *state.View, id string) string {
	m, _ := v.Hosts().Controller(id)
	return m.Name
}
