package accounting

import (
	"math"

	"github.com/greylag/greylag/pkg/cluster"
)

// Usable returns the largest possible new lien of the first account of a path for a job: what the
// valid buckets of the path that allow the job have, within every hard budget; 0 if an account of
// the path owes. Only what the scope of the job names is known of it. O(buckets of the path).
func (l *Ledger) Usable(chain PayerPath, job *BucketScope, now cluster.Instant) Credits {
	return l.usable(chain, now, func(b *Bucket) Credits {
		if !b.Scope.Allows(job) {
			return 0
		}
		return b.Avail
	})
}

// usable is Usable with what each bucket pays.
func (l *Ledger) usable(chain PayerPath, now cluster.Instant, pays func(*Bucket) Credits) Credits {
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

// Pays returns the largest possible lien of a claim, within the shares and scopes of the buckets.
// O(buckets of the path).
func (l *Ledger) Pays(c *Claim) Credits {
	n := Lien{Claim: *c}
	return l.usable(c.Chain, l.now, func(b *Bucket) Credits { return b.pays(&n) })
}

// Allows reports whether a bucket of the scope may pay for a job. Only the values in the job's
// scope are known, and only kinds that it names are compared.
func (s *BucketScope) Allows(job *BucketScope) bool {
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
