// Package cluster starts a whole Greylag cluster as real processes on one machine: controllers,
// nodes, gauthd and a private containerd, all below one folder. The end-to-end tests, the
// benchmarks and the demo share it.
//
// It decides where everything is, how the cluster is bootstrapped (with the same commands that an
// administrator types), and how faults are made: killed and paused processes, cut networks, hung
// and full disks, shifted clocks.
//
// The folder's name identifies everything that must be undone: processes have it on their command
// line, mounts are below it, network namespaces carry its hash. So any process that knows the
// folder can stop the cluster (Attach), and a reaper process does when its starter dies
// (ReapIfAsked).
//
// It uses a cluster only through its API and commands, and does not depend on package testing.
package cluster
