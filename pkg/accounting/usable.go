package accounting

import (
	"math"

	"github.com/greylag/greylag/pkg/cluster"
)

// Usable is what a new lien of the first account of a chain may set aside at most: what the
// buckets of the chain that are good now pay for it, within every hard budget; nothing where
// one of the chain owes. O(buckets of the chain).
func (l *Ledger) Usable(chain PayerPath, now cluster.Instant, pays func(*Bucket) Credits) Credits {
	most := Credits(math.MaxInt64)
	var sum Credits
	for _, id := range chain {
		n := l.Payer(id)
		if n.Owes > 0 {
			return 0
		}
		if n.Budget.Hard && n.Budget.Limit > 0 {
			most = min(most, n.Budget.Limit-n.Used(now))
		}
		for b := range l.BucketsOf(id) {
			if b.valid(now) {
				sum += pays(b)
			}
		}
	}
	return max(0, min(most, sum))
}

// Pays is what a lien of a claim may set aside at most: what shares and scopes keep from it
// is not counted. O(buckets of the chain).
func (l *Ledger) Pays(c *Claim) Credits {
	n := Lien{Claim: *c}
	return l.Usable(c.Chain, l.now, func(b *Bucket) Credits { return b.pays(&n) })
}

// Allows reports whether a bucket of the scope pays for a job of which only what another
// scope says is known: all that this names of a kind, where it names any.
func (s *Scope) Allows(job *Scope) bool {
	all := func(allowed, of []string) bool {
		for _, x := range of {
			if !within(allowed, x) {
				return false
			}
		}
		return true
	}
	return all(s.GPUTypes, job.GPUTypes) && all(s.Partitions, job.Partitions) && all(s.QOS, job.QOS)
}
