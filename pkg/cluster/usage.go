package cluster

// Usage is an amount used, in units that decay with time, and its current rate. Package fairshare
// evaluates it at an instant; it is stored only when the rate changes.
type Usage struct {
	Value int64   // units at At
	Part  uint64  // of a further unit, in 2^-64
	Rate  int64   // units added per second
	At    Instant // of Value
}
