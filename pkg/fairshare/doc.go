// Package fairshare turns shares and usage into factors between 0 and 1 that order users: a user
// with less usage than their share comes first.
//
// It decides how much of past usage counts at an instant, from the usage and the half-life, and how
// users rank, from a tree of shares and usages. It never reads a clock, and never changes its
// input: usage is evaluated when it is read, so that reading often or once gives the same number.
//
// What enters replicated state (usage.go) is integer arithmetic alone. Factors (fairtree.go,
// classic.go) are floating-point numbers from single multiplications and divisions, which every
// machine rounds equally; they are for ordering and display, and never stored.
package fairshare
