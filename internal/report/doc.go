// Package report makes reports of rows: who used what in which periods, in text, CSV,
// JSON Lines and the forms that other programs read.
//
// It decides which rows add up to a line, in which order lines come, how numbers are
// written and what a file's manifest says, from the rows, the interval and nothing
// else: the same rows give the same bytes on every machine and at any time. It decides
// what deserves an alert, from the same rows. It never asks the cluster, and nothing
// that it writes into a report depends on when it was asked for.
package report
