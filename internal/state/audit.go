package state

import (
	"strings"

	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAuditText bounds the text of one audit entry, in bytes.
const maxAuditText = 4096

// audit adds an entry to the audit journal for a command that a user requested or the scheduler
// decided. A repeated request changed nothing and adds no entry. before is the policy in force
// before the command.
func (s *State) audit(c command.Command, r command.Result, before *cluster.Policy) {
	if s.unwatched || s.isRetry {
		return
	}
	d := audit.Describe(c, r, before, described{s})
	if d.Kind == "" {
		return
	}
	e := command.AuditEntry{
		Seq: s.audited.seq + 1, Index: s.index, At: s.now, User: d.By.Identity.User, Role: d.By.Role, Source: d.By.Source,
		Kind: d.Kind, Text: d.Text, Prev: s.audited.head,
	}
	if refusal, refused := r.(*command.Refusal); refused {
		e.Code, e.Text = refusal.Code, d.Text+": "+command.OneLine(refusal)
	}
	if len(e.Text) > maxAuditText {
		e.Text = strings.ToValidUTF8(e.Text[:maxAuditText], "")
	}
	e.Hash = e.Sum()
	s.audited = audited{e.Seq, e.Hash}
	s.effects.Audit = append(s.effects.Audit, e)
}

// audited is the head of the audit journal.
type audited struct {
	seq  uint64
	head command.AuditHash
}

// Audited returns the number and the hash of the newest entry of the audit journal.
func (v *View) Audited() (uint64, command.AuditHash) { return v.audited.seq, v.audited.head }

// described is the state as the audit journal describes it.
type described struct{ *State }

func (d described) ActiveJob(id cluster.JobID) (*cluster.Job, bool) { return d.active(id) }
func (d described) LastJob() cluster.JobID                          { return d.jobTables.next - 1 }
func (d described) Policy() *cluster.Policy                         { return d.policy }

func (d described) ControllerName(id string) string {
	m, _ := d.hosts.Controller(id)
	return m.Name
}

// History records the last restore from a backup, and where finished jobs and journal
// entries begin. The zero value means that the cluster was never restored.
type History struct {
	Restored cluster.Instant // when, by the log's clock
	Taken    cluster.Instant // when the backup was made
	Index    uint64          // log entry that recorded the restore
	// FirstJob is the number of the first finished job that exists; 0 means that all exist.
	FirstJob uint64
	// JobsSince is the end of job FirstJob, or the time of the restore if no finished job was kept.
	JobsSince cluster.Instant
	// Credits and Audit are the last entries of the journals that were left out, 0 if none was: the
	// chains begin after them, with these hashes.
	Credits     uint64
	CreditsHead accounting.Hash
	Audit       uint64
	AuditHead   command.AuditHash
	// Leases is the number of the last ended lease that was left out; 0 if none was.
	Leases uint64
}

// History returns the last restore of the cluster.
func (v *View) History() History { return v.history }

func historyFields(c *codec.Coder, h *History) {
	codec.Int(c, &h.Restored)
	codec.Int(c, &h.Taken)
	codec.Uint(c, &h.Index)
	codec.Uint(c, &h.FirstJob)
	codec.Int(c, &h.JobsSince)
	codec.Uint(c, &h.Credits)
	codec.Fixed(c, h.CreditsHead[:])
	codec.Uint(c, &h.Audit)
	codec.Fixed(c, h.AuditHead[:])
	codec.Uint(c, &h.Leases)
}

// restored records a restore. The backup lacks some records, and they stay absent: the finished
// jobs older than those in the state, and all journal entries so far.
func (s *State) restored(c *command.Restored) command.Result {
	h := s.history
	h.Restored, h.Taken, h.Index = s.now, c.Taken, s.index
	if !c.History {
		h.FirstJob, h.JobsSince = s.finished+1, s.now
		if first, j, found := s.tail.First(); found {
			h.FirstJob, h.JobsSince = first, j.Ended
		}
		if s.finished == 0 || h.FirstJob == 1 { // nothing is missing
			h.FirstJob, h.JobsSince = 0, 0
		}
		h.Credits, h.CreditsHead = s.credits.Ledger().Head()
		h.Audit, h.AuditHead = s.audited.seq, s.audited.head
		h.Leases = s.leases.Ended()
	}
	s.history = h
	s.hosts.ForgetRotation()
	s.leases.Restored(s.leaseEnv())
	return &command.Done{Version: s.index}
}

func (x *restoring) readHistory(c *codec.Coder) {
	codec.Record(c, &x.history, historyFields)
	h := &x.history
	if !c.Failed() && (h.Restored == 0 || h.FirstJob > x.finished+1 || h.Audit > x.audited.seq) {
		c.Fail("the history is not well formed")
	}
}
