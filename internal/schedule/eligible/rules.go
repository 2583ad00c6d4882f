package eligible

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/schedule/words"
	"github.com/greylag/greylag/pkg/cluster"
)

const (
	// UnlimitedTime is the expected run time of a job without a time limit. It is finite so that a
	// job behind it can be planned, and is protected from later ones.
	UnlimitedTime = 365 * 24 * time.Hour
	// cleanup is how long nodes may take to clean up after a job, beyond KillWait.
	cleanup = 10 * time.Second
)

// Rules are the parts of a policy that decide which jobs a partition starts, and for how long.
type Rules struct {
	// Grace is how long nodes are planned to be a job's beyond its time limit: until it is killed
	// and the nodes are clean.
	Grace time.Duration

	policy     *cluster.Policy
	partitions map[string]*cluster.Partition
}

// Grace returns how long nodes are planned to be a job's beyond its time limit.
func Grace(policy *cluster.Policy) time.Duration { return policy.KillWait + cleanup }

// RulesOf reads a policy. The last rules, which may be nil, are returned when the policy is the same.
func RulesOf(policy *cluster.Policy, last *Rules) *Rules {
	if last != nil && last.policy == policy {
		return last
	}
	r := &Rules{Grace: Grace(policy), policy: policy, partitions: map[string]*cluster.Partition{}}
	for i := range policy.Partitions {
		r.partitions[policy.Partitions[i].Name] = &policy.Partitions[i]
	}
	return r
}

// TimeLimit returns the time limit of a job; [UnlimitedTime] without one.
func TimeLimit(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return UnlimitedTime
	}
	return spec.TimeLimit
}

// HoldTime returns how long a job is planned to hold its nodes.
func (r *Rules) HoldTime(spec *cluster.JobSpec) time.Duration {
	if spec.TimeLimit == 0 {
		return UnlimitedTime
	}
	return spec.TimeLimit + r.Grace
}

// Partitions returns the obstacle of a job that each of its partitions refuses, and names each.
func (r *Rules) Partitions(spec *cluster.JobSpec) (Obstacle, bool) {
	first, refused := r.partition(spec, spec.Partition)
	if !refused || len(spec.OtherPartitions) == 0 {
		return first, refused
	}
	var asks, all []string
	for _, name := range spec.AllPartitions() {
		x, refuses := r.Refusal(spec, name)
		if !refuses {
			return Obstacle{}, false
		}
		if x.asks != "" && !slices.Contains(asks, x.asks) {
			asks = append(asks, x.asks)
		}
		all = append(all, fmt.Sprintf("partition %q %s", name, x.Says))
	}
	first.Detail = strings.Join(all, ", ")
	if len(asks) > 0 {
		first.Detail = "requests " + words.And(asks) + "; " + first.Detail
	}
	return first, true
}

// partition returns why one partition refuses a job.
func (r *Rules) partition(spec *cluster.JobSpec, name string) (Obstacle, bool) {
	x, refuses := r.Refusal(spec, name)
	switch {
	case !refuses:
		return Obstacle{}, false
	case x.asks != "":
		return Obstacle{x.Reason, fmt.Sprintf("requests %s; partition %q %s", x.asks, name, x.Says)}, true
	case x.Says == down:
		return Obstacle{Reason: x.Reason}, true
	}
	return Obstacle{x.Reason, fmt.Sprintf("partition %q %s", name, x.Says)}, true
}

// Refusal is why a partition starts no job with a specification.
type Refusal struct {
	Reason cluster.Reason
	asks   string // the request that exceeds a limit; "" where none does
	Says   string // follows the name of the partition
}

// down is the refusal of a partition that starts no jobs.
const down = "is down"

// Refusal returns why a partition refuses every start of a job, whatever is free, if it does. All that
// it checks is part of a request class's key.
func (r *Rules) Refusal(spec *cluster.JobSpec, name string) (Refusal, bool) {
	part, ok := r.partitions[name]
	limit := spec.TimeLimit
	switch {
	case !ok:
		return Refusal{Reason: cluster.ReasonPartitionDown, Says: "no longer exists"}, true
	case part.Down:
		return Refusal{Reason: cluster.ReasonPartitionDown, Says: down}, true
	case !part.Allows(spec.Account):
		return Refusal{Reason: cluster.ReasonAccountNotAllowed, Says: disallows(spec.Account)}, true
	case part.MaxNodes > 0 && spec.Request.Nodes > part.MaxNodes:
		return Refusal{cluster.ReasonPartitionNodeLimit, words.Count(spec.Request.Nodes, "node"), "allows " + words.Count(part.MaxNodes, "node")}, true
	case part.MaxTime > 0 && (limit == 0 || limit > part.MaxTime):
		return Refusal{cluster.ReasonPartitionTimeLimit, cluster.FormatLimit(limit), "allows " + cluster.FormatLimit(part.MaxTime)}, true
	}
	return refusesShare(part, spec.Request.Share.Jobs)
}

// refusesShare is the refusal of a partition that lets fewer jobs share a GPU than when the job was submitted.
func refusesShare(part *cluster.Partition, n int32) (Refusal, bool) {
	switch {
	case n <= part.GPUShare:
		return Refusal{}, false
	case part.GPUShare == 0:
		return Refusal{Reason: cluster.ReasonBadConstraints, Says: "no longer allows jobs to share GPUs"}, true
	}
	return Refusal{cluster.ReasonBadConstraints, fmt.Sprintf("--gpu-share=%d", n), fmt.Sprintf("allows at most %d jobs on a GPU", part.GPUShare)}, true
}

// disallows is said of a partition whose allow_accounts lacks a job's account.
func disallows(account string) string {
	if account == "" {
		return "no longer allows jobs without an account"
	}
	return fmt.Sprintf("no longer allows account %q", account)
}
