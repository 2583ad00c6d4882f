package main

import (
	"path/filepath"

	"github.com/greylag/greylag/internal/agent"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/leased"
)

// leaseOf returns what the agent does on a leased node; nil for a node of the site.
func leaseOf(cfg config.Node, clusterID string) (*agent.Lease, error) {
	file, err := leased.Load(cfg.LeaseFile, cfg.Name, clusterID)
	if file == nil || err != nil {
		return nil, err
	}
	notices, err := leased.Open(cfg.ReclaimSource, cfg.ReclaimURL)
	if err != nil {
		return nil, err
	}
	l := &agent.Lease{Instance: file.Instance, Expires: file.Expires, IdleLimit: cfg.LeaseIdleLimit, Notices: notices, Ended: client.LeaseEnded}
	if l.WorkDir = filepath.Join(filepath.Dir(cfg.DataDir), "work"); cfg.ScratchDir != "" {
		l.WorkDir = filepath.Join(cfg.ScratchDir, "work")
	}
	if cfg.PowerOffProgram != "" {
		l.PowerOff = []string{cfg.PowerOffProgram}
	}
	if cfg.BlockMetadata {
		l.Block = leased.BlockMetadata
	}
	return l, nil
}
