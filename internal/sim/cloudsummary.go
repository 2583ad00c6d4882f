package sim

import "github.com/greylag/greylag/pkg/cluster"

// OnCloud reports whether the job ran on leased nodes.
func (r *Result) OnCloud() bool { return len(r.Nodes) > 0 && cluster.IsLeased(r.Nodes[0].Node) }

// CloudSummary is the leased nodes of a replay with a cloud.
type CloudSummary struct {
	Launches int     `json:"launches"`    // requests to the cloud, each for all nodes of a job
	Refused  int     `json:"refused"`     // of these
	Leases   int     `json:"leases"`      // that began and ended
	Joined   int     `json:"joined"`      // nodes
	Unused   int     `json:"not_joined"`  // leases that ended before their node joined
	Attempts int     `json:"attempts"`    // of jobs on leased nodes
	Reclaims int     `json:"reclaims"`    // instances that the cloud took back
	Restarts int     `json:"restarts"`    // of jobs, because of that
	Hours    float64 `json:"node_hours"`  // of all instances
	Cost     int64   `json:"cost_micros"` // in millionths of the currency
	Currency string  `json:"currency"`
}
