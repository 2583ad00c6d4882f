package clusterdoc

import (
	"math"
	"strconv"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
)

// burstRules is the table [burst] of the policy.
type burstRules struct {
	Enabled      bool          `toml:"enabled" was:"on"`
	Currency     string        `toml:"currency"`
	MonthlyLimit amount        `toml:"monthly_limit"` // 0: nothing may be spent
	Regions      []string      `toml:"regions"`       // empty: all
	MaxNodes     int           `toml:"max_nodes"`     // 0: no limit
	MinPending   time.Duration `toml:"min_pending"`
	BootTimeout  time.Duration `toml:"boot_timeout"`
	IdleTime     time.Duration `toml:"idle_time"` // "0s": as long as a node takes to join
	SpotPatience time.Duration `toml:"spot_patience"`
	// InterruptionRisk is a probability for an hour.
	InterruptionRisk amount        `toml:"interruption_risk"`
	StagingTime      time.Duration `toml:"staging_time"`
}

// burstBudget is what leases for an account and its descendants may cost in one month.
type burstBudget struct {
	Account string `toml:"account"`
	Monthly amount `toml:"monthly"`
}

// checkBurst requires numbers within the types of the policy.
func (p *policy) checkBurst(c *strict.Checker) {
	c.Between("burst.max_nodes", p.Burst.MaxNodes, 0, math.MaxInt32)
	if p.Burst.InterruptionRisk > cluster.OneUnit {
		c.Fault("burst.interruption_risk", "%s is out of range (0 to 1)", cluster.FormatMoney(int64(p.Burst.InterruptionRisk)))
		p.Burst.InterruptionRisk = 0
	}
}

func (p *policy) burst() cluster.BurstPolicy {
	x := &p.Burst
	out := cluster.BurstPolicy{
		On: x.Enabled, Currency: x.Currency, MonthlyLimit: int64(x.MonthlyLimit), Regions: orNone(x.Regions), MaxNodes: int32(x.MaxNodes),
		MinPending: x.MinPending, BootTimeout: x.BootTimeout, IdleTime: x.IdleTime, SpotPatience: x.SpotPatience,
		InterruptionRisk: int32(x.InterruptionRisk), StagingTime: x.StagingTime,
	}
	for _, b := range p.Budgets {
		out.Budgets = append(out.Budgets, cluster.RentalBudget{Account: b.Account, Monthly: int64(b.Monthly)})
	}
	return out
}

func (p *policy) burstOf(x *cluster.BurstPolicy) {
	p.Burst = burstRules{
		Enabled: x.On, Currency: x.Currency, MonthlyLimit: amount(x.MonthlyLimit), Regions: x.Regions, MaxNodes: int(x.MaxNodes),
		MinPending: x.MinPending, BootTimeout: x.BootTimeout, IdleTime: x.IdleTime, SpotPatience: x.SpotPatience,
		InterruptionRisk: amount(x.InterruptionRisk), StagingTime: x.StagingTime,
	}
	for _, b := range x.Budgets {
		p.Budgets = append(p.Budgets, burstBudget{Account: b.Account, Monthly: amount(b.Monthly)})
	}
}

// amount is a decimal number in millionths: a number, or one in quotes.
type amount int64

// exactBelow is below what amounts a number of the file is exact.
const exactBelow = 1 << 53

func (a *amount) Read(d *strict.Decoder, path string, value any) {
	text := ""
	switch v := value.(type) {
	case int64:
		text = strconv.FormatInt(v, 10)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		text = v
	default:
		d.Fault(path, "expected a number, found %s", strict.Describe(value))
		return
	}
	n, err := cluster.ParseMoney(text)
	if err != nil {
		d.Fault(path, "%v", err)
		return
	}
	*a = amount(n)
}

// Write returns a number, or a text where a number would not be exact.
func (a amount) Write() any {
	switch {
	case a%cluster.OneUnit == 0:
		return int64(a / cluster.OneUnit)
	case a < exactBelow:
		return float64(a) / cluster.OneUnit
	}
	return cluster.FormatMoney(int64(a))
}

// burstMode is a word of --burst, or "" for none.
type burstMode cluster.BurstMode

func (m *burstMode) Read(d *strict.Decoder, path string, value any) {
	word, isText := value.(string)
	if !isText {
		d.Fault(path, "expected a string, found %s", strict.Describe(value))
		return
	}
	mode, err := cluster.ParseBurstMode(word)
	if err != nil {
		d.Fault(path, "%v", err)
		return
	}
	*m = burstMode(mode)
}

func (m burstMode) Write() any { return cluster.BurstMode(m).String() }

// spotShare is a percentage of spot nodes. It holds the rest, which is the percentage of nodes on demand, so that a QOS
// without the key may have spot nodes only.
type spotShare int32

func (s *spotShare) Read(d *strict.Decoder, path string, value any) {
	v, isNumber := value.(int64)
	switch {
	case !isNumber:
		d.Fault(path, "expected an integer, found %s", strict.Describe(value))
	case v < 0 || v > 100:
		d.Fault(path, "%d is out of range, 0 to 100", v)
	default:
		*s = spotShare(100 - v)
	}
}

func (s spotShare) Write() any { return int64(100 - s) }
