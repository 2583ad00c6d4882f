package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// The fields of the records that only snapshots and digests have. The package
// codec says how they may grow.

// meta is what there is one of.
type meta struct {
	index       uint64
	now         cluster.Instant
	clusterID   string
	nextJob     cluster.JobID
	finished    uint64
	nextRequest uint64
	audited     audited
}

func (t *tables) metaOf() meta {
	return meta{t.index, t.now, t.clusterID, t.nextJob, t.finished, t.nextRequest, t.audited}
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
}

func arrayFields(c *codec.Coder, a *array) {
	codec.List(c, &a.ranges, command.RangeFields)
}

func signalsFields(c *codec.Coder, list *[]Signal) { codec.List(c, list, signalFields) }

func signalFields(c *codec.Coder, s *Signal) {
	codec.Uint(c, &s.ID)
	codec.Int(c, &s.Number)
	codec.Bool(c, &s.BatchOnly)
}

func requestRecord(c *codec.Coder, r *request) {
	codec.Fixed(c, r.id.Key[:])
	codec.Fixed(c, r.id.Payload[:])
	codec.Int(c, &r.at)
	codec.String(c, &r.answer)
}

func tokenFields(c *codec.Coder, t *token) {
	codec.Uint(c, &t.kind)
	codec.Int(c, &t.expires)
	codec.String(c, &t.usedBy)
	codec.String(c, &t.name)
	codec.Bool(c, &t.replace)
	codec.String(c, &t.by)
	codec.Int(c, &t.issued)
}

func uploadFields(c *codec.Coder, u *upload) {
	codec.Int(c, &u.size)
	codec.Int(c, &u.at)
	codec.List(c, &u.parts, codec.Bytes)
}

func blobFields(c *codec.Coder, u *blobUse) { codec.Int(c, &u.idle) }
