package jobspec

import (
	"encoding/binary"
	"time"
)

// message is a protobuf message being written. As in proto3, what is empty is left
// out. Source: protobuf.dev/programming-guides/encoding.
type message []byte

// The kinds of field, as in the lowest three bits of what stands before each.
const (
	kindVarint = 0
	kindFixed8 = 1 // of 8 bytes
	kindBytes  = 2
	kindFixed4 = 5
)

// tag begins a field.
func (m *message) tag(field, kind uint64) { *m = binary.AppendUvarint(*m, field<<3|kind) }

func (m *message) text(field uint64, s string) {
	if s != "" {
		m.texts(field, []string{s})
	}
}

func (m *message) texts(field uint64, all []string) {
	for _, s := range all {
		m.tag(field, kindBytes)
		*m = append(binary.AppendUvarint(*m, uint64(len(s))), s...)
	}
}

func (m *message) number(field uint64, n int64) {
	if n != 0 {
		m.tag(field, kindVarint)
		*m = binary.AppendUvarint(*m, uint64(n))
	}
}

func (m *message) flag(field uint64, on bool) {
	if on {
		m.number(field, 1)
	}
}

// child is a message within, or other bytes; it is written even when it is empty.
func (m *message) child(field uint64, c []byte) {
	m.tag(field, kindBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(c))), c...)
}

// duration is a google.protobuf.Duration.
func (m *message) duration(field uint64, d time.Duration) {
	var c message
	c.number(1, int64(d/time.Second))
	c.number(2, int64(d%time.Second))
	m.child(field, c)
}

// moment is a google.protobuf.Timestamp; none for the zero time.
func (m *message) moment(field uint64, t time.Time) {
	if t.IsZero() {
		return
	}
	var c message
	c.number(1, t.Unix())
	c.number(2, int64(t.Nanosecond()))
	m.child(field, c)
}
