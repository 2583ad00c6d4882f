// Package gctld assembles a controller: log, state, archive, API, and the leader's loops.
//
// It decides the order in which they start and end, from the configuration file alone, and which
// settings each of them gets. It decides nothing about jobs or nodes, and nothing that could differ
// between two controllers of a cluster.
package gctld
