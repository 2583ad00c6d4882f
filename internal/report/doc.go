// Package report builds reports from rows: who used what in which periods, as text, CSV, JSON Lines
// and the formats of other programs.
//
// It decides which rows add up to a line, the order of lines, the format of numbers and the
// manifest of a file, from the rows and the interval only: the same rows give the same bytes on
// every machine at any time. From the same rows it decides which alerts are due. It never queries
// the cluster, and no report contains the time of its creation.
package report
