// Package fairshare turns shares and usage into factors between 0 and 1 that order
// users: who has used less than their share goes first.
//
// It decides how much of past usage still counts at an instant, from the usage and
// the half-life, and how users rank, from a tree of shares and usages. It never
// reads a clock, and never changes what it is given: usage is evaluated when it is
// read, so that looking often or once gives the same number.
//
// What goes into replicated state (usage.go) is integer arithmetic alone. Factors
// (fairtree.go, classic.go) are floating-point numbers made by single multiplications
// and divisions, which every machine rounds alike; they are for ordering and for
// showing, and never stored.
package fairshare
