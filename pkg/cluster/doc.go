// Package cluster holds the domain types of Greylag: jobs and their states, nodes and their GPUs,
// partitions, requests, placements, allocations, and the snapshot and plan that pass between the
// replicated state and the scheduler.
//
// It decides only what one value can decide: which state follows which ([Next]), whether a
// submitted job is well formed ([JobSpec.Validate]), how a quantity or an output file name is
// written. It decides from its arguments. It never reads a clock, performs I/O or logs, and imports
// only value parts of the standard library.
package cluster
