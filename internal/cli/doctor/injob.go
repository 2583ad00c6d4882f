package doctor

import (
	"context"

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
	x.agreement(ctx, c)
}
