package command

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/pkg/cluster"
)

// ErrTampered is wrapped by every error about an audit journal.
var ErrTampered = errors.New("audit journal is not whole")

// AuditKinds are the kinds of entries of an audit journal; those of signals end in the
// signal's number.
func AuditKinds() []string {
	return []string{
		"accounts", "cancel", "controller add", "controller remove", "credit budget", "credit close", "credit correct", "credit grant", "credit price", "credit refund", "credit void",
		"hold", "init", "join", "nodes dead", "nodes drain", "nodes remove", "nodes resume", "plan", "policy", "release", "requeue", "restore", "revoke", "rotate",
		"signal", "submit", "token", "topology", "update", "step", "step end", "step signal",
		"cron set", "cron hold", "cron release", "cron remove", "step attach", "secret set", "secret delete",
		"checkpoint commit", "checkpoint verify", "checkpoint damage", "checkpoint drop",
		"nodes reboot", "nodes reboot when idle", "nodes cancel reboot",
		"nodes fenced", "fence failed",
		"nodes reboot timeout",
		"leases", "leases end",
	}
}

// AuditHash is a SHA-256 digest.
type AuditHash [sha256.Size]byte

// AuditEntry is one entry of the audit journal: who changed what, or what the scheduler decided,
// and whether it was refused. Each carries the hash of the previous one.
type AuditEntry struct {
	Seq    uint64 // 1 for the first, without gaps
	Index  uint64 // of the log entry
	At     cluster.Instant
	User   string // the user who asked; "" for the cluster itself
	Role   Role
	Source string // address they came from
	Kind   string // such as "submit"
	Text   string // what, in one line
	Code   Code   // 0 when it was done
	Prev   AuditHash
	Hash   AuditHash
}

// Sum is the hash that the entry must carry: of Prev and all other fields.
func (e *AuditEntry) Sum() AuditHash {
	c := codec.Writer(make([]byte, 0, 256))
	codec.Fixed(&c, e.Prev[:])
	_ = auditFields(&c, e) // only reading fails
	return sha256.Sum256(c.Written())
}

func auditFields(c *codec.Coder, e *AuditEntry) error {
	err := formField(c)
	codec.Uint(c, &e.Seq)
	codec.Uint(c, &e.Index)
	codec.Int(c, &e.At)
	codec.String(c, &e.User)
	codec.Uint(c, &e.Role)
	codec.String(c, &e.Source)
	codec.String(c, &e.Kind)
	codec.String(c, &e.Text)
	codec.Uint(c, &e.Code)
	return err
}

// EncodeAudit writes an entry for the archive.
func EncodeAudit(e *AuditEntry) []byte {
	c := codec.Writer(make([]byte, 0, 256))
	_ = auditRecord(&c, e) // only reading fails
	return c.Written()
}

func auditRecord(c *codec.Coder, e *AuditEntry) error {
	codec.Fixed(c, e.Prev[:])
	codec.Fixed(c, e.Hash[:])
	return auditFields(c, e)
}

// DecodeAudit reads what EncodeAudit wrote, under the promises of [Decode]. It does not
// compare hashes.
func DecodeAudit(data []byte) (AuditEntry, error) {
	var e AuditEntry
	c := codec.Reader(data)
	if err := auditRecord(&c, &e); err != nil {
		return AuditEntry{}, fmt.Errorf("audit entry: %w", err)
	}
	if err := c.Err(); err != nil {
		return AuditEntry{}, fmt.Errorf("audit entry: %w: %w", ErrMalformed, err)
	}
	return e, nil
}

// AuditChain recomputes an audit journal from its first entry. The zero AuditChain is
// ready.
type AuditChain struct {
	Seq  uint64
	Head AuditHash
	at   cluster.Instant
}

// Add takes the next entry; the error names the first that is wrong by its number.
func (a *AuditChain) Add(e *AuditEntry) error {
	fault := func(what string) error { return fmt.Errorf("%w: entry %d: %s", ErrTampered, a.Seq+1, what) }
	switch {
	case e.Seq != a.Seq+1:
		return fault(fmt.Sprintf("its number is %d", e.Seq))
	case e.Prev != a.Head:
		return fault("it does not follow the one before")
	case e.Sum() != e.Hash:
		return fault("its hash is of something else")
	case e.At < a.at:
		return fault("its time is before that of the one before")
	}
	a.Seq, a.Head, a.at = e.Seq, e.Hash, e.At
	return nil
}
