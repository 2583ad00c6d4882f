package cli_test

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// SetSecret implements JobServiceHandler. A secret named lost cannot be decrypted.
func (m *memory) SetSecret(_ context.Context, r *greylagv1.SetSecretRequest) (*greylagv1.SetSecretResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &greylagv1.Secret{Name: r.Name, User: caller, Changed: cronNext}
	if r.Name == "lost" {
		s.Problem = "cannot be decrypted"
	}
	m.secret = append(m.secret, s)
	return &greylagv1.SetSecretResponse{}, nil
}

// ListSecrets implements JobServiceHandler.
func (m *memory) ListSecrets(context.Context, *greylagv1.ListSecretsRequest) (*greylagv1.ListSecretsResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &greylagv1.ListSecretsResponse{Secrets: m.secret}, nil
}

// DeleteSecrets implements JobServiceHandler.
func (m *memory) DeleteSecrets(_ context.Context, r *greylagv1.DeleteSecretsRequest) (*greylagv1.DeleteSecretsResponse, error) {
	m.note(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range r.Names {
		i := slices.IndexFunc(m.secret, func(s *greylagv1.Secret) bool { return s.Name == name })
		if i < 0 {
			return nil, refuse(connect.CodeNotFound, "list them with gctl secret list", "%s has no secret %q", caller, name)
		}
		m.secret = slices.Delete(m.secret, i, i+1)
	}
	return &greylagv1.DeleteSecretsResponse{}, nil
}
