package cluster

import "time"

// Unlimited is a depth, horizon or time without end.
const Unlimited = -1

// Scheduling is the policy of the scheduling pass.
type Scheduling struct {
	// Depth is the number of pending jobs with a planned start, which no later job may delay: 1 is
	// EASY backfill, 0 lets no job pass a pending one (FCFS), Unlimited is conservative backfill.
	Depth int32
	// Window is how far ahead starts are planned; 0 means without end.
	Window time.Duration
	// PromiseHorizon is how far ahead a planned start becomes a promise; 0 makes
	// none, Unlimited makes every planned start one.
	PromiseHorizon time.Duration
	// Replan is how long planned starts without a promise keep the order in which they were made
	// before all are planned again by current priority.
	Replan        time.Duration
	Weights       Weights
	FairShare     FairSharePolicy
	Reservations  []Reservation
	Licences      []Licence // the number available
	MaxSwitchWait time.Duration
	// Packed places multi-node jobs without a locality request where they strand the fewest GPUs,
	// wherever the nodes are. Otherwise locality comes first.
	Packed bool
}

// Weights are the multipliers of a job's priority factors, each from 0 to 1 (slurm.conf(5),
// PriorityWeight*). Nice is subtracted from the sum.
type Weights struct {
	Age       int64
	FairShare int64
	JobSize   int64
	Partition int64
	QOS       int64
	MaxAge    time.Duration // the waiting time that earns the full Age factor
}

// FairSharePolicy determines how usage is weighted and decays.
type FairSharePolicy struct {
	Classic  bool          // 2^(-U/S) instead of Fair Tree
	HalfLife time.Duration // 0 means that usage never decays
	// Billing is the weight of a second of one unit: by GPU type ("gpu" means any other type),
	// "cpu" and "mem" (a GiB), in thousandths.
	Billing []BillingWeight
}

// BillingWeight is the weight of one resource in thousandths.
type BillingWeight struct {
	Resource string
	Milli    int64
}

// Reservation keeps nodes for some users or accounts for an interval: an administrator's advance
// reservation, or a maintenance window when it admits none.
type Reservation struct {
	Name     string
	Start    Instant
	End      Instant
	Nodes    []string // hostlist expressions, or "ALL"
	Users    []string
	Accounts []string
	Why      string
}

// DefaultScheduling plans every pending job and promises starts within an hour.
func DefaultScheduling() Scheduling {
	return Scheduling{
		Depth: Unlimited, PromiseHorizon: time.Hour, Replan: time.Minute,
		Weights: Weights{Age: 10_000, FairShare: 10_000, JobSize: 0, Partition: 1000, QOS: 10_000, MaxAge: 14 * 24 * time.Hour},
		FairShare: FairSharePolicy{HalfLife: 7 * 24 * time.Hour, Billing: []BillingWeight{
			{"cpu", 10}, {"gpu", 1000}, {"mem", 2},
		}},
		MaxSwitchWait: 5 * time.Minute,
	}
}
