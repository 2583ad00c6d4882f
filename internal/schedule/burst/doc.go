// Package burst decides for which pending job cloud nodes are leased next, and which: a function of a snapshot, of the
// planned starts of its jobs, and of nothing else.
//
// [View.Best] is the decision, and [View.Choose] says of one job what is decided and why. A [Tables] keeps what does not
// change from snapshot to snapshot, so that a pass over 10,000 jobs costs little.
package burst
