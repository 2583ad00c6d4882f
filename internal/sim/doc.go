// Package sim runs Greylag's own state and scheduler in virtual time: on logs of real
// workloads, on a saved cluster, and on a full cluster to measure one pass.
//
// It decides when jobs are submitted and how long they run, as a log, a saved cluster
// or a seed says, plays the nodes, which report what they were told to run, and
// measures what came of it. It never decides what starts where: that is the
// scheduler's part, and every change goes through the state, as in a controller. The
// same input gives the same result, but for the time that passes took.
//
// All events of one instant are handled before one pass is made, as a controller
// gathers them. Its sub-package oracle has the other order, for comparison with
// published schedules; trace reads logs. faultsim replays a workload with injected faults.
package sim
