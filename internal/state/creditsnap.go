package state

import (
	"github.com/greylag/greylag/internal/codec"
	"github.com/greylag/greylag/internal/state/table"
)

// encodeCredits writes the ledger, a frame for each chunk.
func (v *View) encodeCredits(w *table.Writer) error {
	w.Begin(table.Credits)
	err := v.credits.Encode(func(chunk []byte) error {
		codec.Bytes(w.Coder(), &chunk)
		return w.Flush()
	})
	v.unproven.Encode(w)
	return err
}

func (x *restoring) readCredits(c *codec.Coder) {
	var chunk []byte
	codec.Bytes(c, &chunk)
	if c.Failed() {
		return
	}
	if err := x.ledger.Add(chunk); err != nil {
		c.Fail("credits: %w", err)
	}
}

// endCredits takes over the ledger; false, and a failure of c, when it is not whole.
func (x *restoring) endCredits(c *codec.Coder) bool {
	l, err := x.ledger.Ledger()
	if err != nil {
		c.Fail("credits: %w", err)
		return false
	}
	x.credits = l
	x.findSoft()
	return true
}
