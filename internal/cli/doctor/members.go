package doctor

import (
	"context"
	"slices"
	"sync"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/client"
)

// controllerStatus is the answer of the controller at an address; status is nil if it did not answer.
type controllerStatus struct {
	address string
	status  *greylagv1.GetStatusResponse
}

// statuses asks every controller for its status, all at once.
func statuses(ctx context.Context, c *client.Client, addresses []string) []controllerStatus {
	all := make([]controllerStatus, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			status, err := c.StatusOf(ctx, address)
			if err != nil {
				status = nil // reach reports those that do not answer
			}
			all[i] = controllerStatus{address, status}
		})
	}
	asked.Wait()
	return all
}

// members returns the status that the cluster checks use: the leader's, or that of any member if no
// leader is known; nil if no member answers. A controller that is not a member is noted, and its
// status is ignored. named is the list of controllers in the host's file.
func (x *exam) members(ctx context.Context, c *client.Client, named []string) *greylagv1.GetStatusResponse {
	all := statuses(ctx, c, named)
	var best *greylagv1.GetStatusResponse
	for _, a := range all {
		switch {
		case a.status == nil:
		case !client.IsMember(a.status):
			x.note(Warning, "controllers", "check gctl cluster status; remove it from controllers in client.toml, or wait if it has just joined",
				"%s answers but is not a member of the cluster", a.address)
		case best == nil || best.Leader == "" || a.status.Leader != "" && a.status.Term > best.Term:
			best = a.status
		}
	}
	if best == nil {
		x.note(Fault, "cluster", "set controllers in client.toml to members of the cluster: gctl cluster status on a controller lists them", "no member of the cluster answers")
		return nil
	}
	if best.Leader != "" && best.Leader != best.Id {
		leader := leaderOf(ctx, c, best, all)
		if leader != nil {
			best = leader
		}
	}
	x.compare(best, all)
	x.archives(append(all, statuses(ctx, c, others(best, all))...))
	return best
}

// leaderOf returns the status of the leader that a member reported; nil if it does not answer.
func leaderOf(ctx context.Context, c *client.Client, named *greylagv1.GetStatusResponse, all []controllerStatus) *greylagv1.GetStatusResponse {
	for _, a := range all {
		if a.status.GetId() == named.Leader {
			return a.status
		}
	}
	if named.LeaderAddress == "" {
		return nil
	}
	if status, err := c.StatusOf(ctx, named.LeaderAddress); err == nil && status.Id == named.Leader {
		return status
	}
	return nil
}

// compare notes the voting members that no address in the host's file reaches. It compares members
// by id, since a file may use other names for their addresses. If an address that is not a member's
// does not answer, it may be such a name, and nothing is noted.
func (x *exam) compare(status *greylagv1.GetStatusResponse, all []controllerStatus) {
	var missing []string
	voters := 0
	for _, m := range status.Members {
		if !m.Voter {
			continue
		}
		voters++
		if !slices.ContainsFunc(all, func(a controllerStatus) bool { return a.status.GetId() == m.Id || a.address == m.Address }) {
			missing = append(missing, m.Address)
		}
	}
	unknown := slices.ContainsFunc(all, func(a controllerStatus) bool {
		return a.status == nil && !slices.ContainsFunc(status.Members, func(m *greylagv1.Member) bool { return m.Address == a.address })
	})
	if len(missing) > 0 && !unknown {
		x.note(Warning, "controllers", "remove controllers from client.toml, so that the daemons of this host maintain the list in client.d, or add the missing ones",
			"the commands know %d of %d members; missing: %s", voters-len(missing), voters, words(missing))
	}
}

// others returns the addresses of the members that did not answer at another address.
func others(status *greylagv1.GetStatusResponse, all []controllerStatus) []string {
	var list []string
	for _, m := range status.Members {
		if !slices.ContainsFunc(all, func(a controllerStatus) bool { return a.status.GetId() == m.Id || a.address == m.Address }) {
			list = append(list, m.Address)
		}
	}
	return list
}

// archives notes each controller whose archive lacks history that it should have.
func (x *exam) archives(all []controllerStatus) {
	for _, a := range all {
		if why := a.status.GetArchiveMissing(); why != "" && client.IsMember(a.status) {
			x.note(Warning, "archive", "start the other controllers, which may have the missing data; until then reports and gctl acct may lack jobs, and jobs whose script is on no controller fail",
				"the archive of controller %s is incomplete: %s", a.status.Id, why)
		}
	}
}
