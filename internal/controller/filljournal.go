package controller

import (
	"context"
	"fmt"

	"github.com/greylag/greylag/internal/archive"
)

// fillJournals gets missing journal entries. Those of credits and of changes are not trusted: gctl verify
// recomputes them against the head in the state.
func (f *Filler) fillJournals(ctx context.Context) error {
	for _, j := range []archive.Journal{archive.CreditJournal, archive.AuditJournal, archive.LeaseJournal} {
		for {
			gaps, err := f.Archive.RowGaps(j)
			if err != nil {
				return err
			}
			if len(gaps) == 0 {
				break
			}
			if err := f.fillRows(ctx, j, gaps[0]); err != nil {
				return fmt.Errorf("journal entries %d to %d: %w", gaps[0].First, gaps[0].Last, err)
			}
		}
	}
	return nil
}

// fillRows gets one part of a gap from any controller that has it.
func (f *Filler) fillRows(ctx context.Context, j archive.Journal, g archive.Gap) error {
	limit := int(min(g.Last-g.First+1, fillRecords))
	err := errNobodyHas
	for _, addr := range f.Others() {
		data, e := f.Peers.Rows(ctx, addr, uint32(j), g.First, limit)
		if e != nil {
			err = e
			continue
		}
		if len(data) == 0 {
			continue // it has the same gap
		}
		rows := make([]archive.Row, len(data))
		for i, d := range data {
			rows[i] = archive.Row{Seq: g.First + uint64(i), Data: d}
		}
		return f.Archive.FillRows(j, rows)
	}
	return err
}
