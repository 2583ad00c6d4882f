package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// recordHead is the size of a stored record's fixed part. A record is stored as: job id | submitted
// | ended, 8 bytes big-endian each | state, 1 byte | length of the user's name | length of the
// account's, 2 bytes each | the names | the data.
const recordHead = 8 + 8 + 8 + 1 + 2 + 2

var errRecord = errors.New("record cannot be read")

func (r *Record) encode() []byte {
	buf := make([]byte, 0, recordHead+len(r.User)+len(r.Account)+len(r.Data))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.ID))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.Submitted))
	buf = binary.BigEndian.AppendUint64(buf, uint64(r.Ended))
	buf = append(buf, byte(r.State))
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(r.User)))
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(r.Account)))
	buf = append(append(buf, r.User...), r.Account...)
	return append(buf, r.Data...)
}

// decode reads a stored record; its data is a copy.
func decode(seq uint64, value []byte) (Record, error) {
	if len(value) < recordHead {
		return Record{}, fmt.Errorf("%w: number %d has %d bytes", errRecord, seq, len(value))
	}
	user := recordHead + int(binary.BigEndian.Uint16(value[25:]))
	account := user + int(binary.BigEndian.Uint16(value[27:]))
	if len(value) < account {
		return Record{}, fmt.Errorf("%w: number %d is cut off", errRecord, seq)
	}
	return Record{
		Seq:       seq,
		ID:        cluster.JobID(binary.BigEndian.Uint64(value)),
		Submitted: cluster.Instant(binary.BigEndian.Uint64(value[8:])),
		Ended:     cluster.Instant(binary.BigEndian.Uint64(value[16:])),
		State:     cluster.JobState(value[24]),
		User:      string(value[recordHead:user]),
		Account:   string(value[user:account]),
		Data:      append([]byte(nil), value[account:]...),
	}, nil
}

// stamp returns ended and seq, the end of every key of a time index.
func stamp(key []byte, ended cluster.Instant, seq uint64) []byte {
	key = binary.BigEndian.AppendUint64(key, uint64(max(ended, 0)))
	return binary.BigEndian.AppendUint64(key, seq)
}

// lane returns the common prefix of a name's keys in an index by names. Names hold no zero byte:
// they are validated.
func lane(name string) []byte { return append([]byte(name), 0) }
