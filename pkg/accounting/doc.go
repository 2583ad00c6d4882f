// Package accounting keeps the credits of a cluster: who was granted what until
// when, what is set aside for jobs, what they consumed, and what is owed.
//
// It decides whether a job can be paid for, out of which buckets and in which
// order, what a run costs, and where what is given back goes, from the commands it
// is given and the instants in them. Every change is a row of balanced entries in a
// journal whose hashes form a chain; what a balance is can always be recomputed from
// the journal alone (Audit does so).
//
// It never reads a clock, never uses a floating-point number, and never lets the
// order of a hash map reach a result: the same commands give the same bytes on
// every replica. A refused command changes nothing but the memory of its key.
// Copies cost nothing (Clone), so that a snapshot stops nobody.
//
// Rejected: a lien that can be captured only once, as in TigerBeetle (jobs are
// metered while they run); charging each sample (rounding drifts, and a repeated
// sample charges twice); journalling each sample (144 million rows a day at 50,000
// jobs). Counters are cumulative and money moves when it is rolled up.
package accounting
