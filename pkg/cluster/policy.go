package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Partition is a set of nodes with limits.
type Partition struct {
	Name          string
	Nodes         []string // hostlist expressions, or "ALL"
	Default       bool
	Down          bool          // accepts jobs, starts none
	MaxTime       time.Duration // 0 means no limit
	DefaultTime   time.Duration // for jobs that request no time; 0 means MaxTime
	MaxNodes      int32         // most nodes of one job; 0 means no limit
	AllowAccounts []string      // empty means all
	Priority      int32         // tier: jobs of a higher one are planned first
	MemPerCPU     Bytes         // for jobs that request no memory; 0 means their share of each node
	MemPerGPU     Bytes         // for those of them that request GPUs; 0 means as MemPerCPU
	GPUShare      int32         // the most jobs that may share a GPU; 0: none may
	Burst         BurstMode     // of jobs that request none, and whose QOS has none
}

// Allows reports whether jobs of an account may run in the partition.
func (p *Partition) Allows(account string) bool {
	return len(p.AllowAccounts) == 0 || slices.Contains(p.AllowAccounts, account)
}

// RefuseShare returns why n jobs may not share a GPU in the partition; "" if they may, or n is 0.
func (p *Partition) RefuseShare(n int32) string {
	switch {
	case n <= p.GPUShare:
		return ""
	case p.GPUShare == 0:
		return fmt.Sprintf("jobs cannot share GPUs in partition %q", p.Name)
	}
	return fmt.Sprintf("%d jobs cannot share a GPU in partition %q (at most %d)", n, p.Name, p.GPUShare)
}

// QOS is a priority class.
type QOS struct {
	Name     string
	Tier     int32 // jobs of a higher tier are planned first
	Priority int32
	MaxTime  time.Duration
	// DefaultTime is the time limit of jobs that request none; 0 means that of the partition.
	DefaultTime time.Duration
	// UsageExtra is the percentage by which its jobs' usage is increased; -100 means that they
	// count nothing.
	UsageExtra int32
	Limits     []Limit // by kind and resource
	// Preempts names the QOS of lower tiers whose jobs may be preempted for a job of this one.
	// PreemptMode is what happens to a job of this QOS that is preempted.
	Preempts      []string
	PreemptMode   PreemptMode
	PreemptExempt time.Duration // as those of the policy, for jobs of this QOS; 0 means those
	PreemptGrace  time.Duration
	// InactiveWarning and InactiveLimit are as those of the policy; 0 means those, Unlimited never.
	InactiveWarning, InactiveLimit time.Duration
	OutputWarn                     Bytes
	MaxOutput                      Bytes
	// Burst is the mode of jobs that request none.
	Burst BurstMode
	// BurstValue is what an hour less of waiting is worth for each GPU, in millionths of the currency; BurstMaxWait is a
	// wait from which on nodes are leased at any worst-case cost within the budgets; 0: none.
	BurstValue   int64
	BurstMaxWait time.Duration
	// MinOnDemand is the percentage of the nodes leased for its jobs that have not ended that must not be spot nodes.
	MinOnDemand int32
	Open        bool // every user whose account has no list of QOS may use it; else it must be granted
}

// AllowsSpot reports whether jobs of the QOS may run on spot nodes.
func (q *QOS) AllowsSpot() bool { return q.MinOnDemand < 100 }

// Policy is the cluster-wide rules: one replicated document with a version.
type Policy struct {
	Version     uint64
	Cluster     string // the name that users see
	Admins      []string
	Operators   []string
	Partitions  []Partition
	QOS         []QOS
	DefaultQOS  string
	NodeTimeout time.Duration // a node silent for this long is DOWN
	// RebootTimeout is how long a node that was asked to reboot may take to return; 0: without limit.
	RebootTimeout time.Duration
	// Fencing keeps the next attempt of a job from starting before its lost nodes are proven to run no task of it.
	Fencing     bool
	KillWait    time.Duration // between SIGTERM and SIGKILL
	MaxArray    int32         // most elements of one array
	MaxJobs     int64         // most active jobs
	MaxRestarts int32         // cluster failures without progress before a job is held
	Retry       Retry         // of jobs that do not ask for another
	// PreemptExempt is how long a job runs before it may be preempted, and MaxPreemptions how often it may be in
	// 24 hours; 0 means no limit.
	PreemptExempt  time.Duration
	MaxPreemptions int32
	// PreemptGrace is how long a preempted job that requested a signal runs on after it at most.
	PreemptGrace time.Duration
	// InactiveWarning is after how long a job that is inactive, or has idle GPUs, gets a warning, and InactiveLimit after
	// how long an inactive one ends; 0: never.
	InactiveWarning, InactiveLimit time.Duration
	// OutputWarn is the size of its output from which on a job gets a warning, and MaxOutput that with which it ends;
	// 0: none.
	OutputWarn, MaxOutput Bytes
	Private               bool // jobs of other users are not shown
	Scheduling            Scheduling
	// RequireAccount refuses jobs without an account, once accounts are defined.
	RequireAccount bool
	Credits        CreditPolicy
	// CheckpointStores are the file systems to which only some jobs may write checkpoints at a time.
	CheckpointStores []CheckpointStore
	Elastic          ElasticPolicy
	Burst            BurstPolicy
	// StagingCredentials are for copies of the files of jobs that have no credentials of their own.
	StagingCredentials []StagingCredentials
}

// DefaultPolicy returns the policy of a new cluster: one partition over all nodes and five tiers.
func DefaultPolicy() Policy {
	return Policy{
		Cluster:    "greylag",
		Admins:     []string{"root"},
		Partitions: []Partition{{Name: "main", Nodes: []string{"ALL"}, Default: true, DefaultTime: time.Hour}},
		QOS: []QOS{
			{Name: "production", Tier: 5, MinOnDemand: 100}, {Name: "premium", Tier: 4}, {Name: "standard", Tier: 3, Open: true},
			{Name: "batch", Tier: 2, Open: true}, {Name: "interactive", Tier: 1, Open: true},
		},
		DefaultQOS:    "standard",
		NodeTimeout:   300 * time.Second,
		RebootTimeout: 15 * time.Minute,
		KillWait:      30 * time.Second,
		MaxArray:      100_000,
		MaxJobs:       5_000_000,
		MaxRestarts:   10,
		Retry:         Retry{AnyExit: true},
		PreemptExempt: 10 * time.Minute, MaxPreemptions: 3, PreemptGrace: 2 * time.Minute, InactiveWarning: 30 * time.Minute, OutputWarn: 10 << 30,
		Scheduling: DefaultScheduling(),
		Credits:    DefaultCreditPolicy(),
		Elastic:    DefaultElasticPolicy(),
		Burst:      DefaultBurstPolicy(),
	}
}

// InactiveTimes returns after how long inactive jobs of a QOS get a warning, and end; 0: never. O(QOS).
func (p *Policy) InactiveTimes(qos string) (warn, limit time.Duration) {
	q, _ := p.QOSNamed(qos)
	return p.inactiveTimes(&q)
}

func (p *Policy) inactiveTimes(q *QOS) (warn, limit time.Duration) {
	return max(0, cmp.Or(q.InactiveWarning, p.InactiveWarning)), max(0, cmp.Or(q.InactiveLimit, p.InactiveLimit))
}

// InactiveLimitOwner returns which part of the policy sets the InactiveLimit of a QOS, for messages. O(QOS).
func (p *Policy) InactiveLimitOwner(qos string) string {
	if q, _ := p.QOSNamed(qos); q.InactiveLimit != 0 {
		return fmt.Sprintf("qos %q", qos)
	}
	return "the policy"
}

// OutputSizes returns the sizes of the output with which jobs of a QOS get a warning, and end; 0: none. O(QOS).
func (p *Policy) OutputSizes(qos string) (warn, most Bytes) {
	q, _ := p.QOSNamed(qos)
	return cmp.Or(q.OutputWarn, p.OutputWarn), cmp.Or(q.MaxOutput, p.MaxOutput)
}

// Partition finds a partition by name; "" finds the default one.
func (p *Policy) Partition(name string) (Partition, bool) {
	for _, part := range p.Partitions {
		if part.Name == name || name == "" && part.Default {
			return part, true
		}
	}
	return Partition{}, false
}

// QOSNamed finds a QOS by name; "" finds the default one.
func (p *Policy) QOSNamed(name string) (QOS, bool) {
	if name == "" {
		name = p.DefaultQOS
	}
	for _, q := range p.QOS {
		if q.Name == name {
			return q, true
		}
	}
	return QOS{}, false
}
