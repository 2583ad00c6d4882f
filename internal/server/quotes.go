package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// inAll returns, for an array, that the available credits do not cover all of its elements, since
// the refusal names the first element that exceeds them; "" for other jobs.
func inAll(q *credits.Quote, subs []command.Submission) string {
	if q.Refused == nil || q.Claim == nil || len(subs) != 1 || len(subs[0].Array) == 0 || q.Amount <= q.Usable {
		return ""
	}
	return fmt.Sprintf("; all elements need %s, and there is %s", q.Amount, q.Usable)
}

// quoted is the quote of jobs. One is made at a time.
func (s *Server) quoted(ctx context.Context, v *state.View, c *call.Caller, subs []command.Submission) (credits.Quote, error) {
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return credits.Quote{}, ctx.Err()
	}
	return v.Quote(c.User.Identity, subs), nil
}

// unpaidArray adds the total of the whole array to the refusal of an array that cannot be paid for.
func (s *Server) unpaidArray(ctx context.Context, c *call.Caller, subs []command.Submission, err error) error {
	v := s.cfg.State.View()
	var r *command.Refusal
	if !errors.As(err, &r) || r.Code != command.Exhausted || len(subs) != 1 || len(subs[0].Array) == 0 || !v.Policy().Credits.On {
		return err
	}
	q, gone := s.quoted(ctx, v, c, subs)
	if gone == nil && q.Refused != nil && q.Refused.Message == r.Message { // nothing changed meanwhile
		r.Message += inAll(&q, subs)
	}
	return err
}

// warnMaxPrice warns of the first job whose --max-price is below the present price of each GPU that
// it may get: it waits for a lower price. O(GPUs) if a job has one.
func warnMaxPrice(v *state.View, now cluster.Instant, subs []command.Submission) []string {
	for i := range subs {
		r := &subs[i].Spec.Request
		if r.MaxPrice == 0 {
			continue
		}
		prices, low := map[string]accounting.Credits{}, false
		for n := range v.Nodes() {
			for g := range n.GPUs {
				if kind := n.GPUs[g].Type; r.AcceptsGPU(kind) {
					price, _ := v.Credits().Price(n.GPUs[g].PricedType(), now) // without a price it costs nothing
					prices[kind] = price
					low = low || price <= accounting.Credits(r.MaxPrice)
				}
			}
		}
		if low || len(prices) == 0 {
			continue
		}
		var costs []string
		for _, kind := range slices.Sorted(maps.Keys(prices)) {
			costs = append(costs, kind+" "+prices[kind].Short())
		}
		return []string{fmt.Sprintf("no GPU costs at most --max-price %s per hour now: %s; the job waits for a lower price",
			accounting.Credits(r.MaxPrice).Short(), strings.Join(costs, ", "))}
	}
	return nil
}
