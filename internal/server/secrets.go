package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/secrets"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// SetSecret stores a secret of the caller. The value is encrypted here: it is in no command.
func (s *jobService) SetSecret(ctx context.Context, p *greylagv1.SetSecretRequest) (*greylagv1.SetSecretResponse, error) {
	c := call.From(ctx)
	switch n := len(p.GetValue()); {
	case n == 0:
		return nil, call.Refuse(command.InvalidArgument, "is the variable or file empty?", "the value of the secret is empty")
	case n > cluster.MaxSecret:
		return nil, call.Refuse(command.InvalidArgument, "", "the secret has %d bytes; at most %d are allowed", n, cluster.MaxSecret)
	}
	// The ID stands for the whole request: with a digest of the value in the log, its readers could
	// verify guesses.
	id, err := c.RequestID(p.GetRequestId(), "", []byte(p.GetName()))
	if err != nil {
		return nil, err
	}
	cmd := &command.SetSecret{Request: id, Actor: c.Actor(), Secret: command.Secret{Owner: c.User.Identity, Name: p.GetName()}}
	if err := s.certs.Seal(&cmd.Secret, p.GetValue()); err != nil {
		return nil, err
	}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd); err != nil {
		return nil, err
	}
	return &greylagv1.SetSecretResponse{}, nil
}

// ListSecrets lists secrets without their values.
func (s *jobService) ListSecrets(ctx context.Context, p *greylagv1.ListSecretsRequest) (*greylagv1.ListSecretsResponse, error) {
	c := call.From(ctx)
	user, err := namedUser(c, p.GetUser(), p.GetAllUsers())
	if err != nil {
		return nil, err
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	list := v.Secrets().All()
	if user != "" {
		list = v.Secrets().Of(user)
	}
	response := &greylagv1.ListSecretsResponse{}
	for x := range list {
		if auth.OwnershipOf(c.Caller, x.Owner) != auth.Own && c.Role < command.RoleAdmin {
			continue
		}
		out := &greylagv1.Secret{Name: x.Name, User: x.Owner.User, Changed: wire.Timestamp(x.Changed)}
		if _, err := s.certs.Unseal(x); errors.Is(err, pki.ErrUnreadable) {
			out.Problem = unreadable(x.Name)
		}
		response.Secrets = append(response.Secrets, out)
	}
	return response, nil
}

// unreadable describes a secret that no controller can decrypt.
func unreadable(name string) string {
	return "cannot be decrypted: the key of its CA is missing since a restore; its user must run gctl secret set " + name
}

// DeleteSecrets deletes secrets.
func (s *jobService) DeleteSecrets(ctx context.Context, p *greylagv1.DeleteSecretsRequest) (*greylagv1.DeleteSecretsResponse, error) {
	c := call.From(ctx)
	user, err := namedUser(c, p.GetUser(), false)
	if err != nil {
		return nil, err
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	cmd := &command.DeleteSecrets{Request: id, Actor: c.Actor(), User: user, Names: p.GetNames()}
	if _, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, cmd); err != nil {
		return nil, err
	}
	return &greylagv1.DeleteSecretsResponse{}, nil
}

// GetSecrets returns the present values of the secrets of a task that the calling node should run.
func (s *nodeService) GetSecrets(ctx context.Context, p *greylagv1.GetSecretsRequest) (*greylagv1.GetSecretsResponse, error) {
	name, err := s.node(ctx)
	if err == nil {
		err = s.views.CatchUp(ctx)
	}
	if err != nil {
		return nil, err
	}
	v := s.cfg.State.View()
	for j, rank := range v.OnNode(name) {
		if uint64(j.ID) != p.GetJob() || uint32(j.Attempt) != p.GetAttempt() || j.GrantOf(rank) != p.GetGranted() {
			continue
		}
		copies := rank == 0 && p.GetStaging() && j.CopiesOut() // after the end of the task
		if !copies && (wire.Stops(j, rank) || j.Tasks.At(rank).Phase >= cluster.TaskEnded) {
			break
		}
		response := &greylagv1.GetSecretsResponse{}
		if p.GetStaging() {
			value, err := s.stagingCredentials(v, j.Spec)
			if value != nil {
				response.Secrets = append(response.Secrets, &greylagv1.SecretValue{Name: cluster.CredentialsSecret, Value: value})
			}
			return response, err
		}
		for _, secret := range j.Spec.Secrets {
			value, err := s.secretValue(v.Secrets(), j.Spec.Owner, secret)
			if err != nil {
				return nil, err
			}
			response.Secrets = append(response.Secrets, &greylagv1.SecretValue{Name: secret, Value: value})
		}
		return response, nil
	}
	return nil, call.Refuse(command.NotFound, "", "attempt %d of job %d is not running on node %s", p.GetAttempt(), p.GetJob(), name)
}

// stagingCredentials returns the S3 credentials for copies of the files of a job: its own secret, else that which the policy
// names for its account or the nearest of its ancestors; nil for none.
func (s *Server) stagingCredentials(v *state.View, spec *cluster.JobSpec) ([]byte, error) {
	if len(spec.StageIn)+len(spec.StageOut) == 0 {
		return nil, nil
	}
	if slices.Contains(spec.Secrets, cluster.CredentialsSecret) {
		return s.secretValue(v.Secrets(), spec.Owner, cluster.CredentialsSecret)
	}
	names := []string{spec.Account}
	if tree := v.Accounts().Tree; tree != nil && spec.Account != "" {
		for _, n := range tree.Up(tree.Account(spec.Account)) {
			names = append(names, n.Account.Name)
		}
	}
	for _, name := range names {
		entry, found := v.Policy().StagingCredentialsOf(name)
		if !found {
			continue
		}
		for x := range v.Secrets().Of(entry.User) {
			if x.Name == entry.Secret {
				return s.secretValue(v.Secrets(), x.Owner, x.Name)
			}
		}
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("the secret %q of user %s, which the policy names for files of account %s, does not exist: ask an administrator", entry.Secret, entry.User, name))
	}
	return nil, nil
}

// secretValue returns the value of a secret. If no later attempt can succeed either, the code of the error is
// CodeDataLoss, and its message is for the job's user.
func (s *Server) secretValue(all *secrets.Secrets, owner cluster.Identity, name string) ([]byte, error) {
	x, known := all.Get(owner, name)
	if !known {
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("its secret %q was deleted: run gctl secret set %s and submit the job again", name, name))
	}
	value, err := s.certs.Unseal(x)
	if errors.Is(err, pki.ErrUnreadable) {
		return nil, connect.NewError(connect.CodeDataLoss, fmt.Errorf("its secret %q %s", name, unreadable(name)))
	}
	return value, err
}
