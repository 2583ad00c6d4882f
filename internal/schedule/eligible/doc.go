// Package eligible decides which pending jobs may start at all, whatever is free: begin time, deadline,
// dependencies, QOS, partitions, reservation, array limits, and the limits of accounts, users and QOS.
//
// It never decides in which order jobs start, when or where.
package eligible
