// Package backfill decides when a request can start: at the earliest instant at
// which a whole placement exists for as long as it may run.
//
// It decides from what each host has, what has been taken of it for which interval,
// and the request. A [Row] is what is free on one host over time; a [Profile] is the
// rows of all hosts with an index over time that passes over hosts and times at
// which a request cannot fit. What is taken is never given twice, so a request that
// is placed after another can never delay it. It never reads a clock, never knows
// jobs or priorities, and never decides who comes first: that is its callers' part.
//
// A planned start takes counts of the GPUs of a host's pools (GPUs of one type in
// one NVLink domain), not single GPUs: within a pool they are interchangeable, and
// which ones are used is chosen at the start. A count of free GPUs over the whole
// cluster was rejected: it plans starts that no set of hosts can keep. Planning
// whole hosts was rejected: it wastes the other GPUs of a host that a small job is
// on. See docs/adr for the choice of the index.
package backfill
