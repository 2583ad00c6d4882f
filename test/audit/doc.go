// Package audit puts load on a cluster, records the answers to clients, and reports afterwards
// which of them do not hold.
//
// It decides from three independent sources: the answers that clients got, what the jobs' own
// scripts wrote when they ran, and what the cluster reports about its jobs at the end. It never
// injects faults, and trusts no number of the cluster that it can count itself.
package audit
