package report

// Capacity is one resource of a cluster in a period, in milliseconds times the resource.
type Capacity struct {
	Resource                        string // cpu, or gpu: with a type
	Total, Allocated, Down, Drained int64
}

// Cluster returns the report cluster: the used part of the capacity.
func Cluster(rows []Capacity) Table {
	t := Table{Name: "cluster", Columns: columns(
		texts("resource"), numbers(3, "hours", "allocated_hours", "idle_hours", "down_hours", "drained_hours"), numbers(1, "percent"),
	)}
	for _, r := range rows {
		// Jobs may have held resources that were reported down, such as a GPU that failed during a
		// job.
		idle := max(r.Total-r.Allocated-r.Down-r.Drained, 0)
		t.Rows = append(t.Rows, row(r.Resource, hours(r.Total), hours(r.Allocated), hours(idle), hours(r.Down), hours(r.Drained), percent(r.Allocated, r.Total)))
	}
	return t
}
