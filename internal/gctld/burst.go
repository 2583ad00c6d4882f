package gctld

import (
	"context"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/burst"
	"github.com/greylag/greylag/pkg/cluster"
)

// launchTokenTime is how long after its decision a launch's join token is valid.
const launchTokenTime = 24 * time.Hour

// cloud returns the provider of cloud nodes; nil without a program.
func (d *Daemon) cloud() burst.Provider {
	if d.cfg.Burst.Program == "" {
		return nil
	}
	return d.provider()
}

// identify returns the check of identity documents; nil if instances need none.
func (d *Daemon) identify() func(ctx context.Context, instance, document string) error {
	if !d.cfg.Burst.Identity {
		return nil
	}
	return d.provider().Identify
}

// provider returns the provider program of the configuration.
func (d *Daemon) provider() *burst.Program {
	b := d.cfg.Burst
	return burst.New(burst.Config{
		Program: b.Program, Args: b.Args, User: b.User, Environment: b.Environment, Timeout: b.Timeout, ClusterID: d.trust.ClusterID(), Log: d.log,
	})
}

// launchToken returns the join token of a try of a launch, and its hash. Every controller returns the same one.
func (d *Daemon) launchToken(l *cluster.Lease, try uint32) (string, cluster.Digest, error) {
	token, hash, err := d.ca.LaunchToken(l.Launch, try, l.Created.Add(launchTokenTime).Time())
	return token.String(), cluster.Digest(hash), err
}

// addresses returns the addresses of the controllers, on each in the same order: a repeated request to the cloud must be
// equal.
func (d *Daemon) addresses() []string {
	list := append([]string{d.cfg.Advertise}, d.others()...)
	slices.Sort(list)
	return list
}
