// Package accounting keeps the credits of a cluster: grants and their expiry, liens of jobs,
// charges, and debts.
//
// It decides whether a job can be paid for, from which buckets and in which order, what a run
// costs, and where refunds go, from commands and the instants in them. Every change is a balanced
// entry in a hash-chained journal; every balance can be recomputed from the journal alone (Audit
// does so).
//
// It never reads a clock, never uses a floating-point number, and never lets the iteration order of
// a map reach a result: the same commands give the same bytes on every replica. A refused command
// changes nothing except the memory of its key. Clone is O(1), so a snapshot blocks no writer.
//
// Rejected: a lien that can be captured only once, as in TigerBeetle (jobs are metered while they
// run); charging each sample (rounding drifts, and a repeated sample charges twice); journalling
// each sample (144 million rows a day at 50,000 jobs). Counters are cumulative and money moves when
// it is rolled up.
package accounting
