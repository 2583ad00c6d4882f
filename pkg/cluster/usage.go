package cluster

// Usage is how much somebody has used, in units that decay with time, and how fast
// they use more. Package fairshare evaluates it at an instant; it is stored only
// when the rate changes.
type Usage struct {
	Value int64   // units at At
	Part  uint64  // of a further unit, in 2^-64
	Rate  int64   // units that a second adds
	At    Instant // of Value
}
