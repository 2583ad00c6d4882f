package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// WriteLease writes a lease. The job is as users write it.
func WriteLease(l *cluster.Lease, job string) *greylagv1.Lease {
	return &greylagv1.Lease{
		Id: uint64(l.ID), Launch: uint64(l.Launch), Nodes: l.Nodes, Node: l.ID.NodeName(), Job: job, Account: l.Account,
		Offer: l.Offer.Name, Market: l.Offer.Market.String(), Region: l.Offer.Region, State: greylagv1.LeaseState(l.State),
		Since: Timestamp(l.Since), Created: Timestamp(l.Created), Launched: Timestamp(l.Launched), Joined: Timestamp(l.Joined),
		Expires: Timestamp(l.Expires), Ended: Timestamp(l.Ended), Reclaim: Timestamp(l.Reclaim), Interrupted: l.Interrupted,
		MaxPrice: l.MaxPrice, Price: l.Price, Reserved: l.Reserved, Cost: l.Cost, Instance: l.Instance, Address: l.Address,
		Why: l.Why, Console: l.Console, Try: l.Try,
	}
}

// WriteOffer writes an offer, and its pause; nil for none.
func WriteOffer(o *cluster.Offer, pause *cluster.OfferPause) *greylagv1.CloudOffer {
	out := &greylagv1.CloudOffer{
		Name: o.Name, Market: o.Market.String(), Region: o.Region, Type: o.Type, Price: o.Price, Priced: Timestamp(o.PricedAt),
		Cpus: o.CPUs, Memory: int64(o.Memory), Gpus: o.GPUs, GpuType: o.GPUType, Boot: durationpb.New(o.Boot), Fault: o.Fault,
	}
	if pause != nil {
		out.Paused, out.PauseReason = Timestamp(pause.Until), pause.Why
	}
	return out
}

// WriteEndedLease writes a lease that has ended, for reports.
func WriteEndedLease(period uint32, x *cluster.EndedLease) *greylagv1.EndedLease {
	l := &x.Lease
	out := &greylagv1.EndedLease{
		Period: period, Lease: uint64(l.ID), Account: l.Account, Job: uint64(l.Job), Partition: x.Partition, Offer: l.Offer.Name, Market: l.Offer.Market.String(),
		Region: l.Offer.Region, Type: l.Offer.Type, Currency: l.Currency, Month: Timestamp(l.Month), Launched: Timestamp(l.Launched), Ended: Timestamp(l.Ended),
		Booked: Timestamp(l.Since), Cost: l.Cost, Interrupted: l.Reclaimed(), Instance: l.Instance, Why: l.Why,
	}
	if l.Launched > 0 {
		out.Ran = durationpb.New(max(min(l.Ended.Sub(l.Launched), l.Lifetime), 0))
	}
	return out
}
