package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/wire"
)

// bootstrap makes the first controller a cluster of one and starts gauthd.
func (c *Cluster) bootstrap(ctx context.Context) error {
	first := c.controllers[0]
	if _, err := c.run(ctx, first.enter, "gctl", "init", "--config", filepath.Join(first.dir, "gctld.toml"), "--cluster", c.options.Name,
		"--client", c.ConfigFile(), "--ca", c.caFile(), "--auth", filepath.Join(c.Dir, "auth", "gauthd.toml")); err != nil {
		return err
	}
	var err error
	if c.trust, err = pki.LoadTrust(c.caFile()); err != nil {
		return err
	}
	for _, ctl := range c.controllers {
		ctl.api = newAPI(ctl.Addr, c.trust, c.socket())
	}
	if err := errors.Join(c.auth.Start(), first.Start()); err != nil {
		return err
	}
	_, err = c.Leader(ctx)
	return err
}

// joinControllers adds the others one after the other, since each needs a majority.
func (c *Cluster) joinControllers(ctx context.Context) error {
	for _, ctl := range c.controllers[1:] {
		if err := c.AddController(ctx, ctl); err != nil {
			return err
		}
	}
	return nil
}

// AddController joins a controller whose folders are empty, starts it, and waits
// until it has a vote. The options are for its token.
func (c *Cluster) AddController(ctx context.Context, ctl *Controller, options ...string) error {
	if err := c.JoinController(ctx, ctl, options...); err != nil {
		return err
	}
	return c.Promote(ctx, ctl)
}

// JoinController joins a controller whose folders are empty with a new token, made with the
// options, and starts it.
func (c *Cluster) JoinController(ctx context.Context, ctl *Controller, options ...string) error {
	err := c.join(ctx, "controller", options, ctl.enter, "--config", filepath.Join(ctl.dir, "gctld.toml"), "--name", ctl.Name)
	if err != nil {
		return err
	}
	return ctl.Start()
}

// Empty removes the data and the certificate of a stopped controller.
func (ctl *Controller) Empty() error {
	return errors.Join(emptyFolder(ctl.Data), emptyFolder(filepath.Join(ctl.dir, "pki")))
}

// Rejoin brings back a stopped controller that lost its data or may not use it any more, as
// docs/admin.md describes: the old member is removed, its folders are emptied, and it joins under a
// new ID.
func (c *Cluster) Rejoin(ctx context.Context, ctl *Controller, id string) error {
	if _, err := c.run(ctx, nil, "gctl", "cluster", "remove", id); err != nil {
		return err
	}
	if err := ctl.Empty(); err != nil {
		return err
	}
	return c.AddController(ctx, ctl)
}

// Promote makes a running controller a voter.
func (c *Cluster) Promote(ctx context.Context, ctl *Controller) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return Until(ctx, ctl.Name+" becomes a voter", func() (bool, error) {
		if !ctl.Running() {
			return false, fmt.Errorf("%s ended with status %d", ctl.Name, ctl.ExitCode())
		}
		status, err := ctl.status(ctx)
		if err != nil {
			return false, err
		}
		for _, member := range status.Members {
			if member.Id == status.Id && member.Voter {
				return true, nil
			}
		}
		_, err = c.run(ctx, nil, "gctl", "cluster", "add", status.Id, ctl.Addr)
		return false, err
	})
}

// join gets a one-time token, made with the options, and uses it.
func (c *Cluster) join(ctx context.Context, role string, options, enter []string, args ...string) error {
	token, err := c.run(ctx, nil, "gctl", append([]string{"cluster", "token", "--role", role}, options...)...)
	if err != nil {
		return err
	}
	args = append([]string{"join", strings.TrimSpace(token), "--role", role, "--ca", c.caFile(), "--client", c.ConfigFile()}, args...)
	_, err = c.run(ctx, enter, "gctl", args...)
	return err
}

// joinNodes gives every node its certificate and starts it.
func (c *Cluster) joinNodes(ctx context.Context) error {
	for _, node := range c.nodes {
		if err := c.join(ctx, "node", nil, nil, "--config", filepath.Join(node.dir, "gnoded.toml"), "--name", node.Name); err != nil {
			return err
		}
		if err := node.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) applyPolicy(ctx context.Context) error {
	if c.options.Policy == "" {
		return nil
	}
	return c.Apply(ctx, c.options.Policy)
}

// Apply replaces the cluster's policy.
func (c *Cluster) Apply(ctx context.Context, policy string) error {
	path := filepath.Join(c.Dir, "policy.toml")
	if err := os.WriteFile(path, []byte(policy), 0o644); err != nil {
		return err
	}
	_, err := c.run(ctx, nil, "gctl", "apply", "-f", path)
	return err
}

// awaitReady waits until every node can take jobs.
func (c *Cluster) awaitReady(ctx context.Context) error {
	for _, node := range c.nodes {
		if err := c.AwaitNode(ctx, node.Name, "IDLE"); err != nil {
			return err
		}
	}
	return nil
}

// AwaitNode waits, at most three minutes, until a node is in one of the states.
func (c *Cluster) AwaitNode(ctx context.Context, name string, states ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return Until(ctx, fmt.Sprintf("node %s becomes %s", name, strings.Join(states, " or ")), func() (bool, error) {
		node, err := c.NodeInfo(ctx, name)
		if err != nil {
			return false, err
		}
		for _, state := range states {
			if wire.Word(node.State) == state {
				return true, nil
			}
		}
		return false, fmt.Errorf("it is %s %s %s", wire.Word(node.State), node.Reason, node.Fault)
	})
}

// Restore stops all controllers, empties their folders, restores a backup on the first and joins
// the others, as docs/admin.md describes. Nodes and jobs continue.
func (c *Cluster) Restore(ctx context.Context, backup string) error {
	for _, ctl := range c.controllers {
		if err := ctl.Stop(); err != nil {
			return err
		}
	}
	first := c.controllers[0]
	for _, ctl := range c.controllers {
		if err := emptyFolder(ctl.Data); err != nil {
			return err
		}
	}
	if _, err := c.run(ctx, first.enter, "gctld", "restore", "--config", filepath.Join(first.dir, "gctld.toml"), "-i", backup); err != nil {
		return err
	}
	if err := first.Start(); err != nil {
		return err
	}
	if _, err := c.LeaderAmong(ctx, first); err != nil {
		return err
	}
	for _, ctl := range c.controllers[1:] {
		if err := emptyFolder(filepath.Join(ctl.dir, "pki")); err != nil {
			return err
		}
		// The backup knows the host, with a certificate that is still valid.
		if err := c.AddController(ctx, ctl, "--name", ctl.Name, "--replace"); err != nil {
			return err
		}
	}
	return nil
}

// emptyFolder removes all that a folder holds.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
