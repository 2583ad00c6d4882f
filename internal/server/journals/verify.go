package journals

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

// VerifyJournals recomputes the journals from their first entries and compares the result with the
// state. It relies only on the hashes in the state.
func (r *Reader) VerifyJournals(ctx context.Context, _ *greylagv1.VerifyJournalsRequest) (*greylagv1.VerifyJournalsResponse, error) {
	v := r.Views.View()
	out := &greylagv1.VerifyJournalsResponse{Controller: r.Views.ID}
	for _, verify := range []func(context.Context, *state.View) (*greylagv1.VerifiedJournal, error){r.verifyCredits, r.verifyAudit} {
		j, err := verify(ctx, v)
		if err != nil {
			return nil, err
		}
		r.Logger.Info("verified", "journal", wire.Word(j.Name), "entries", j.Entries, "head", hex.EncodeToString(j.Head), "fault", j.Fault)
		out.Journals = append(out.Journals, j)
	}
	return out, nil
}

// verifyCredits recomputes every balance of the ledger; after a restore that left entries out, only the
// chain of the later ones, since only the state has the balances of the others.
func (r *Reader) verifyCredits(ctx context.Context, v *state.View) (*greylagv1.VerifiedJournal, error) {
	seq, head := v.Credits().Head()
	out, h := &greylagv1.VerifiedJournal{Name: greylagv1.Journal_JOURNAL_CREDITS}, v.History()
	if h.Credits > 0 {
		out.FirstEntry, out.Entries, out.Head = h.Credits+1, h.Credits, h.CreditsHead[:]
		chain := accounting.EntryChain{Seq: h.Credits, Head: h.CreditsHead}
		err := r.verify(ctx, out, archive.CreditJournal, seq, creditRow(chain.Add))
		checkEnd(out, chain.Seq == seq && chain.Head == head)
		return out, err
	}
	audit := accounting.NewAudit(v.Credits())
	err := r.verify(ctx, out, archive.CreditJournal, seq, creditRow(audit.Add))
	if err == nil && out.Fault == "" {
		if err := audit.CompareWith(v.Credits()); err != nil {
			out.Fault = err.Error()
		}
	}
	return out, err
}

// creditRow returns a function that decodes a row, passes it to add and returns its hash.
func creditRow(add func(*accounting.Entry) error) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		e, err := accounting.ReadRow(data)
		if err != nil {
			return nil, err
		}
		return e.Hash[:], add(&e)
	}
}

// verifyAudit recomputes the chain of the audit journal.
func (r *Reader) verifyAudit(ctx context.Context, v *state.View) (*greylagv1.VerifiedJournal, error) {
	seq, head := v.Audited()
	out, h := &greylagv1.VerifiedJournal{Name: greylagv1.Journal_JOURNAL_AUDIT}, v.History()
	chain := command.AuditChain{Seq: h.Audit, Head: h.AuditHead}
	if h.Audit > 0 {
		out.FirstEntry, out.Entries, out.Head = h.Audit+1, h.Audit, h.AuditHead[:]
	}
	err := r.verify(ctx, out, archive.AuditJournal, seq, func(data []byte) ([]byte, error) {
		e, err := command.DecodeAudit(data)
		if err != nil {
			return nil, err
		}
		return e.Hash[:], chain.Add(&e)
	})
	checkEnd(out, chain.Seq == seq && chain.Head == head)
	return out, err
}

// verify passes the rows of a journal up to seq to add, which returns their hashes, and records the
// first wrong one.
func (r *Reader) verify(ctx context.Context, out *greylagv1.VerifiedJournal, j archive.Journal, seq uint64, add func(data []byte) ([]byte, error)) error {
	if seq > out.Entries {
		if err := r.written(ctx, j, seq); err != nil {
			return err
		}
	}
	err := r.eachRow(ctx, j, func(row archive.Row) error {
		if out.Entries == seq {
			return ErrEnough // booked after the view
		}
		hash, err := add(row.Data)
		if hash != nil {
			out.Entries, out.Head = row.Seq, hash
		}
		if err != nil {
			return &badRow{row.Seq, err}
		}
		return nil
	})
	if bad, is := errors.AsType[*badRow](err); is {
		out.BadEntry, out.Fault, err = bad.seq, bad.Error(), nil
	}
	return err
}

// checkEnd records a journal whose end differs from the state.
func checkEnd(out *greylagv1.VerifiedJournal, same bool) {
	if out.Fault == "" && !same {
		out.Fault = "its end does not match the state"
	}
}

// written waits up to 2 s until the archive has an entry that the state has booked.
func (r *Reader) written(ctx context.Context, j archive.Journal, seq uint64) error {
	for range 200 {
		rows, err := r.Archive.Rows(j, seq, 1)
		if err != nil || seq == 0 || len(rows) > 0 {
			return err
		}
		if !views.Pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}
