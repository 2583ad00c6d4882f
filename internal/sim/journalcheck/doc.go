// Package journalcheck recomputes what a journal of credits comes to, as an auditor would.
//
// It reads the rows by itself and adds up what buckets, payers and attempts have; nothing
// here comes from the ledger's own package. It judges each entry by those before it and by
// the grounds that it states, and never asks the cluster.
package journalcheck
