package doctor

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// insideJob checks what commands inside a job need: the socket of the task, and controllers that
// answer through it.
func (x *exam) insideJob(ctx context.Context, cfg config.Client) {
	cfg.Timeout = callTime
	c, err := client.Dial(cfg)
	if x.failed("socket", "see "+config.SocketEnv, err) {
		return
	}
	defer c.Close()
	x.good("socket", "inside a job: calls go through %s", cfg.JobSocket)
	status, err := c.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if x.failed("cluster", "see gctl cluster status", err) {
		return
	}
	if !client.IsMember(status) {
		x.note(Warning, "cluster", "retry later: the node then uses another controller", "controller %s answers but is not a member of the cluster", status.Id)
		return
	}
	x.agreement(status)
}
