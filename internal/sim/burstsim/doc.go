// Package burstsim simulates a small site whose queue exceeds it, and a cloud that leases nodes to it and often fails.
//
// State, scheduler and the comparison of leases with instances are those of production; the cloud is that of package cloud. It
// refuses requests, loses its answers, shows new instances late, ends instances with and without notice, now and then a fifth of all
// nodes at once, and starts some that never join. The leader changes at any command and forgets all that it has not recorded. Among
// the jobs are elastic ones and ones that write checkpoints. Each run checks that no lease is rented twice, no instance remains, no
// budget is exceeded, no promise breaks, the state accepts each launch that is decided, and no two attempts of a job overlap.
package burstsim
