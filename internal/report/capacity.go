package report

// Capacity is one resource of a cluster in a period, in milliseconds times the resource.
type Capacity struct {
	Resource                        string // cpu, or gpu: and a type
	Total, Allocated, Down, Drained int64
}

// Cluster is how much of what a cluster had was used: the report cluster.
func Cluster(rows []Capacity) Table {
	t := Table{Name: "cluster", Columns: columns(
		texts("resource"), numbers(3, "hours", "allocated_hours", "idle_hours", "down_hours", "drained_hours"), numbers(1, "percent"),
	)}
	for _, r := range rows {
		// Jobs may have kept what was called down meanwhile: a GPU that failed under them.
		idle := max(r.Total-r.Allocated-r.Down-r.Drained, 0)
		t.Rows = append(t.Rows, row(r.Resource, hours(r.Total), hours(r.Allocated), hours(idle), hours(r.Down), hours(r.Drained), percent(r.Allocated, r.Total)))
	}
	return t
}
