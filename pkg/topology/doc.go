// Package topology decides on which GPUs and nodes a request fits best.
//
// It decides from what each host has, what of it is free, and the request: the same input in any
// order gives the same placement. It never knows jobs, time or policy; its callers decide the order
// of jobs and their starts.
//
// A gang is placed whole or not at all. Among placements that fit, the fewest nodes win, then GPUs
// within one NVLink domain, then the fewest free GPUs left on the nodes (best fit: what stays free
// stays in large pieces), then node names. Scoring every placement was rejected: with a thousand
// nodes that is too slow for a decision that every pending job needs.
package topology
