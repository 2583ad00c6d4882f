// Package controller runs one controller: it holds the replicated state, hands what
// the state does not keep to the archive and what changed to those who watch, and,
// while this controller leads, drives the loops that propose what nobody asks for.
//
// The loops decide when: a scheduling pass after something changed (pass.go), a tick
// when something falls due (tick.go), a node's liveness from when it was last heard
// (health.go). What follows from it is decided elsewhere, by the pure packages
// schedule and state. Controller never changes the state but by a command that was
// agreed, never waits for a node, and keeps nothing in memory that a new leader could
// not find out again.
//
// One lock guards the state. It is held while one log entry is applied and while a
// view is taken, both of which are short; nothing else ever needs it, since views do
// not change.
package controller
