// Package cli holds the tests that run the users' programs together, on a cluster in memory. Each
// program has its own package below; ui is what they share.
package cli
