// Package plan plans a start for each eligible job: it holds bookings, request classes and promises over
// package backfill.
//
// A [Schedule] lasts from pass to pass. A [Pass] either plans what changed (delta.go, moves.go), or all jobs
// again (fullplan.go, keep.go). It never decides which jobs may start, nor their order, and it never ends
// running jobs.
package plan
