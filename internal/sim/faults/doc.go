// Package faults draws the faults of a simulated cluster: which, how often, and when.
//
// It decides from a mix of faults and a seed alone, so that every policy meets the same faults with
// the same seed. Each kind of fault has its own random numbers: more faults of one kind do not move
// those of another. It never changes a cluster.
package faults
