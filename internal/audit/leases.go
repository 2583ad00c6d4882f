package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

// launches describes the decisions of a plan to lease nodes that were accepted.
func launches(p *cluster.Plan, done *command.Committed, s State) (list []string) {
	for i := range p.Launches {
		l := &p.Launches[i]
		if slices.ContainsFunc(done.Stale, func(x command.Stale) bool { return x.Job == l.Job }) {
			continue
		}
		list = append(list, fmt.Sprintf("lease %s %s (%s) for job %s: worst-case cost %s %s: %s",
			words.Count(l.Nodes, "node"), sanitize(l.Offer.Name), l.Offer.Market, refOf(s, l.Job), cluster.FormatMoney(l.Cost), s.Policy().Burst.Currency, sanitize(l.Why)))
	}
	return list
}

// maxLeases bounds the leases of one entry.
const maxLeases = 100

// describeLeases lists events of leases. That a request is repeated, and console output, are not recorded.
func describeLeases(c *command.UpdateLeases, s State) Description {
	var list []string
	for i := range c.Updates {
		if text := leaseEvent(&c.Updates[i], s); text != "" {
			list = append(list, text)
		}
	}
	if len(list) == 0 {
		return Description{}
	}
	if more := len(list) - maxLeases; more > 0 {
		list = append(list[:maxLeases], fmt.Sprintf("and %d more", more))
	}
	return Description{Kind: "leases", Text: strings.Join(list, "; ")}
}

// leaseEvent describes one event; "" for one that is not recorded.
func leaseEvent(u *command.LeaseUpdate, s State) string {
	text := ""
	switch u.Event {
	case command.LaunchRequested:
		return fmt.Sprintf("launch %d: request %d sent", u.Lease, u.Try)
	case command.LaunchFailed:
		text = fmt.Sprintf("launch %d: request %d failed", u.Lease, u.Try)
	case command.LeaseStarted:
		return fmt.Sprintf("lease %d: instance %s, %s %s an hour", u.Lease, sanitize(u.Instance), cluster.FormatMoney(u.Price), s.Policy().Burst.Currency)
	case command.LeaseMismatched:
		text = fmt.Sprintf("lease %d", u.Lease)
	case command.LeaseReclaimed:
		return fmt.Sprintf("lease %d: reclaim notice: instance ends at %s", u.Lease, date(u.Reclaim))
	case command.LeaseEnded:
		text = fmt.Sprintf("lease %d: instance ended", u.Lease)
		if u.Interrupted {
			text = fmt.Sprintf("lease %d: instance reclaimed by the cloud", u.Lease)
		}
	}
	if text != "" && u.Why != "" {
		text += ": " + sanitize(u.Why)
	}
	return text
}

// describeEndLeases describes an operator's request to end leases.
func describeEndLeases(c *command.EndLeases) Description {
	var list []string
	for i, id := range c.Leases {
		if i == maxLeases {
			list = append(list, fmt.Sprintf("and %d more", len(c.Leases)-i))
			break
		}
		list = append(list, fmt.Sprint(id))
	}
	text := strings.Join(list, " ")
	if c.Now {
		text += " now"
	}
	return Description{"leases end", c.Actor, strings.TrimSuffix(text+": "+sanitize(c.Why), ": ")}
}
