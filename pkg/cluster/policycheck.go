package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// ErrInvalidPolicy is wrapped by every error of [Policy.Validate].
var ErrInvalidPolicy = errors.New("invalid policy")

// PolicyFault is one error or warning about a policy.
type PolicyFault struct {
	Key     string // its path in a policy file, such as partition[1].max_time
	Problem string
}

// Error returns the problem.
func (f PolicyFault) Error() string { return ErrInvalidPolicy.Error() + ": " + f.Problem }

// Unwrap returns ErrInvalidPolicy.
func (f PolicyFault) Unwrap() error { return ErrInvalidPolicy }

// faultReporter records an error in the value of a key.
type faultReporter func(key, format string, args ...any)

// at returns the reporter of one key.
func (b faultReporter) at(key string) func(format string, args ...any) {
	return func(format string, args ...any) { b(key, format, args...) }
}

// element returns the key of a list element.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// Bounds of a policy.
const (
	maxPartitions = 1000
	maxElements   = 1 << 20 // of an array
	maxExtra      = 1_000_000
)

// Validate checks that a policy is well formed by itself and reports every error. It does not read
// the node lists of partitions. O(size).
func (p *Policy) Validate() error {
	var faults []error
	for _, f := range p.Faults() {
		faults = append(faults, f)
	}
	return errors.Join(faults...)
}

// Faults returns the errors of [Policy.Validate] one by one.
func (p *Policy) Faults() []PolicyFault {
	var faults []PolicyFault
	fault := faultReporter(func(key, format string, args ...any) {
		faults = append(faults, PolicyFault{key, fmt.Sprintf(format, args...)})
	})
	checkName(fault.at("cluster"), "cluster name", p.Cluster, maxName)
	for i, user := range p.Admins {
		checkWord(fault.at(element("admins", i)), "user", user)
	}
	for i, user := range p.Operators {
		checkWord(fault.at(element("operators", i)), "user", user)
	}
	p.checkPartitions(fault)
	p.checkQOS(fault)
	p.checkPreempt(fault)
	p.checkCheckpointStores(fault)
	p.checkStagingCredentials(fault)
	p.Scheduling.check(fault)
	p.Credits.check(fault, p.Partitions)
	for _, d := range []struct {
		key, what string
		time      time.Duration
	}{{"node_timeout", "node timeout", p.NodeTimeout}, {"reboot_timeout", "reboot timeout", p.RebootTimeout}, {"kill_wait", "kill wait", p.KillWait}, {"preempt_exempt", "preempt exempt time", p.PreemptExempt}} {
		if d.time < 0 || d.time > maxLimit {
			fault(d.key, "%s %s is out of range", d.what, d.time)
		}
	}
	if p.MaxArray < 1 || p.MaxArray > maxElements {
		fault("max_array", "the largest array has %d elements, want 1 to %d", p.MaxArray, maxElements)
	}
	if p.MaxJobs < 1 {
		fault("max_jobs", "at most %d jobs at once, want at least 1", p.MaxJobs)
	}
	checkInactive(fault, "", p.InactiveWarning, p.InactiveLimit)
	checkOutput(fault, "", p.OutputWarn, p.MaxOutput)
	if err := p.Retry.Check(); err != nil || p.Retry.Limit < 0 {
		fault("retry", "%d retries after %q, want 0 to %d and causes such as exit, exit:75, oom", p.Retry.Limit, p.Retry.Causes(), MaxRetries)
	}
	if p.MaxRestarts < 0 {
		fault("max_restarts", "%d restarts, want at least 0", p.MaxRestarts)
	}
	if p.PreemptGrace < 0 || p.PreemptGrace > maxPreemptGrace {
		fault("preempt_grace", "preempt grace time %s, want 0s to %s", p.PreemptGrace, maxPreemptGrace)
	}
	p.Elastic.check(fault)
	p.checkBurst(fault)
	if p.MaxPreemptions < 0 {
		fault("max_preemptions", "%d preemptions, want at least 0", p.MaxPreemptions)
	}
	return faults
}

func (p *Policy) checkPartitions(fault faultReporter) {
	if len(p.Partitions) == 0 || len(p.Partitions) > maxPartitions {
		fault("partition", "%d partitions, want 1 to %d", len(p.Partitions), maxPartitions)
		return
	}
	seen, defaults := map[string]bool{}, 0
	for i := range p.Partitions {
		part, at := &p.Partitions[i], element("partition", i)
		checkWord(fault.at(at+".name"), "partition", part.Name)
		if seen[part.Name] {
			fault(at+".name", "two partitions have the name %q", part.Name)
		}
		seen[part.Name] = true
		if part.Default {
			defaults++
		}
		if part.Default && defaults == 2 {
			fault(at+".default", "partition %q is the default one too, want at most one", part.Name)
		}
		part.check(fault, at)
	}
}

// check checks one partition by itself.
func (part *Partition) check(fault faultReporter, at string) {
	for i, account := range part.AllowAccounts {
		checkWord(fault.at(element(at+".allow_accounts", i)), "account", account)
	}
	if len(part.Nodes) > maxList {
		fault(at+".nodes", "partition %q: too many node lists", part.Name)
	}
	if d := part.MaxTime; d < 0 || d > maxLimit {
		fault(at+".max_time", "partition %q: time %s is out of range", part.Name, d)
	}
	if d := part.DefaultTime; d < 0 || d > maxLimit {
		fault(at+".default_time", "partition %q: time %s is out of range", part.Name, d)
	}
	if part.MaxTime > 0 && part.DefaultTime > part.MaxTime {
		fault(at+".default_time", "partition %q: the default time %s is above the limit %s", part.Name, FormatLimit(part.DefaultTime), FormatLimit(part.MaxTime))
	}
	if part.MaxNodes < 0 {
		fault(at+".max_nodes", "partition %q: %d nodes: out of range", part.Name, part.MaxNodes)
	}
	if part.MemPerCPU < 0 || part.MemPerCPU > maxMemory/maxPerNode {
		fault(at+".mem_per_cpu", "partition %q: %s a CPU: out of range", part.Name, part.MemPerCPU)
	}
	if part.MemPerGPU < 0 || part.MemPerGPU > maxMemory/64 { // times maxPerNode it does not overflow
		fault(at+".mem_per_gpu", "partition %q: %s a GPU: out of range", part.Name, part.MemPerGPU)
	}
	if part.GPUShare != 0 && !slices.Contains(GPUShares[:], part.GPUShare) {
		fault(at+".gpu_share", "partition %q: %d jobs cannot share a GPU, want 0 (none), 2, 4 or 8", part.Name, part.GPUShare)
	}
}

func (p *Policy) checkQOS(fault faultReporter) {
	seen := map[string]bool{}
	if len(p.QOS) > maxPartitions {
		fault("qos", "%d qos, at most %d", len(p.QOS), maxPartitions)
		return
	}
	for i, q := range p.QOS {
		at := element("qos", i)
		checkWord(fault.at(at+".name"), "qos", q.Name)
		if seen[q.Name] {
			fault(at+".name", "two qos have the name %q", q.Name)
		}
		seen[q.Name] = true
		if q.MaxTime < 0 || q.MaxTime > maxLimit {
			fault(at+".max_time", "qos %q: time %s is out of range", q.Name, q.MaxTime)
		}
		p.checkInactiveOf(fault, at+".", &q)
		checkOutput(fault, at+".", q.OutputWarn, q.MaxOutput)
		if q.DefaultTime < 0 || q.DefaultTime > maxLimit {
			fault(at+".default_time", "qos %q: the default time %s is out of range", q.Name, q.DefaultTime)
		} else if q.MaxTime > 0 && q.DefaultTime > q.MaxTime {
			fault(at+".default_time", "qos %q: the default time %s is above the limit %s", q.Name, FormatLimit(q.DefaultTime), FormatLimit(q.MaxTime))
		}
		if q.UsageExtra < -100 || q.UsageExtra > maxExtra {
			fault(at+".usage_extra", "qos %q: %d %% of extra usage is out of range (-100 to %d)", q.Name, q.UsageExtra, maxExtra)
		}
		checkLimits(func(format string, args ...any) {
			fault(at+".limits", "qos %q: %s", q.Name, fmt.Sprintf(format, args...))
		}, q.Limits, true)
	}
	if p.DefaultQOS != "" && !seen[p.DefaultQOS] {
		fault("default_qos", "the default qos %q does not exist", p.DefaultQOS)
	}
}

// checkWord is checkName for a value that may not be empty.
func checkWord(fault func(string, ...any), what, word string) {
	if word == "" {
		fault("one %s has no name", what)
	}
	checkName(fault, what, word, maxName)
}

// checkInactiveOf checks the times of a QOS that sets one of them, together with those of the policy.
func (p *Policy) checkInactiveOf(fault faultReporter, at string, q *QOS) {
	warn, limit := p.inactiveTimes(q)
	switch {
	case q.InactiveWarning == 0 && q.InactiveLimit == 0:
	case q.InactiveWarning < Unlimited:
		fault(at+"inactive_warning", "%s is out of range: 0s to %dd", q.InactiveWarning, maxLimit/(24*time.Hour))
	case q.InactiveLimit < Unlimited:
		fault(at+"inactive_limit", "%s is out of range: 0s to %dd", q.InactiveLimit, maxLimit/(24*time.Hour))
	default:
		checkInactive(fault, at, warn, limit)
	}
}

// checkInactive checks after how long inactive jobs get a warning, and end.
func checkInactive(fault faultReporter, at string, warn, limit time.Duration) {
	for _, x := range []struct {
		key  string
		time time.Duration
	}{{"inactive_warning", warn}, {"inactive_limit", limit}} {
		if x.time < 0 || x.time > maxLimit {
			fault(at+x.key, "%s is out of range: 0s to %dd", x.time, maxLimit/(24*time.Hour))
		}
	}
	switch {
	case limit > 0 && warn == 0:
		fault(at+"inactive_limit", "inactive_limit requires inactive_warning > 0")
	case limit > 0 && limit < warn:
		fault(at+"inactive_limit", "inactive_limit is %s, less than inactive_warning (%s): set inactive_warning <= inactive_limit", FormatLimit(limit), FormatLimit(warn))
	}
}

// checkOutput checks the sizes of the output with which jobs get a warning, and end.
func checkOutput(fault faultReporter, at string, warn, most Bytes) {
	for _, x := range []struct {
		key  string
		size Bytes
	}{{"output_warn", warn}, {"max_output", most}} {
		if x.size < 0 || x.size > maxMemory {
			fault(at+x.key, "size %s is out of range", x.size)
		}
	}
}
