package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/state/accounts"
	"github.com/greylag/greylag/internal/state/admission"
	"github.com/greylag/greylag/internal/state/blobs"
	"github.com/greylag/greylag/internal/state/credits"
	"github.com/greylag/greylag/internal/state/crontab"
	"github.com/greylag/greylag/internal/state/hosts"
	"github.com/greylag/greylag/internal/state/leases"
	"github.com/greylag/greylag/internal/state/secrets"
	"github.com/greylag/greylag/internal/state/table"
	"github.com/greylag/greylag/internal/state/totals"
	"github.com/greylag/greylag/pkg/cluster"
)

// none is the value of a set's entries.
type none = struct{}

// tables holds everything that a snapshot contains, and the indexes that readers use. It is copied
// by value for each View, after cow.Map.Clone of each table.
type tables struct {
	index     uint64
	now       cluster.Instant
	clusterID string
	policy    *cluster.Policy
	fabric    *fabric
	audited   audited
	history   History

	jobTables
	nodeTables
	requests requests
	blobs    blobs.Blobs
	hosts    hosts.Hosts

	accounts accounts.Accounts
	credits  credits.Credits
	totals   totals.Totals
	crontab  crontab.Crontab
	secrets  secrets.Secrets
	leases   leases.Leases

	// Indexes, rebuilt from the above when a snapshot is read.
	partitions *admission.Index // nil after a change
}

func newTables(h *table.Hasher) tables {
	policy := cluster.DefaultPolicy()
	return tables{
		policy:     &policy,
		fabric:     &fabric{},
		jobTables:  newJobs(h),
		nodeTables: newNodes(h),
		requests:   newRequests(h),
		blobs:      blobs.New(h),
		hosts:      hosts.New(h),
		credits:    credits.New(h),
		totals:     totals.New(h),
		crontab:    crontab.New(h),
		secrets:    secrets.New(h),
		leases:     leases.New(h),
		accounts:   accounts.New(h, policy.Scheduling.FairShare.HalfLife),
	}
}

// clone returns tables that later writes to t do not change, and that have no digest. O(1).
func (t *tables) clone() tables {
	c := *t
	c.jobTables, c.nodeTables = t.jobTables.clone(nil), t.nodeTables.clone(nil)
	c.requests, c.blobs, c.hosts = t.requests.clone(nil), t.blobs.Clone(nil), t.hosts.Clone(nil)
	c.accounts, c.credits, c.totals = t.accounts.Clone(nil), t.credits.Clone(nil), t.totals.Clone(nil)
	c.crontab, c.secrets, c.leases = t.crontab.Clone(nil), t.secrets.Clone(nil), t.leases.Clone(nil)
	return c
}

// meta holds the values that exist once.
type meta struct {
	index       uint64
	now         cluster.Instant
	clusterID   string
	nextJob     cluster.JobID
	finished    uint64
	nextRequest uint64
	audited     audited
	accountsAt  uint64
}

func (t *tables) metaOf() meta {
	return meta{t.index, t.now, t.clusterID, t.jobTables.next, t.finished, t.requests.next, t.audited, t.accounts.Version()}
}

func metaFields(c *codec.Coder, m *meta) {
	codec.Uint(c, &m.index)
	codec.Int(c, &m.now)
	codec.String(c, &m.clusterID)
	codec.Uint(c, &m.nextJob)
	codec.Uint(c, &m.finished)
	codec.Uint(c, &m.nextRequest)
	codec.Uint(c, &m.audited.seq)
	codec.Fixed(c, m.audited.head[:])
	codec.Uint(c, &m.accountsAt)
}
