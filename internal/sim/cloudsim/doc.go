// Package cloudsim replays a workload on a site that leases nodes of a simulated cloud.
//
// State, scheduler, the decision to lease, and the comparison of leases with instances are those of production. The cloud is that
// of package cloud. [Rule] replaces the decision, and nothing else, so that rules can be compared.
package cloudsim
