// Package journals reads and verifies the audit journal and the journal of credits in the archive.
package journals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/server/views"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// Reader reads the journals of one controller.
type Reader struct {
	Views   *views.Source
	Archive interface {
		Rows(j archive.Journal, from uint64, limit int) ([]archive.Row, error)
	}
	Logger *slog.Logger
}

// pageRows is how many rows are read at a time.
const pageRows = 4096

// Interval returns the interval of a request; a missing end means any time.
func Interval(p interface {
	GetFrom() *timestamppb.Timestamp
	GetBefore() *timestamppb.Timestamp
}) (from, before cluster.Instant) {
	before = cluster.Never
	if p.GetFrom() != nil {
		from = cluster.InstantOf(p.GetFrom().AsTime())
	}
	if p.GetBefore() != nil {
		before = cluster.InstantOf(p.GetBefore().AsTime())
	}
	return from, before
}

// StreamAudit streams the audit journal of this controller.
func (r *Reader) StreamAudit(ctx context.Context, p *greylagv1.StreamAuditRequest, stream *connect.ServerStream[greylagv1.StreamAuditResponse]) error {
	if p.GetSignal() != 0 && p.GetKind() != greylagv1.AuditKind_AUDIT_KIND_SIGNAL {
		return call.Refuse(command.InvalidArgument, "", "signal is set for a kind other than AUDIT_KIND_SIGNAL")
	}
	from, before := Interval(p)
	return r.eachRow(ctx, archive.AuditJournal, func(row archive.Row) error {
		e, err := command.DecodeAudit(row.Data)
		kind, signal := wire.AuditKind(e.Kind)
		switch {
		case err != nil:
			return &badRow{row.Seq, err}
		case e.At >= before:
			return ErrEnough
		case e.At < from, p.GetUser() != "" && e.User != p.GetUser(), p.GetKind() != 0 && kind != p.GetKind(), p.GetSignal() != 0 && signal != p.GetSignal(),
			!strings.Contains(e.Text, p.GetContains()):
			return nil
		}
		return stream.Send(&greylagv1.StreamAuditResponse{
			Seq: e.Seq, Index: e.Index, At: wire.Timestamp(e.At), User: e.User, Role: greylagv1.Role(e.Role) + 1, Source: e.Source,
			Kind: kind, Signal: signal, Text: e.Text, Refused: e.Code != 0, Hash: e.Hash[:],
		})
	})
}

// eachRow calls f for the rows of a journal in this controller's archive.
func (r *Reader) eachRow(ctx context.Context, j archive.Journal, f func(archive.Row) error) error {
	h := r.Views.View().History()
	for next := 1 + map[archive.Journal]uint64{archive.CreditJournal: h.Credits, archive.AuditJournal: h.Audit}[j]; ; {
		rows, err := r.Archive.Rows(j, next, pageRows)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if row.Seq != next {
				return call.Refuse(command.Incomplete, "they are being fetched from the other controllers; ask again, or ask another one", "entries %d to %d of the journal are not here", next, row.Seq-1)
			}
			switch err := f(row); {
			case errors.Is(err, ErrEnough):
				return nil
			case err != nil:
				return err
			}
			next++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// EachEntry calls f for the entries of the journal of credits in this controller's archive.
func (r *Reader) EachEntry(ctx context.Context, f func(*accounting.Entry) error) error {
	return r.eachRow(ctx, archive.CreditJournal, func(row archive.Row) error {
		e, err := accounting.ReadRow(row.Data)
		if err != nil {
			return &badRow{row.Seq, err}
		}
		return f(&e)
	})
}

// badRow is the error of a row that cannot be decoded or verified.
type badRow struct {
	seq uint64
	why error
}

func (b *badRow) Error() string {
	if errors.Is(b.why, accounting.ErrJournal) || errors.Is(b.why, command.ErrTampered) {
		return b.why.Error() // names the entry
	}
	return fmt.Sprintf("entry %d: %v", b.seq, b.why)
}

func (b *badRow) Unwrap() error { return b.why }

// ErrEnough ends EachEntry without an error.
var ErrEnough = errors.New("enough")
