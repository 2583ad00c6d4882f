package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// A record is stored as: job id | ended | length of the user's name, 8 bytes
// big-endian each but the last, which has 2 | the name | the data.
const recordHead = 8 + 8 + 2

var errRecord = errors.New("record cannot be read")

func (r *Record) encode() []byte {
	buf := make([]byte, 0, recordHead+len(r.User)+len(r.Data))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.ID))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.Ended))
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(r.User)))
	return append(append(buf, r.User...), r.Data...)
}

// decode reads a stored record; its data is a copy.
func decode(seq uint64, value []byte) (Record, error) {
	if len(value) < recordHead {
		return Record{}, fmt.Errorf("%w: number %d has %d bytes", errRecord, seq, len(value))
	}
	name := int(binary.BigEndian.Uint16(value[16:]))
	if len(value) < recordHead+name {
		return Record{}, fmt.Errorf("%w: number %d is cut off", errRecord, seq)
	}
	return Record{
		Seq:   seq,
		ID:    cluster.JobID(binary.BigEndian.Uint64(value)),
		Ended: cluster.Instant(binary.BigEndian.Uint64(value[8:])),
		User:  string(value[recordHead : recordHead+name]),
		Data:  append([]byte(nil), value[recordHead+name:]...),
	}, nil
}

// stamp is ended and seq, the end of every key of a time index.
func stamp(key []byte, ended cluster.Instant, seq uint64) []byte {
	key = binary.BigEndian.AppendUint64(key, uint64(max(ended, 0)))
	return binary.BigEndian.AppendUint64(key, seq)
}

func endedKey(ended cluster.Instant, seq uint64) []byte { return stamp(nil, ended, seq) }

// userKey begins with the name, which holds no zero byte (names are validated).
func userKey(user string, ended cluster.Instant, seq uint64) []byte {
	return stamp(append([]byte(user), 0), ended, seq)
}
