// Package gctld puts the parts of a controller together: log, state, archive, API,
// and the leader's loops.
//
// It decides in which order they start and end, from the configuration file alone,
// and what of the configuration each of them gets. It decides nothing about jobs or
// nodes, and nothing that could differ between two controllers of a cluster.
package gctld
