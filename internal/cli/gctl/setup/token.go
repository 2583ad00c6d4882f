package setup

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
)

// CreateToken creates a join token and returns the argument of gctl join, TOKEN@HOST:PORT.
func CreateToken(ctx context.Context, c ui.Cluster, request *greylagv1.CreateTokenRequest) (argument string, answer *greylagv1.CreateTokenResponse, err error) {
	request.RequestId = client.NewRequestID()
	if answer, err = c.Cluster().CreateToken(ctx, request); err != nil {
		return "", nil, err
	}
	status, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return "", nil, err
	}
	return answer.Token + "@" + joinAddress(status), answer, nil
}

// joinAddress returns the address at which a host joins: the leader's, and during an election that of
// any voter, since all of them can be asked.
func joinAddress(status *greylagv1.GetStatusResponse) string {
	if status.LeaderAddress != "" {
		return status.LeaderAddress
	}
	for _, m := range status.Members {
		if m.Voter && m.Address != "" {
			return m.Address
		}
	}
	return "HOST"
}
