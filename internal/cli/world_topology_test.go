package cli_test

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// disagreements are what the page's nodes report against a fabric.
func (w *world) disagreements(switches []*greylagv1.Switch) ([]*greylagv1.Disagreement, error) {
	tree, err := state.GrowTopology(wire.ReadSwitches(switches))
	if err != nil {
		return nil, refuse(connect.CodeInvalidArgument, "", "topology: %s", state.ShortFaults(err))
	}
	var nodes []*cluster.Node
	for _, n := range w.nodes.Nodes {
		gpus, err := wire.ReadGPUs(n.Gpus)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, &cluster.Node{Name: n.Name, GPUs: gpus})
	}
	return wire.WriteDisagreements(tree.Disagreements(nodes)), nil
}

func (w *world) SetTopology(_ context.Context, r *greylagv1.SetTopologyRequest) (*greylagv1.SetTopologyResponse, error) {
	w.note(r)
	all, err := w.disagreements(r.Switches)
	if err == nil && !r.DryRun {
		w.fabric = r.Switches
	}
	return &greylagv1.SetTopologyResponse{Version: 1, Disagreements: all}, err
}

func (w *world) GetTopology(context.Context, *greylagv1.GetTopologyRequest) (*greylagv1.GetTopologyResponse, error) {
	all, err := w.disagreements(w.fabric)
	return &greylagv1.GetTopologyResponse{
		Switches: w.fabric, Version: 1, By: "root", Disagreements: all,
		Since: timestamppb.New(time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)),
	}, err
}
