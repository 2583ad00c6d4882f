// Package sim runs Greylag's own state and scheduler in virtual time: on logs of real workloads, on
// a saved cluster, and on a full cluster to measure one pass.
//
// It decides when jobs are submitted and how long they run, as a log, a saved cluster or a seed
// says. It simulates the nodes and their reports, and measures the result. It never decides
// what starts where: the scheduler does, and every change goes through the state, as in a
// controller. The same input gives the same result, except the durations of passes.
//
// All events of one instant are handled before one pass, as in a controller. Package oracle handles
// them one by one, for comparison with published schedules. Package trace reads logs, and faultsim
// replays a workload with injected faults.
package sim
