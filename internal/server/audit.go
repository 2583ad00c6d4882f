package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/server/call"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// StreamAudit streams the audit journal of this controller.
func (s *clusterService) StreamAudit(ctx context.Context, p *greylagv1.StreamAuditRequest, stream *connect.ServerStream[greylagv1.StreamAuditResponse]) error {
	from, before := cluster.Instant(0), cluster.Never
	if p.GetFrom() != nil {
		from = cluster.InstantOf(p.GetFrom().AsTime())
	}
	if p.GetBefore() != nil {
		before = cluster.InstantOf(p.GetBefore().AsTime())
	}
	return s.eachRow(ctx, archive.AuditJournal, func(r archive.Row) error {
		e, err := command.DecodeAudit(r.Data)
		kind, signal := wire.AuditKind(e.Kind)
		switch {
		case err != nil:
			return &badRow{r.Seq, err}
		case e.At >= before:
			return errEnough
		case e.At < from, p.GetUser() != "" && e.User != p.GetUser(), p.GetKind() != 0 && kind != p.GetKind(), p.GetSignal() != 0 && signal != p.GetSignal(),
			!strings.Contains(e.Text, p.GetWord()):
			return nil
		}
		return stream.Send(&greylagv1.StreamAuditResponse{
			Seq: e.Seq, Index: e.Index, At: wire.Timestamp(e.At), User: e.User, Role: wire.Enum[greylagv1.Role](roleWord(e.Role)), Source: e.Source,
			Kind: kind, Signal: signal, Text: e.Text, Refused: e.Code != 0, Hash: e.Hash[:],
		})
	})
}

// roleWord is the word for a role.
func roleWord(r command.Role) string {
	switch r {
	case command.RoleOperator:
		return "operator"
	case command.RoleAdmin:
		return "admin"
	}
	return "user"
}

// eachRow walks over a journal in this controller's archive.
func (s *Server) eachRow(ctx context.Context, j archive.Journal, f func(archive.Row) error) error {
	h := s.cfg.State.View().History()
	for next := 1 + map[archive.Journal]uint64{archive.CreditJournal: h.Credits, archive.AuditJournal: h.Audit}[j]; ; {
		rows, err := s.cfg.Archive.Rows(j, next, maxRecords)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, r := range rows {
			if r.Seq != next {
				return call.Refuse(command.Incomplete, "they are being fetched from the other controllers; ask again, or ask another one", "entries %d to %d of the journal are not here", next, r.Seq-1)
			}
			switch err := f(r); {
			case errors.Is(err, errEnough):
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

// badRow is an entry that cannot be read.
type badRow struct {
	seq uint64
	why error
}

func (b *badRow) Error() string {
	if errors.Is(b.why, accounting.ErrJournal) || errors.Is(b.why, command.ErrTampered) {
		return b.why.Error() // which names the entry
	}
	return fmt.Sprintf("entry %d: %v", b.seq, b.why)
}

func (b *badRow) Unwrap() error { return b.why }

// errEnough ends a walk over the journal.
var errEnough = errors.New("enough")
