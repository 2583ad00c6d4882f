package jobspec

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is a protobuf message being written. As in proto3, what is empty is left
// out. Source: protobuf.dev/programming-guides/encoding.
type message []byte

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

func (m *message) texts(field protowire.Number, all []string) {
	for _, s := range all {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

func (m *message) number(field protowire.Number, n int64) {
	if n != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(n))
	}
}

func (m *message) flag(field protowire.Number, on bool) {
	if on {
		m.number(field, 1)
	}
}

// child is a message within, or other bytes; it is written even when it is empty.
func (m *message) child(field protowire.Number, c []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), c)
}

// duration is a google.protobuf.Duration.
func (m *message) duration(field protowire.Number, d time.Duration) {
	var c message
	c.number(1, int64(d/time.Second))
	c.number(2, int64(d%time.Second))
	m.child(field, c)
}

// moment is a google.protobuf.Timestamp; none for the zero time.
func (m *message) moment(field protowire.Number, t time.Time) {
	if t.IsZero() {
		return
	}
	var c message
	c.number(1, t.Unix())
	c.number(2, int64(t.Nanosecond()))
	m.child(field, c)
}
