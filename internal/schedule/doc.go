// Package schedule makes scheduling passes: a pure function of snapshots and policy, whose result is a plan.
//
// It decides what starts now and where, when everything else will start, which jobs end for others, and why a job is
// pending. It reads no clock but that of the snapshot. It never changes a snapshot, and the order in which a snapshot
// lists jobs and nodes does not matter. The state checks each start again when the plan is committed.
//
// [Planner.Pass] shows the seven steps. Each has its place: package eligible (1), package order (2), package plan (3 and 5),
// preempt.go (4), package burst (6), and package explain (7).
package schedule
