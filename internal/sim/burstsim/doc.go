// Package burstsim simulates a small site whose queue exceeds it, and a cloud that leases nodes to it and often fails.
//
// State, scheduler and the comparison of leases with instances are those of production. The cloud refuses requests,
// loses its answers, shows new instances late, ends instances with and without notice, and starts some that never join;
// the leader changes at any command and forgets all that it has not recorded. Each run checks that no lease is rented
// twice, no instance remains, no budget is exceeded, and no promise breaks.
package burstsim
