// Package controller runs one controller. It holds the replicated state, passes what the state
// drops to the archive and changes to subscribers, and runs the leader's loops while this
// controller leads.
//
// The loops decide when: a scheduling pass after a change (pass.go), a tick when something is due
// (tick.go), a node's liveness after its last heartbeat (health.go). The pure packages schedule and
// state decide the consequences. Controller changes the state only by committed commands, never
// waits for a node, and keeps nothing in memory that a new leader cannot determine again.
//
// One lock guards the state. It is held while one log entry is applied and while a view is taken;
// both are short. Nothing else needs it, since views never change.
package controller
