package table

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/greylag/greylag/internal/codec"
)

// frameBytes is the size from which on a frame ends with the present record.
const frameBytes = 128 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // never written

// Checksum returns the CRC-32C of a frame's head and body.
func Checksum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// Writer writes the records of a snapshot into frames:
//
//	kind, 1 byte | length, 4 bytes LE | records | CRC-32C of all before, 4 bytes LE
//
// A table takes as many frames of its kind as it needs. After the first error a Writer writes
// nothing.
type Writer struct {
	w    io.Writer
	kind Kind
	c    codec.Coder
	err  error
}

// NewWriter returns a Writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Begin starts the frames of a kind.
func (w *Writer) Begin(kind Kind) {
	w.Flush()
	w.kind = kind
}

// Coder returns where the next record goes.
func (w *Writer) Coder() *codec.Coder { return &w.c }

// EndRecord ends a record, and the frame if it is large enough.
func (w *Writer) EndRecord() {
	if len(w.c.Written()) >= frameBytes {
		w.Flush()
	}
}

// Flush writes the present frame, unless it is empty, and returns the first error so far.
func (w *Writer) Flush() error {
	body := w.c.Written()
	if w.err != nil || len(body) == 0 {
		return w.err
	}
	head := binary.LittleEndian.AppendUint32([]byte{byte(w.kind)}, uint32(len(body)))
	for _, part := range [][]byte{head, body, binary.LittleEndian.AppendUint32(nil, Checksum(head, body))} {
		if _, err := w.w.Write(part); err != nil {
			w.err = fmt.Errorf("write snapshot: %w", err)
			return w.err
		}
	}
	w.c = codec.Writer(body[:0])
	return nil
}

// One writes a frame with one record.
func One[V any](w *Writer, kind Kind, v *V, fields func(*codec.Coder, *V)) {
	w.Begin(kind)
	codec.Record(&w.c, v, fields)
}
