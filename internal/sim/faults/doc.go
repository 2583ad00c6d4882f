// Package faults says what goes wrong in a simulated cluster, how often, and when.
//
// It decides from a mix of faults and a seed alone, so that the same seed makes the same
// bad week for every policy that is tried on it. Each kind of fault has its own chances:
// more of the one kind moves no other. It never does anything to a cluster.
package faults
