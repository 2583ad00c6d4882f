package controller

import "time"

// Observer receives measurements of the leader's loops. Its methods must not block.
type Observer interface {
	// Passed reports a scheduling pass: whether all jobs were planned again, the duration of its
	// decision, and whether its plan was not committed.
	Passed(replan bool, took time.Duration, failed bool)
	// Started reports the starts of a plan that were committed, and those that the state refused
	// because it had changed since.
	Started(jobs, refused int)
	// Orphans reports how many instances in the cloud have no lease, each time that they were listed.
	Orphans(instances int)
	// Called reports a call of the provider program: [CallOK], [CallRefused] or [CallFailed].
	Called(call, result string)
}

// The results of a call of the provider program.
const (
	CallOK      = "ok"
	CallRefused = "refused" // by the cloud, such as for missing capacity
	CallFailed  = "failed"
)

// unobserved is the Observer of a controller without one.
type unobserved struct{}

func (unobserved) Passed(bool, time.Duration, bool) {}
func (unobserved) Started(int, int)                 {}
func (unobserved) Orphans(int)                      {}
func (unobserved) Called(string, string)            {}
