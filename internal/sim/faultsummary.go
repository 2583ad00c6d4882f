package sim

// FaultSummary is what went wrong in a replay, what it cost, and what was checked meanwhile.
type FaultSummary struct {
	Seed      uint64         `json:"seed"`
	Mix       string         `json:"mix"`
	Faults    map[string]int `json:"faults"`
	Attempts  int            `json:"attempts"`
	Lost      int            `json:"attempts_lost"` // ended as NODE_FAIL
	Preempted int            `json:"attempts_preempted"`
	Requeued  int            `json:"requeued"`
	// GPUHours is what all attempts had, and of that what was lost: of those that a fault, a
	// preemption or a requeue ended, whose jobs began anew or not at all.
	GPUHours     float64 `json:"gpu_hours"`
	GPUHoursLost float64 `json:"gpu_hours_lost"`
	Credits      *Money  `json:"credits,omitempty"` // where jobs cost something
	Checks       Checks  `json:"checks"`
}

// Money is what the journal of credits comes to at the end, as decimal numbers.
type Money struct {
	Granted  string `json:"granted"`
	Charged  string `json:"charged"`
	Refunded string `json:"refunded"` // of what was charged
	Held     string `json:"held"`
	Debt     string `json:"debt"`
	Expired  string `json:"expired"`
	Voided   string `json:"voided"`
}

// Checks counts what was checked. That there is a summary says that nothing was violated.
type Checks struct {
	Commands   int `json:"commands"`        // after each: what it changed
	Whole      int `json:"whole_states"`    // everything recomputed
	Entries    int `json:"journal_entries"` // each judged by those before it
	Rebuilt    int `json:"rebuilt"`         // from a snapshot and the log, equal to the byte
	Violations int `json:"violations"`
}
