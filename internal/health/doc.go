// Package health decides what the errors of a node's GPUs mean for the GPUs, the node and its jobs, and
// reads the node's other signs of trouble: the kernel log, InfiniBand ports, disks, and a program of the
// site.
//
// It decides whether a GPU or the node takes new work. It never acts on tasks, and never drains: the
// controllers do, and limit how many nodes they drain at one time. Rejected: actions in the table of
// errors itself, since the same error means something else the second time, and counters in the
// controllers, since a node has the events of its own GPUs completely.
package health
