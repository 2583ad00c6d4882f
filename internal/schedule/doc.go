// Package schedule is the scheduler: what starts now, where, when everything else
// will, and why it waits.
//
// It decides from snapshots of the state, whose clock is the only one it knows, and
// from nothing else; the order in which a snapshot lists things does not matter. It
// never changes a snapshot, and nothing it decides is done until the plan has been
// agreed as a command and checked once more against the state.
//
// A [Planner] keeps its plan from one pass to the next (planner.go). A pass first
// follows what changed since the last snapshot (follow.go), or plans all anew
// (anew.go); both ask which jobs may start at all (eligible.go, depend.go, limits.go) and
// in which order they are served (order.go, priority.go, shares.go). Those that may not
// are looked at again when that can have changed (barred.go). Then the jobs whose time
// has come get their GPUs (start.go), room is asked for that others could make
// (preempt.go), and those that wait are told why (explain.go). The policy of this version
// rents no nodes, so there is no step for that. [Why] explains one job from a snapshot
// alone, and ground.go is what jobs are placed on.
//
// Jobs that ask for the same under the same conditions form a class (class.go). What
// one search for a class learned holds for the next until something is given back.
//
// Planning everything anew after every event was rejected: it costs what exists, not
// what changed, and breaks promises. See docs/adr/0009.
package schedule
