package state

import (
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/hostlist"
	"github.com/greylag/greylag/pkg/cluster"
)

// checkPolicy returns every fault for which [State.Apply] would refuse a policy. O(size).
func checkPolicy(p *cluster.Policy) error {
	faults := []error{p.Validate()}
	for _, part := range p.Partitions {
		for _, expr := range part.Nodes {
			if expr == "ALL" {
				continue
			}
			if _, err := hostlist.Expand(expr); err != nil {
				faults = append(faults, fmt.Errorf("partition %q: nodes: %w", part.Name, err))
			}
		}
	}
	for _, r := range p.Scheduling.Reservations {
		for _, expr := range r.Nodes {
			if _, err := hostlist.Expand(expr); err != nil {
				faults = append(faults, fmt.Errorf("reservation %q: nodes: %w", r.Name, err))
			}
		}
	}
	return errors.Join(faults...)
}

func (s *State) initialise(c *command.Init) command.Result {
	policy := c.Policy
	if len(policy.Partitions) == 0 {
		policy = cluster.DefaultPolicy()
	}
	err := checkPolicy(&policy)
	switch {
	case s.clusterID == c.ClusterID && c.ClusterID != "":
		return &command.Done{Version: s.policy.Version} // a repetition
	case s.clusterID != "":
		return command.Refuse(command.Conflict, "this cluster has already been initialized", "nothing changed")
	case c.ClusterID == "" || len(c.ClusterID) > maxNodeName:
		return command.Refuse(command.InvalidArgument, "a new cluster needs an ID", "")
	case err != nil:
		return command.Refuse(command.InvalidArgument, "policy: "+command.OneLine(err), "")
	}
	s.clusterID = c.ClusterID
	s.setPolicy(&policy)
	return &command.Done{Version: s.policy.Version}
}

func (s *State) applyPolicy(c *command.ApplyPolicy) command.Result {
	if again := s.repeated(c.Request); again != nil {
		return again
	}
	policy := c.Policy
	if err := checkPolicy(&policy); err != nil {
		return command.Refuse(command.InvalidArgument, "policy: "+command.OneLine(err), "")
	}
	switch {
	case !c.Actor.Has(command.RoleAdmin):
		return s.remember(c.Request, command.Refusef(command.Denied, "%s may not change the policy: requires role admin", c.Actor.Identity.User))
	case c.Expect != 0 && c.Expect != s.policy.Version:
		return s.remember(c.Request, command.WithHint(command.Refusef(command.Conflict, "the policy has version %d, not %d: it was changed meanwhile", s.policy.Version, c.Expect), "merge your change into gctl show policy, or overwrite it: gctl apply --force"))
	}
	if !audit.SamePolicy(&policy, s.policy) {
		s.setPolicy(&policy)
	}
	return s.remember(c.Request, &command.Done{Version: s.policy.Version})
}

// setPolicy puts a policy in force. Pending jobs keep the defaults of their submission. Jobs whose
// partition was removed wait until it is back.
func (s *State) setPolicy(p *cluster.Policy) {
	p.Version = s.policy.Version + 1
	if p.Burst.Currency != s.policy.Burst.Currency {
		s.leases.DropOffers()
	}
	s.policy = p
	s.accounts.SetHalfLife(s.now, p.Scheduling.FairShare.HalfLife)
	s.policyHash = s.hashPolicy()
	s.partitions = nil
	if !p.Fencing {
		s.proveAll()
	}
	s.totals.Retain(p)
	s.credits.RetryAll()
	s.credits.NarrowAll(p, s.pending.All())
	s.effects.Changed = append(s.effects.Changed, Change{Kind: PolicyChanged})
}
