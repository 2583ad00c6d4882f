package gsim

import (
	"fmt"
	"strings"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// settings is the rules of a replay, in the words of the options.
type settings struct {
	Policy    string `json:"policy"`
	Depth     int32  `json:"depth"` // -1: every pending job has a planned start
	Order     string `json:"order,omitempty"`
	Events    string `json:"events,omitempty"`
	Horizon   string `json:"promise_horizon,omitempty"`
	Window    string `json:"window"`
	Replan    string `json:"replan,omitempty"`
	FairShare string `json:"fair_share,omitempty"`
	HalfLife  string `json:"half_life,omitempty"`
}

// settings returns the rules of a replay under a policy. With the events of published schedules
// they are those of the algorithm, whatever else the policy says.
func (r *replaying) settings(p *cluster.Policy) settings {
	if r.events == "oracle" {
		s := settings{Policy: r.policy, Depth: depths()[r.policy], Order: orderFCFS, Events: r.events, Horizon: "unlimited", Window: "unlimited"}
		if r.policy != "conservative" { // no promises
			s.Horizon = "0"
		}
		return s
	}
	return settingsOf(p)
}

// settingsOf returns the rules of a replay in the production order of events.
func settingsOf(p *cluster.Policy) settings {
	rules := &p.Scheduling
	s := settings{
		Policy: fmt.Sprintf("depth %d", rules.Depth), Depth: rules.Depth, Order: orderPriority, Events: "production",
		Horizon: lengthText(rules.PromiseHorizon), Window: lengthText(rules.Window), Replan: lengthText(rules.Replan),
	}
	for name, depth := range depths() {
		if depth == rules.Depth {
			s.Policy = name
		}
	}
	if rules.Window == 0 {
		s.Window = "unlimited"
	}
	if rules.Weights == (cluster.Weights{}) {
		s.Order = orderFCFS
	} else {
		s.FairShare, s.HalfLife = "fair-tree", lengthText(rules.FairShare.HalfLife)
		if rules.FairShare.Classic {
			s.FairShare = "classic"
		}
	}
	return s
}

// String returns one line for people.
func (s *settings) String() string {
	text := fmt.Sprintf("%s, order %s, events %s, promise horizon %s, window %s", s.Policy, s.Order, s.Events, s.Horizon, s.Window)
	if s.Replan != "" {
		text += ", replan " + s.Replan
	}
	if s.FairShare != "" {
		text += ", fair share " + s.FairShare + ", half-life " + s.HalfLife
	}
	return text
}

// lengthText writes a time as the options take it.
func lengthText(d time.Duration) string {
	switch {
	case d < 0:
		return "unlimited"
	case d == 0:
		return "0"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text = strings.TrimSuffix(text+"m", "h0m")
		if !strings.HasSuffix(text, "m") {
			text += "h"
		}
	}
	return text
}
