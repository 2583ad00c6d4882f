// Package cluster starts a whole Greylag cluster as real processes on one
// machine: controllers, nodes, gauthd and a private containerd, all below one
// folder. The end-to-end tests, the benchmarks and the demo share it.
//
// It decides where everything lies, how the cluster is bootstrapped (with the
// same commands that an administrator types), and how faults are made: killed
// and paused processes, cut networks, hung and full disks, shifted clocks.
//
// Everything that must be undone can be told from the folder's name alone:
// processes have it on their command line, mounts lie below it, network
// namespaces carry its hash. So whoever knows the folder can stop the cluster
// (Attach), and a reaper process does when its starter dies (ReapIfAsked).
//
// It never looks into a cluster's state other than through its API and
// commands, and knows nothing of package testing.
package cluster
