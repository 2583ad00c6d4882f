// Package cluster holds the nouns of Greylag: jobs and their states, nodes and
// their GPUs, partitions, requests, placements, allocations, and the snapshot
// and plan that pass between the replicated state and the scheduler.
//
// It decides only what a noun alone can decide: which state follows which
// ([Next]), whether a submitted job is well formed ([JobSpec.Validate]), how a
// quantity or the name of a job's file is written. It decides from the values it is given. It never reads
// a clock, never does I/O, never logs, and imports nothing but value parts of
// the standard library.
package cluster
