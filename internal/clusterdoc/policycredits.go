package clusterdoc

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// creditRules is the table [credits] of the policy.
type creditRules struct {
	Enabled     bool          `toml:"enabled" was:"on"`
	Partitions  []string      `toml:"partitions"`              // whose jobs are charged; empty: all
	LienWindow  time.Duration `toml:"lien_window"`             // "0s": the whole time limit is reserved
	Prices      string        `toml:"prices" one:"quoted,day"` // of the time of submission, or of each day
	FaultRefund time.Duration `toml:"fault_refund"`            // most work that is refunded after a fault
}

func (p *policy) credits() cluster.CreditPolicy {
	x := &p.Credits
	return cluster.CreditPolicy{
		On: x.Enabled, Partitions: orNone(x.Partitions), LienWindow: x.LienWindow, Floating: x.Prices == "day", FaultRefund: x.FaultRefund,
	}
}

func (p *policy) creditsOf(x *cluster.CreditPolicy) {
	p.Credits = creditRules{Enabled: x.On, Partitions: x.Partitions, LienWindow: x.LienWindow, Prices: "quoted", FaultRefund: x.FaultRefund}
	if x.Floating {
		p.Credits.Prices = "day"
	}
}

// orNone returns a list, or nil for one without elements.
func orNone(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
