// Package backfill is the first pass's profile: what is free on each host over
// time. It decides nothing; the planner replaces it.
package backfill
