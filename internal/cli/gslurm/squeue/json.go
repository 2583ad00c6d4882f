package squeue

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
)

// printJSON prints jobs in the schema of squeue --json.
func (c command) printJSON(ctx context.Context, cl ui.Cluster, jobs []*greylagv1.Job) error {
	status, err := cl.Cluster().GetStatus(ctx, &greylagv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	all := []slurmcmd.JobJSON{}
	for _, row := range slurmcmd.Fold(jobs, false) {
		all = append(all, slurmcmd.JobOf(&row, status.Cluster))
	}
	return c.WriteJSON(struct {
		Jobs         []slurmcmd.JobJSON `json:"jobs"`
		LastBackfill slurmcmd.Number    `json:"last_backfill"`
		LastUpdate   slurmcmd.Number    `json:"last_update"`
		slurmcmd.MetaJSON
	}{all, slurmcmd.Set(0), slurmcmd.Set(c.Now().Unix()), c.Meta(status.Cluster)})
}
