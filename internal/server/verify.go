package server

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
)

// VerifyJournals recomputes the journals from their first entries, and compares what comes out
// with the state. Nothing is believed but the hashes that the state holds.
func (s *creditService) VerifyJournals(ctx context.Context, _ *greylagv1.VerifyJournalsRequest) (*greylagv1.VerifyJournalsResponse, error) {
	v := s.cfg.State.View()
	out := &greylagv1.VerifyJournalsResponse{Controller: s.cfg.ID}
	for _, verify := range []func(context.Context, *state.View) (*greylagv1.VerifiedJournal, error){s.verifyCredits, s.verifyAudit} {
		j, err := verify(ctx, v)
		if err != nil {
			return nil, err
		}
		s.log.Info("verified", "journal", wire.Word(j.Name), "entries", j.Entries, "head", hex.EncodeToString(j.Head), "fault", j.Fault)
		out.Journals = append(out.Journals, j)
	}
	return out, nil
}

// verifyCredits recomputes every balance of the ledger.
func (s *creditService) verifyCredits(ctx context.Context, v *state.View) (*greylagv1.VerifiedJournal, error) {
	if h := v.History(); h.Credits > 0 {
		return s.verifyCreditChain(ctx, v, h)
	}
	seq, _ := v.Credits().Head()
	out := &greylagv1.VerifiedJournal{Name: greylagv1.Journal_JOURNAL_CREDITS}
	audit := accounting.NewAudit(v.Credits())
	if err := s.written(ctx, archive.CreditJournal, seq); err != nil {
		return nil, err
	}
	err := s.eachEntry(ctx, func(e *accounting.Entry) error {
		if out.Entries == seq {
			return errEnough // of after the view
		}
		out.Entries, out.Head = out.Entries+1, e.Hash[:] // its place, not what it says of itself
		if err := audit.Add(e); err != nil {
			return &badRow{out.Entries, err}
		}
		return nil
	})
	if err := wrongRow(out, err); err != nil {
		return nil, err
	}
	if out.Fault == "" {
		if err := audit.Against(v.Credits()); err != nil {
			out.Fault = err.Error()
		}
	}
	return out, nil
}

// verifyCreditChain recomputes the chain after the entries that a restore left out. Only the
// state has the balances of those entries.
func (s *creditService) verifyCreditChain(ctx context.Context, v *state.View, h state.History) (*greylagv1.VerifiedJournal, error) {
	seq, head := v.Credits().Head()
	out := &greylagv1.VerifiedJournal{Name: greylagv1.Journal_JOURNAL_CREDITS, First: h.Credits + 1, Entries: h.Credits, Head: h.CreditsHead[:]}
	chain := accounting.EntryChain{Seq: h.Credits, Head: h.CreditsHead}
	if seq > h.Credits {
		if err := s.written(ctx, archive.CreditJournal, seq); err != nil {
			return nil, err
		}
	}
	err := s.eachEntry(ctx, func(e *accounting.Entry) error {
		if out.Entries == seq {
			return errEnough
		}
		out.Entries, out.Head = out.Entries+1, e.Hash[:]
		if err := chain.Add(e); err != nil {
			return &badRow{out.Entries, err}
		}
		return nil
	})
	if err := wrongRow(out, err); err != nil {
		return nil, err
	}
	if out.Fault == "" && (chain.Seq != seq || chain.Head != head) {
		out.Fault = "its end does not match the state"
	}
	return out, nil
}

// verifyAudit recomputes the chain of the audit journal.
func (s *creditService) verifyAudit(ctx context.Context, v *state.View) (*greylagv1.VerifiedJournal, error) {
	seq, head := v.Audited()
	out := &greylagv1.VerifiedJournal{Name: greylagv1.Journal_JOURNAL_AUDIT}
	h := v.History()
	chain := command.AuditChain{Seq: h.Audit, Head: h.AuditHead}
	if h.Audit > 0 {
		out.First = h.Audit + 1
	}
	if err := s.written(ctx, archive.AuditJournal, seq); err != nil {
		return nil, err
	}
	err := s.eachRow(ctx, archive.AuditJournal, func(r archive.Row) error {
		if r.Seq > seq {
			return errEnough
		}
		e, err := command.DecodeAudit(r.Data)
		if err != nil {
			return &badRow{r.Seq, err}
		}
		out.Entries, out.Head = r.Seq, e.Hash[:]
		if err := chain.Add(&e); err != nil {
			return &badRow{r.Seq, err}
		}
		return nil
	})
	if err := wrongRow(out, err); err != nil {
		return nil, err
	}
	if out.Fault == "" && (chain.Seq != seq || chain.Head != head) {
		out.Fault = "its end does not match the state"
	}
	return out, nil
}

// wrongRow notes an entry that is not what it should be; any other error is returned.
func wrongRow(out *greylagv1.VerifiedJournal, err error) error {
	bad, is := errors.AsType[*badRow](err)
	if !is {
		return err
	}
	out.Wrong, out.Fault = bad.seq, bad.Error()
	return nil
}

// written waits a moment for an entry that the state has booked to come to the archive.
func (s *Server) written(ctx context.Context, j archive.Journal, seq uint64) error {
	for range 200 {
		rows, err := s.cfg.Archive.Rows(j, seq, 1)
		if err != nil || seq == 0 || len(rows) > 0 {
			return err
		}
		if !views.Pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}
