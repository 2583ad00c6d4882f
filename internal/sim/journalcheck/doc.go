// Package journalcheck recomputes the sums of a journal of credits, independently of the ledger.
//
// It reads the rows and adds up what buckets, payers and attempts have, without any code of the
// ledger's package. It checks each entry against those before it and against the justification that
// the entry states, and never asks the cluster.
package journalcheck
