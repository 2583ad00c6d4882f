package doctor

import (
	"context"
	"fmt"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/pkg/cluster"
)

// burst checks the leases of cloud nodes: instances without a lease, offers that are not used, and rental budgets that
// are used up, which only operators see. Without leased nodes it notes nothing.
func (x *exam) burst(ctx context.Context, c *client.Client, status *greylagv1.GetStatusResponse) {
	if n := status.GetBurstOrphans(); n > 0 {
		x.note(Warning, "burst", "they are terminated 5 minutes after they appeared, an hour after a restore from a backup; if not, check the log of gctld on controller "+status.GetId(),
			"instances in the cloud without a lease: %d", n)
	}
	answer, err := c.Cluster().ListLeases(ctx, &greylagv1.ListLeasesRequest{})
	if err != nil || !answer.GetEnabled() {
		return
	}
	bad := len(x.findings)
	x.offers(answer.GetOffers())
	for _, s := range answer.GetSpend() {
		of := "the cluster"
		if s.GetAccount() != "" {
			of = "account " + s.GetAccount()
		}
		if full := s.GetLimit() - s.GetLimit()/100; s.GetLimited() && s.GetLimit() > 0 && s.GetSpent() >= full-s.GetCommitted() {
			x.note(Warning, "burst", "raise the limit in the policy, or wait until next month: gctl burst budget",
				"the rental budget of %s is used up: %s spent and %s committed of %s %s", of,
				cluster.FormatMoney(s.GetSpent()), cluster.FormatMoney(s.GetCommitted()), cluster.FormatMoney(s.GetLimit()), answer.GetCurrency())
		}
	}
	if len(x.findings) == bad {
		x.good("burst", "leases: %d, offers: %d", len(answer.GetLeases()), len(answer.GetOffers()))
	}
}

// offers notes offers that are paused or never used.
func (x *exam) offers(list []*greylagv1.CloudOffer) {
	unused, first := 0, ""
	for _, o := range list {
		why := o.GetFault()
		if o.GetPaused() != nil {
			why = fmt.Sprintf("paused until %s: %s", stamp(o.GetPaused()), o.GetPauseReason())
		}
		if why == "" {
			continue
		}
		if unused++; first == "" {
			first = fmt.Sprintf("%s (%s): %s", o.GetName(), o.GetMarket(), why)
		}
	}
	if unused > 0 {
		x.note(Warning, "burst", "gctl burst offers shows all; leasing resumes automatically when the cause is gone", "%d of %d offers of the cloud are not used, the first: %s", unused, len(list), first)
	}
}
