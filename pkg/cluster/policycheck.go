package cluster

import (
	"errors"
	"fmt"
	"time"
)

// ErrInvalidPolicy is wrapped by every fault that [Policy.Validate] finds.
var ErrInvalidPolicy = errors.New("invalid policy")

// Bounds of a policy.
const (
	maxPartitions = 1000
	maxElements   = 1 << 20 // of an array
	maxExtra      = 1_000_000
)

// Validate checks that a policy is well formed by itself and reports every fault it
// finds. It does not read the node lists of partitions. O(size).
func (p *Policy) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %s", ErrInvalidPolicy, fmt.Sprintf(format, args...)))
	}
	checkName(fault, "cluster name", p.Cluster, maxName)
	for _, list := range [][]string{p.Admins, p.Operators} {
		for _, user := range list {
			checkWord(fault, "user", user)
		}
	}
	p.checkPartitions(fault)
	p.checkQOS(fault)
	p.checkPreempt(fault)
	p.Scheduling.check(fault)
	p.Credits.check(fault, p.Partitions)
	for _, d := range []struct {
		what string
		time time.Duration
	}{{"node timeout", p.NodeTimeout}, {"kill wait", p.KillWait}} {
		if d.time < 0 || d.time > maxLimit {
			fault("%s %s is out of range", d.what, d.time)
		}
	}
	if p.MaxArray < 1 || p.MaxArray > maxElements {
		fault("the largest array has %d elements, want 1 to %d", p.MaxArray, maxElements)
	}
	if p.MaxPending < 1 {
		fault("at most %d jobs at once, want at least 1", p.MaxPending)
	}
	if p.MaxRestarts < 0 {
		fault("%d restarts, want at least 0", p.MaxRestarts)
	}
	return errors.Join(faults...)
}

func (p *Policy) checkPartitions(fault func(string, ...any)) {
	if len(p.Partitions) == 0 || len(p.Partitions) > maxPartitions {
		fault("%d partitions, want 1 to %d", len(p.Partitions), maxPartitions)
		return
	}
	seen, defaults := map[string]bool{}, 0
	for _, part := range p.Partitions {
		checkWord(fault, "partition", part.Name)
		if seen[part.Name] {
			fault("two partitions have the name %q", part.Name)
		}
		seen[part.Name] = true
		if part.Default {
			defaults++
		}
		for _, account := range part.AllowAccounts {
			checkWord(fault, "account", account)
		}
		if len(part.Nodes) > maxList {
			fault("partition %q: too many node lists", part.Name)
		}
		for _, d := range []time.Duration{part.MaxTime, part.DefaultTime} {
			if d < 0 || d > maxLimit {
				fault("partition %q: time %s is out of range", part.Name, d)
			}
		}
		if part.MaxTime > 0 && part.DefaultTime > part.MaxTime {
			fault("partition %q: the default time %s is above the limit %s", part.Name, FormatLimit(part.DefaultTime), FormatLimit(part.MaxTime))
		}
		if part.MaxNodes < 0 || part.MemPerCPU < 0 || part.MemPerCPU > maxMemory/maxPerNode {
			fault("partition %q: %d nodes, %s a CPU: out of range", part.Name, part.MaxNodes, part.MemPerCPU)
		}
		if part.MemPerGPU < 0 || part.MemPerGPU > maxMemory/64 { // times maxPerNode it fits
			fault("partition %q: %s a GPU: out of range", part.Name, part.MemPerGPU)
		}
	}
	if defaults > 1 {
		fault("%d partitions are the default one, want at most 1", defaults)
	}
}

func (p *Policy) checkQOS(fault func(string, ...any)) {
	seen := map[string]bool{}
	if len(p.QOS) > maxPartitions {
		fault("%d qos, at most %d", len(p.QOS), maxPartitions)
		return
	}
	for _, q := range p.QOS {
		checkWord(fault, "qos", q.Name)
		if seen[q.Name] {
			fault("two qos have the name %q", q.Name)
		}
		seen[q.Name] = true
		if q.MaxTime < 0 || q.MaxTime > maxLimit {
			fault("qos %q: time %s is out of range", q.Name, q.MaxTime)
		}
		if q.UsageExtra < -100 || q.UsageExtra > maxExtra {
			fault("qos %q: %d %% of extra usage is out of range (-100 to %d)", q.Name, q.UsageExtra, maxExtra)
		}
		checkLimits(func(format string, args ...any) {
			fault("qos %q: %s", q.Name, fmt.Sprintf(format, args...))
		}, q.Limits, true)
	}
	if p.DefaultQOS != "" && !seen[p.DefaultQOS] {
		fault("the default qos %q does not exist", p.DefaultQOS)
	}
}

// checkWord is checkName for what may not be empty.
func checkWord(fault func(string, ...any), what, word string) {
	if word == "" {
		fault("one %s has no name", what)
	}
	checkName(fault, what, word, maxName)
}
