// Package victims selects the jobs that end so that another one can start, such that the least work is lost.
//
// It works on amounts by host, not on plans: a caller verifies what it proposes. One host is solved exactly.
// Freeing several hosts at the least cost is NP-hard (minimum k-union): a greedy search from several starts is
// improved by removing victims and by exchanging single ones.
package victims
