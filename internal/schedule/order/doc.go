// Package order decides which pending job comes first: by tier, priority of the partition,
// multifactor priority, time of submission and ID.
//
// It never decides whether a job may start, and it never looks at what is free.
package order
