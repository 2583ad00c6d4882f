// Package backfill decides when a request can start: now, or at the earliest
// instant at which a whole placement exists for as long as it may run.
//
// It decides from what each host has, what was taken of it for which interval, and
// the request. A [Profile] is a step function of time for each host; what is taken
// is never given again, so a request that is placed after another can never delay
// it. It never reads a clock: now is when the profile begins. Who comes first is
// its callers' to decide.
//
// A count of free GPUs over the whole cluster was rejected: it plans starts that no
// set of nodes can keep. Planning whole nodes was rejected: it wastes the other
// GPUs of a node that a small job is on.
package backfill
