// Package codec writes values as records of positional fields and reads them
// back, with one description of the fields for both directions.
//
// It decides how a field looks in bytes, from the field's value alone, so equal
// values give equal bytes. It uses no reflection and no names. It never trusts
// what it reads: a length beyond the end of the input is an error before anything
// is allocated, and memory is at most a small multiple of the input.
//
// A record is a length and its fields in order. A later form appends fields, each
// after [Coder.Added]: reading an older record, which ends there, leaves them zero;
// reading a newer one skips what follows the known fields. Fields are never removed,
// moved or given another meaning. A record that stands alone begins with its form
// ([FormByte]).
//
//	unsigned  uvarint          bool    one byte, 0 or 1
//	signed    zigzag varint    string  uvarint length, bytes
//	array     its bytes        list    uvarint count, elements
//	record    uvarint length, fields
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrMalformed is wrapped by every error of this package, except ErrEarlier.
var ErrMalformed = errors.New("malformed record")

// ErrEarlier is wrapped by the errors for data that a development version wrote before the
// first form of its format. No version reads it.
var ErrEarlier = errors.New("written by an earlier development version of greylag")

// formBase is what a form byte adds to the number of the form, which is at most lastForm.
// Development versions wrote the number alone, up to earlierForms.
const formBase, lastForm, earlierForms = 0x40, 0x3f, 6

// FormByte returns the byte that begins a record of a form, 1 or more.
func FormByte(form uint8) byte { return formBase + form }

// FormOf returns the form that a form byte stands for. The error wraps [ErrEarlier] or
// [ErrMalformed].
func FormOf(b byte) (form uint8, err error) {
	switch {
	case b > formBase && b <= formBase+lastForm:
		return b - formBase, nil
	case b > 0 && b <= earlierForms:
		return 0, ErrEarlier
	}
	return 0, fmt.Errorf("%w: no form", ErrMalformed)
}

// Coder passes over fields, in one of two directions. A Coder from [Writer]
// appends them, one from [Reader] fills them in. After the first error a reader
// leaves everything zero.
type Coder struct {
	buf     []byte
	pos     int // of the next byte to read
	end     int // of the record being read
	reading bool
	err     error
	words   *[64]string // of the strings read lately, so that equal ones share memory
}

// Writer returns a Coder that appends to buf.
func Writer(buf []byte) Coder { return Coder{buf: buf} }

// wordsFrom is the input size from which it pays to look for repeated strings.
const wordsFrom = 1 << 10

// Reader returns a Coder that reads data. Nothing it returns points into data.
func Reader(data []byte) Coder {
	c := Coder{buf: data, end: len(data), reading: true}
	if len(data) >= wordsFrom {
		c.words = new([64]string)
	}
	return c
}

// Reading reports the direction.
func (c *Coder) Reading() bool { return c.reading }

// Written is what a writer has appended, after what it was given.
func (c *Coder) Written() []byte { return c.buf }

// Remaining is how many bytes of the present record are unread.
func (c *Coder) Remaining() int { return c.end - c.pos }

// Err is the first error, also when bytes follow the last field of the outermost
// level, which nothing but a record may have.
func (c *Coder) Err() error {
	if c.err == nil && c.reading && c.pos != c.end {
		return fmt.Errorf("%w: %d bytes after its end", ErrMalformed, c.end-c.pos)
	}
	return c.err
}

// Failed reports whether an error has been found so far.
func (c *Coder) Failed() bool { return c.err != nil }

// Fail makes the coder refuse the input: a field's value is not one that a writer
// writes.
func (c *Coder) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format+" at byte %d", append(append([]any{ErrMalformed}, args...), c.pos)...)
	}
	c.pos = c.end
}

// Added goes before the first field of each later version of a record. It reports
// whether there is anything more; when not, the rest of the fields must be left
// alone.
func (c *Coder) Added() bool { return !c.reading || c.err == nil && c.pos < c.end }

// Uint is an unsigned number.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, v *T) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		return
	}
	u := c.uvarint()
	if *v = T(u); uint64(*v) != u {
		*v = 0
		c.Fail("number %d is too large", u)
	}
}

// Int is a signed number.
func Int[T ~int32 | ~int64](c *Coder, v *T) {
	if !c.reading {
		c.buf = binary.AppendVarint(c.buf, int64(*v))
		return
	}
	u := c.uvarint()
	i := int64(u>>1) ^ -int64(u&1)
	if *v = T(i); int64(*v) != i {
		*v = 0
		c.Fail("number %d is too large", i)
	}
}

// uvarint reads the shortest form only, so that each value has one encoding.
func (c *Coder) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	u, n := binary.Uvarint(c.buf[c.pos:c.end])
	if n <= 0 || n > max(1, (bits.Len64(u)+6)/7) {
		c.Fail("no number")
		return 0
	}
	c.pos += n
	return u
}

// Bool is true or false.
func Bool(c *Coder, v *bool) {
	var u uint8
	if *v {
		u = 1
	}
	Uint(c, &u)
	if c.reading {
		if *v = u == 1; u > 1 {
			c.Fail("neither true nor false")
		}
	}
}

// length is the number of bytes or elements that follow, each of at least one byte.
func (c *Coder) length(n int) int {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, uint64(n))
		return n
	}
	u := c.uvarint()
	if u > uint64(c.end-c.pos) {
		c.Fail("a length of %d, beyond the end", u)
		return 0
	}
	return int(u)
}

// String is text or any bytes.
func String(c *Coder, v *string) {
	n := c.length(len(*v))
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = c.word(c.buf[c.pos : c.pos+n])
	c.pos += n
}

// word is the string of b; a recent equal one if there is one.
func (c *Coder) word(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if c.words == nil || len(b) > 128 {
		return string(b)
	}
	h := uint32(len(b))
	for _, x := range b {
		h = (h ^ uint32(x)) * 0x01000193 // FNV-1a, RFC 9923
	}
	slot := &c.words[(h^h>>16)%64]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}

// Bytes is a byte string. Nil and empty are the same and read as nil.
func Bytes(c *Coder, v *[]byte) {
	n := c.length(len(*v))
	switch {
	case !c.reading:
		c.buf = append(c.buf, *v...)
	case n == 0:
		*v = nil
	default:
		*v = append(make([]byte, 0, n), c.buf[c.pos:c.pos+n]...)
		c.pos += n
	}
}

// Fixed is a number of bytes that both sides know: pass array[:].
func Fixed(c *Coder, v []byte) {
	switch {
	case !c.reading:
		c.buf = append(c.buf, v...)
	case c.err != nil || len(v) > c.end-c.pos:
		c.Fail("%d bytes are missing", len(v))
		clear(v)
	default:
		c.pos += copy(v, c.buf[c.pos:])
	}
}
