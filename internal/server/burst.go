package server

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// ListLeases lists leases, prices and spend. Callers who are no operators see the leases of their own jobs, and no
// spend. O(leases + offers + accounts with a budget).
func (s *clusterService) ListLeases(ctx context.Context, p *greylagv1.ListLeasesRequest) (*greylagv1.ListLeasesResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, p.GetRead())
	if err != nil {
		return nil, err
	}
	policy, actor := &v.Policy().Burst, call.From(ctx).Actor()
	response := &greylagv1.ListLeasesResponse{AsOf: asOf, Enabled: policy.On, Currency: policy.Currency, Provider: s.cfg.Rents}
	operator := actor.Has(command.RoleOperator)
	for l := range v.Leases() {
		if !l.Live() && !p.GetEnded() {
			continue
		}
		j, known := v.Job(l.Job)
		if !operator && !(known && actor.Owns(j.Spec.Owner)) {
			continue
		}
		response.Leases = append(response.Leases, wire.WriteLease(l, jobText(v, l.Job)))
	}
	pauses := map[cluster.OfferKey]*cluster.OfferPause{}
	for p := range v.Pauses() {
		if p.Until > cluster.InstantOf(s.cfg.Clock()) {
			pauses[p.Offer] = p
		}
	}
	for o := range v.Offers() {
		response.Offers = append(response.Offers, wire.WriteOffer(o, pauses[o.Key()]))
	}
	if operator {
		for _, x := range v.Spend(cluster.InstantOf(s.cfg.Clock())) {
			response.Spend = append(response.Spend, &greylagv1.RentalSpend{
				Account: x.Account, Limit: x.Limit, Limited: x.Limited, Spent: x.Spent, Committed: x.Committed,
			})
		}
	}
	return response, nil
}

// jobText returns a job as users write it; "" for none.
func jobText(v *state.View, id cluster.JobID) string {
	if id == 0 { // of an adopted lease
		return ""
	}
	if j, known := v.Job(id); known {
		return j.Ref().String()
	}
	return cluster.JobRef{ID: id, Index: cluster.NoIndex}.String()
}

// EndLeases ends leases for an operator.
func (s *clusterService) EndLeases(ctx context.Context, p *greylagv1.EndLeasesRequest) (*greylagv1.EndLeasesResponse, error) {
	c := call.From(ctx)
	id, err := c.Identify(p)
	if err != nil {
		return nil, err
	}
	if len(p.GetLeases()) == 0 {
		return nil, call.Refuse(command.InvalidArgument, "list them with gctl burst list", "no lease given")
	}
	request := &command.EndLeases{Request: id, Actor: c.Actor(), Now: p.GetNow(), Why: p.GetReason()}
	for _, n := range p.GetLeases() {
		request.Leases = append(request.Leases, cluster.LeaseID(n))
	}
	answer, _, err := call.Propose[*command.Named](ctx, s.cfg.Leader, request)
	if err != nil {
		return nil, err
	}
	response := &greylagv1.EndLeasesResponse{}
	for _, node := range answer.Names {
		if id, leased := cluster.LeaseOf(node); leased {
			response.Leases = append(response.Leases, uint64(id))
		}
	}
	return response, nil
}

// PlanBurst returns what would be leased now. O(jobs log jobs): it plans all jobs.
func (s *clusterService) PlanBurst(ctx context.Context, _ *greylagv1.PlanBurstRequest) (*greylagv1.PlanBurstResponse, error) {
	v, asOf, err := s.views.Fresh(ctx, nil)
	if err != nil {
		return nil, err
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	policy := &v.Policy().Burst
	response := &greylagv1.PlanBurstResponse{AsOf: asOf, Enabled: policy.On, Currency: policy.Currency}
	for _, x := range schedule.BurstReport(v.Snapshot()) {
		j, known := v.Job(x.Job)
		if !known {
			continue
		}
		choice := &greylagv1.BurstChoice{
			Job: j.Ref().String(), User: j.Spec.Owner.User, Planned: wire.Timestamp(x.At), Saved: durationpb.New(x.Saved), Nodes: x.Nodes,
			Cost: x.Cost, Value: x.Value, Lease: x.Commit, Why: x.Why,
		}
		if x.Offer != nil {
			choice.Offer, choice.Market = x.Offer.Name, x.Offer.Market.String()
		}
		response.Choices = append(response.Choices, choice)
	}
	return response, nil
}
