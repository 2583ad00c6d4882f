package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/pki"
)

// CreditRows are the entries of the credits' journal that a controller keeps, as it
// keeps them, asked as another controller asks for those that it lacks.
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

// RunAt runs one of the programs to its end as a user would whose configuration names
// one controller alone.
func (c *Cluster) RunAt(ctx context.Context, ctl *Controller, program string, args ...string) (Result, error) {
	cmd := c.command(ctx, nil, program, args...)
	cmd.Env = append(cmd.Env, "GREYLAG_CONFIG="+ctl.clientFile())
	return Finish(cmd)
}

// clientFile is the client.toml that names this controller alone.
func (ctl *Controller) clientFile() string { return filepath.Join(ctl.dir, "client.toml") }
