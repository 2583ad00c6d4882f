// Package audit puts load on a cluster, remembers what clients were told, and
// says afterwards what of it does not hold.
//
// It decides from three things that do not know each other: the answers that
// clients got, what the jobs' own scripts wrote when they ran, and what the
// cluster says of its jobs at the end. It never makes faults, and takes no word
// of the cluster for what it can count itself.
package audit
