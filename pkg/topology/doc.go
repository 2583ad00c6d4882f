// Package topology decides on which GPUs of which nodes a request fits best.
//
// It decides from what each host has, what of it is free, and the request, and
// from nothing else: the same input in any order gives the same placement. It
// never knows jobs, time or policy; who goes first and when is for its callers.
//
// A gang is placed whole or not at all. Among placements that fit, the fewest
// nodes win, then GPUs within one NVLink domain, then the fewest free GPUs left
// beside the job (best fit: what stays free stays in large pieces), then node
// names. Trying every placement and scoring each was rejected: a thousand nodes
// make that too slow for a decision that is taken for every job in the queue.
package topology
