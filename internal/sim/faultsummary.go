package sim

// FaultSummary is the faults of a replay, their cost, and the checks that were made.
type FaultSummary struct {
	Seed      uint64         `json:"seed"`
	Mix       string         `json:"mix"`
	Faults    map[string]int `json:"faults"`
	Attempts  int            `json:"attempts"`
	Lost      int            `json:"attempts_lost"` // ended as NODE_FAIL
	Preempted int            `json:"attempts_preempted"`
	Requeued  int            `json:"requeued"`
	// GPUHours is the time of all attempts. GPUHoursLost is the part of attempts that a fault, a
	// preemption or a requeue ended.
	GPUHours     float64 `json:"gpu_hours"`
	GPUHoursLost float64 `json:"gpu_hours_lost"`
	Credits      *Money  `json:"credits,omitempty"` // nil if jobs cost nothing
	Checks       Checks  `json:"checks"`
}

// Money is the sums of the journal of credits at the end, as decimal numbers.
type Money struct {
	Granted  string `json:"granted"`
	Charged  string `json:"charged"`
	Refunded string `json:"refunded"` // of the charged
	Held     string `json:"held"`
	Debt     string `json:"debt"`
	Expired  string `json:"expired"`
	Voided   string `json:"voided"`
}

// Checks counts the checks. A summary exists only if none found a violation.
type Checks struct {
	Commands   int `json:"commands"`        // after each: what it changed
	Whole      int `json:"whole_states"`    // the whole state recomputed
	Entries    int `json:"journal_entries"` // each checked against those before it
	Rebuilt    int `json:"rebuilt"`         // from a snapshot and the log, equal byte by byte
	Violations int `json:"violations"`
}
