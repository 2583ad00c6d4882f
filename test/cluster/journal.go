package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

// CreditRows returns the rows of a controller's credit journal, requested as another controller
// requests missing ones.
func (c *Cluster) CreditRows(ctx context.Context, ctl *Controller) ([][]byte, error) {
	identity, trust, err := pki.OpenIdentity(filepath.Join(ctl.dir, "pki"))
	if err != nil {
		return nil, err
	}
	peers := client.NewPeers(pki.ClientTLS(trust, identity))
	defer peers.Close()
	const credits, many = 0, 1000
	var all [][]byte
	for {
		rows, err := peers.Rows(ctx, ctl.Addr, credits, uint64(len(all))+1, many)
		if err != nil {
			return nil, fmt.Errorf("journal of %s: %w", ctl.Name, err)
		}
		if len(rows) == 0 {
			return all, nil
		}
		all = append(all, rows...)
	}
}

// RunAt runs one of the programs to its end as a user whose configuration names one controller.
func (c *Cluster) RunAt(ctx context.Context, ctl *Controller, program string, args ...string) (Result, error) {
	cmd := c.command(ctx, nil, program, args...)
	cmd.Env = append(cmd.Env, "GREYLAG_CONFIG="+ctl.clientFile())
	return Finish(cmd)
}

// clientFile returns the client.toml that names only this controller.
func (ctl *Controller) clientFile() string { return filepath.Join(ctl.dir, "client.toml") }
