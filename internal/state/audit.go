package state

import (
	"strings"

	"github.com/greylag/greylag/internal/audit"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// maxAuditText bounds the line of one audit entry, in bytes.
const maxAuditText = 4096

// audit adds an entry to the audit journal for a command that a user requested or the
// scheduler decided. A repeated request changed nothing and adds none. before is the policy
// in force before the command.
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

// audited is the end of the audit journal.
type audited struct {
	seq  uint64
	head command.AuditHash
}

// Audited is the number and the hash of the newest entry of the audit journal.
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
