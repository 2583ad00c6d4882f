package server

import (
	"context"
	"slices"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
)

// GetTopology returns the fabric, and where nodes disagree with it.
func (s *clusterService) GetTopology(ctx context.Context, p *greylagv1.GetTopologyRequest) (*greylagv1.GetTopologyResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	switches, version, since, by := v.Topology()
	return &greylagv1.GetTopologyResponse{
		Switches: wire.WriteSwitches(switches), Version: version, Since: wire.Timestamp(since), By: by,
		Disagreements: wire.WriteDisagreements(v.Fabric().Disagreements(slices.Collect(v.Nodes()))), AsOf: asOf,
	}, nil
}

// SetTopology replaces the fabric, or with DryRun only returns whether it is valid and where nodes
// disagree with it.
func (s *clusterService) SetTopology(ctx context.Context, p *greylagv1.SetTopologyRequest) (*greylagv1.SetTopologyResponse, error) {
	c := call.From(ctx)
	switches := wire.ReadSwitches(p.GetSwitches())
	tree, err := state.GrowTopology(switches)
	if err != nil {
		return nil, call.Refuse(command.InvalidArgument, "", "topology: %s", state.ShortFaults(err))
	}
	v, _, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, version, _, _ := v.Topology()
	response := &greylagv1.SetTopologyResponse{
		Version: version, Disagreements: wire.WriteDisagreements(tree.Disagreements(slices.Collect(v.Nodes()))),
	}
	if p.GetDryRun() {
		return response, nil
	}
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	done, _, err := call.Propose[*command.Done](ctx, s.cfg.Leader, &command.SetTopology{
		Request: id, Actor: c.Actor(), Switches: switches, Expect: p.GetExpectVersion(),
	})
	if err != nil {
		return nil, err
	}
	response.Version = done.Version
	return response, nil
}
