package cluster

import (
	"slices"
	"strings"
	"time"
)

// Bounds of the rules of cloud nodes.
const (
	maxRegions     = 64
	maxJobRegions  = 32
	maxBudgets     = 100_000
	minBootTimeout = time.Second
	maxBootTimeout = 24 * time.Hour
)

// Cloud returns the partition of the leased nodes; false if the policy has none. O(partitions).
func (p *Policy) Cloud() (Partition, bool) {
	i := slices.IndexFunc(p.Partitions, func(part Partition) bool { return part.Cloud() })
	if i < 0 {
		return Partition{}, false
	}
	return p.Partitions[i], true
}

// Cloud reports whether the partition is that of the leased nodes.
func (part *Partition) Cloud() bool { return len(part.Nodes) == 1 && part.Nodes[0] == LeasedNodes }

// checkBurst reports faults of the rules of cloud nodes.
func (p *Policy) checkBurst(fault faultReporter) {
	b := &p.Burst
	b.check(fault)
	p.checkCloudPartitions(fault)
	if _, found := p.Cloud(); b.On && !found {
		fault("burst.enabled", "no partition has nodes = [%q]: add one for the leased nodes", LeasedNodes)
	}
	if b.On && b.MonthlyLimit == 0 {
		fault("burst.monthly_limit", "must be above 0 if burst.enabled = true")
	}
	for i := range p.QOS {
		q, at := &p.QOS[i], element("qos", i)
		if q.Burst > BurstOnly {
			fault(at+".burst", "qos %q: unknown mode %d", q.Name, q.Burst)
		}
		checkMoney(fault, at+".burst_value", q.BurstValue)
		checkTime(fault, at+".burst_max_wait", q.BurstMaxWait, 0, maxLimit)
		if q.MinOnDemand < 0 || q.MinOnDemand > 100 {
			fault(at+".spot_share", "qos %q: a spot share of %d %% is out of range (0 to 100)", q.Name, 100-int64(q.MinOnDemand))
		}
	}
}

// check checks the rules by themselves.
func (b *BurstPolicy) check(fault faultReporter) {
	if len(b.Currency) != 3 || strings.Trim(b.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		fault("burst.currency", "%q is not a currency: want three upper-case letters, such as USD", Sanitize(b.Currency, maxName))
	}
	checkMoney(fault, "burst.monthly_limit", b.MonthlyLimit)
	if len(b.Regions) > maxRegions {
		fault("burst.regions", "%d regions, at most %d", len(b.Regions), maxRegions)
	}
	for i, region := range b.Regions {
		at := element("burst.regions", i)
		checkWord(fault.at(at), "region", region)
		if slices.Contains(b.Regions[:i], region) {
			fault(at, "region %q is listed twice", region)
		}
	}
	if b.MaxNodes < 0 || b.MaxNodes > maxNodes {
		fault("burst.max_nodes", "%d nodes are out of range (0 to %d)", b.MaxNodes, maxNodes)
	}
	checkTime(fault, "burst.min_pending", b.MinPending, 0, maxLimit)
	checkTime(fault, "burst.boot_timeout", b.BootTimeout, minBootTimeout, maxBootTimeout)
	checkTime(fault, "burst.idle_time", b.IdleTime, 0, maxLimit)
	checkTime(fault, "burst.spot_patience", b.SpotPatience, 0, maxLimit)
	checkTime(fault, "burst.staging_time", b.StagingTime, 0, maxBootTimeout)
	if b.InterruptionRisk < 0 || b.InterruptionRisk > OneUnit {
		fault("burst.interruption_risk", "%s is out of range (0 to 1)", FormatMoney(int64(b.InterruptionRisk)))
	}
	if len(b.Budgets) > maxBudgets {
		fault("burst_budget", "%d budgets, at most %d", len(b.Budgets), maxBudgets)
		return
	}
	seen := make(map[string]bool, len(b.Budgets))
	for i, x := range b.Budgets {
		at := element("burst_budget", i)
		checkWord(fault.at(at+".account"), "account", x.Account)
		if seen[x.Account] {
			fault(at+".account", "account %q has two budgets", x.Account)
		}
		seen[x.Account] = true
		checkMoney(fault, at+".monthly", x.Monthly)
	}
}

// checkCloudPartitions checks that at most one partition has the leased nodes, and no others.
func (p *Policy) checkCloudPartitions(fault faultReporter) {
	found := ""
	for i := range p.Partitions {
		part, at := &p.Partitions[i], element("partition", i)
		if part.Burst > BurstOnly {
			fault(at+".burst", "partition %q: unknown mode %d", part.Name, part.Burst)
		}
		for n, list := range part.Nodes[:min(len(part.Nodes), maxList)] {
			switch {
			case strings.HasPrefix(list, LeasedPrefix):
				fault(element(at+".nodes", n), "partition %q: names with the prefix %q are reserved for leased nodes: use nodes = [%q]", part.Name, LeasedPrefix, LeasedNodes)
			case list == LeasedNodes && len(part.Nodes) > 1:
				fault(element(at+".nodes", n), "partition %q: %q cannot be combined with other nodes: leased nodes need a partition of their own", part.Name, LeasedNodes)
			}
		}
		switch {
		case !part.Cloud():
			continue
		case found != "":
			fault(at+".nodes", "partitions %q and %q both have the leased nodes; only one may", found, part.Name)
		case part.Default:
			fault(at+".default", "partition %q has the leased nodes and cannot be the default partition", part.Name)
		case part.Burst != BurstDefault:
			fault(at+".burst", "partition %q: its jobs always run on leased nodes: remove burst", part.Name)
		}
		found = part.Name
	}
}

// checkMoney requires an amount from 0 to MaxMoney.
func checkMoney(fault faultReporter, key string, amount int64) {
	if amount < 0 || amount > MaxMoney {
		fault(key, "%s is out of range (0 to %d)", FormatMoney(amount), int64(MaxMoney/OneUnit))
	}
}

// checkTime requires a time within bounds.
func checkTime(fault faultReporter, key string, d, least, most time.Duration) {
	if d < least || d > most {
		fault(key, "%s is out of range (%s to %s)", d, least, most)
	}
}

// checkBurst checks what a job says about leased nodes.
func (s *JobSpec) checkBurst(fault func(string, ...any)) {
	b := &s.Burst
	if b.Mode > BurstOnly || b.Market > OnDemand {
		fault("unknown mode %d or market %d of leased nodes", b.Mode, b.Market)
	}
	if b.MaxCost < 0 || b.MaxCost > MaxMoney {
		fault("--burst-max-cost=%s is out of range (0 to %d)", FormatMoney(b.MaxCost), int64(MaxMoney/OneUnit))
	}
	if len(b.Regions) > maxJobRegions {
		fault("--burst-regions has %d regions, at most %d", len(b.Regions), maxJobRegions)
		return
	}
	for i, region := range b.Regions {
		checkWord(fault, "region", region)
		if slices.Contains(b.Regions[:i], region) {
			fault("region %q is named twice", region)
		}
	}
}
