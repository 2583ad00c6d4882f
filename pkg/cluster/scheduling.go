package cluster

import "time"

// Unlimited is the depth or horizon that has no end.
const Unlimited = -1

// Scheduling is the policy of the scheduling pass.
type Scheduling struct {
	// Depth is how many waiting jobs have a planned start, which nothing behind them
	// may delay: 1 is EASY backfill, 0 lets nobody pass a job that waits (FCFS),
	// Unlimited is conservative backfill.
	Depth int32
	// Window is how far ahead starts are planned; 0 means without end.
	Window time.Duration
	// PromiseHorizon is how far ahead a planned start becomes a promise; 0 makes
	// none, Unlimited makes every planned start one.
	PromiseHorizon time.Duration
	// Replan is how long planned starts that are no promises stay in the order in
	// which they were made before all are planned anew by their present priorities.
	Replan        time.Duration
	Weights       Weights
	FairShare     FairSharePolicy
	Reservations  []Reservation
	Licences      []Licence // how many there are
	MaxSwitchWait time.Duration
	// Packed puts jobs on several nodes, that ask for no nearness, on those where they
	// leave the fewest GPUs over, wherever they are; else nearness comes first.
	Packed bool
}

// Weights are what the factors of a job's priority, each from 0 to 1, are
// multiplied with (slurm.conf(5), PriorityWeight*). Nice is subtracted from the sum.
type Weights struct {
	Age       int64
	FairShare int64
	JobSize   int64
	Partition int64
	QOS       int64
	MaxAge    time.Duration // waiting so long gives the whole of Age
}

// FairSharePolicy says how usage is weighed and forgotten.
type FairSharePolicy struct {
	Classic  bool          // 2^(-U/S) in place of Fair Tree
	HalfLife time.Duration // 0 means that usage is never forgotten
	// Billing is what a second of one unit counts: by GPU type ("gpu" means any other
	// type), "cpu" and "mem" (a GiB), in thousandths.
	Billing []BillingWeight
}

// BillingWeight is the weight of one resource in thousandths.
type BillingWeight struct {
	Resource string
	Milli    int64
}

// Reservation keeps nodes for some for an interval: an administrator's advance
// reservation, or a maintenance window when nobody is let in.
type Reservation struct {
	Name     string
	Start    Instant
	End      Instant
	Nodes    []string // hostlist expressions, or "ALL"
	Users    []string
	Accounts []string
	Why      string
}

// DefaultScheduling plans every waiting job and promises what starts within an hour.
func DefaultScheduling() Scheduling {
	return Scheduling{
		Depth: Unlimited, PromiseHorizon: time.Hour, Replan: time.Minute,
		Weights: Weights{Age: 1000, FairShare: 10_000, JobSize: 0, Partition: 1000, QOS: 10_000, MaxAge: 7 * 24 * time.Hour},
		FairShare: FairSharePolicy{HalfLife: 7 * 24 * time.Hour, Billing: []BillingWeight{
			{"cpu", 10}, {"gpu", 1000}, {"mem", 2},
		}},
		MaxSwitchWait: 5 * time.Minute,
	}
}
