// Package explain explains why a job is pending: the verdicts of a pass (verdict.go), one job in full (why.go), when
// it would start (forecast.go), and when it would if jobs ran as long as usual (expectations.go).
//
// It decides nothing: what it tries is tried in a plan of its own.
package explain
