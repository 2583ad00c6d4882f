// Package reliability runs the production state and scheduler through weeks of hardware failures, and
// measures how much of its time a large job works.
//
// It decides which node fails when, why, how the failure is noticed and how long the repair takes, and
// how far the programs of jobs have come. It never decides how an attempt ends, where the next one
// starts, or from which checkpoint: every change is a command to the state, as in a cluster, and every
// plan is that of the scheduler. A seed gives the same failures under every policy, except in the scenario losses,
// whose failures follow the large job.
package reliability
