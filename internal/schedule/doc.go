// Package schedule is one scheduling pass: what starts now, where, and why
// everything else waits.
//
// It decides from one snapshot of the state, whose clock is the only one it knows,
// and from nothing else; the order in which the snapshot lists things does not
// matter. It never changes the snapshot, and nothing it decides is done until the
// plan has been agreed as a command and checked once more against the state.
//
// The steps of a pass (cycle.go) are: which jobs may start at all (eligible.go,
// depend.go), in which order they are served (order.go), when and where each can
// start without delaying one before it (plan.go), and what is said about those that
// wait (explain.go). The policy of this version lets no job end another and rents
// no nodes, so there are no steps for that.
//
// Jobs that ask for the same under the same conditions form a class. What could not
// start for one job of a class cannot start for a later one of it in the same pass,
// so a queue of a hundred thousand alike costs one search, not a hundred thousand.
package schedule
