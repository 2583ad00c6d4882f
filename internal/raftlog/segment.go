package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"syscall"

	"github.com/hashicorp/raft"
)

// segment is one file of the log: entries that follow each other. Records are
// appended, and the file is cut where entries are replaced; nothing is changed in
// place. Its name is the index of its first entry, in 20 digits, "-", a random seed
// in 8 hexadecimal digits, and the version of what it holds, ".v1": records, with
// numbers little-endian:
//
//	CRC-32C, 4 bytes, begun with the seed, of all that follows
//	length of the data, 4 bytes
//	how many bytes before this record the write began in which it was stored, 4 bytes
//	type, 1 byte | index, 8 bytes | term, 8 bytes | data
//
// The seed keeps what a user has stored from being taken for a record.
type segment struct {
	first uint64
	seed  uint32
	file  *os.File
	// index reads the file, once, before offsets are looked at.
	index func() error
	// offsets are where each record begins, and where the last one ends. One whose
	// place holds something else is damaged.
	offsets []int64
}

const recordHead = 4 + 4 + 4 + 1 + 8 + 8

func (g *segment) name() string { return fmt.Sprintf("%020d-%08x.v1", g.first, g.seed) }

// readFull reads a segment that others follow: it has to hold so many entries.
func (g *segment) readFull(count uint64) error {
	data, err := os.ReadFile(g.file.Name())
	if err != nil {
		return err
	}
	g.offsets = g.scan(data, true)
	for g.count() < count {
		g.offsets = append(g.offsets, g.end())
	}
	g.offsets = g.offsets[:count+1]
	return nil
}

// readLast reads the last segment and cuts off what was not written to its end.
func (g *segment) readLast(synced bool) error {
	g.index = func() error { return nil }
	data, err := os.ReadFile(g.file.Name())
	if err != nil {
		return err
	}
	g.offsets = g.scan(data, synced)
	if g.end() == int64(len(data)) {
		return nil
	}
	return g.cut(g.end())
}

// cut ends the file there, durably.
func (g *segment) cut(end int64) error {
	if err := g.file.Truncate(end); err != nil {
		return err
	}
	return g.file.Sync()
}

// store writes at the end of the file, durably.
func (g *segment) store(data []byte, at int64) error {
	if _, err := g.file.WriteAt(data, at); err != nil {
		return err
	}
	for {
		if err := syscall.Fdatasync(int(g.file.Fd())); err != syscall.EINTR {
			return err
		}
	}
}

// count is how many entries there are; the file has been read.
func (g *segment) count() uint64 { return uint64(len(g.offsets) - 1) }

// end is where the next record goes; the file has been read.
func (g *segment) end() int64 { return g.offsets[len(g.offsets)-1] }

// encode appends the record of one entry to those of the same write.
func (g *segment) encode(write []byte, log *raft.Log) []byte {
	at := len(write)
	write = binary.LittleEndian.AppendUint32(write, 0) // the CRC, below
	write = binary.LittleEndian.AppendUint32(write, uint32(len(log.Data)))
	write = binary.LittleEndian.AppendUint32(write, uint32(at))
	write = append(write, byte(log.Type))
	write = binary.LittleEndian.AppendUint64(write, log.Index)
	write = binary.LittleEndian.AppendUint64(write, log.Term)
	write = append(write, log.Data...)
	binary.LittleEndian.PutUint32(write[at:], g.crc(write[at:]))
	return write
}

// crc is that of a record, whose first bytes hold it.
func (g *segment) crc(record []byte) uint32 { return crc32.Update(g.seed, castagnoli, record[4:]) }

// recordSize is how long the record is that data begins with, if its length can be
// believed, and whether it is there to its end.
func recordSize(data []byte) (size int64, whole bool) {
	if len(data) < recordHead {
		return 0, false
	}
	size = recordHead + int64(binary.LittleEndian.Uint32(data[4:]))
	return size, size <= int64(len(data))
}

func recordIndex(data []byte) uint64 { return binary.LittleEndian.Uint64(data[13:]) }

// intact reports whether data begins with a whole record, and how long it is.
func (g *segment) intact(data []byte) (size int64, ok bool) {
	size, ok = recordSize(data)
	return size, ok && binary.LittleEndian.Uint32(data) == g.crc(data[:size])
}

// read fills in the entry of an index that the segment has, or fails with errRecord.
func (g *segment) read(index uint64, log *raft.Log) error {
	at := g.offsets[index-g.first]
	data := make([]byte, g.offsets[index-g.first+1]-at)
	if _, err := g.file.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("entry %d: %w: %w", index, errRecord, err)
	}
	if size, ok := g.intact(data); !ok || size != int64(len(data)) || recordIndex(data) != index {
		return fmt.Errorf("entry %d: %w: CRC is wrong", index, errRecord)
	}
	*log = raft.Log{
		Type: raft.LogType(data[12]), Index: index, Term: binary.LittleEndian.Uint64(data[21:]), Data: data[recordHead:],
	}
	return nil
}

// scan finds the records in the content of the file. Where one is damaged it goes on
// with the next that is not, and the place of the damaged one is kept.
//
// The last write may have been under way when the machine lost its power, and then
// any part of it may be missing; no entry of it was acknowledged. It is left out: from
// its first damaged record on, unless synced says that no power was lost since.
// Then only the end of a record can be missing, of the one that was being written when
// the process was killed.
func (g *segment) scan(data []byte, synced bool) (offsets []int64) {
	at, next := int64(0), g.first
	offsets = []int64{0}
	for at < int64(len(data)) {
		if size, ok := g.intact(data[at:]); ok && recordIndex(data[at:]) == next {
			at, next = at+size, next+1
			offsets = append(offsets, at)
			continue
		}
		later, index := g.resume(data, at, next, synced)
		if index == 0 {
			if _, whole := recordSize(data[at:]); synced && whole {
				offsets = append(offsets, int64(len(data)))
			}
			return offsets
		}
		for at = later; next < index; next++ {
			offsets = append(offsets, at)
		}
	}
	return offsets
}

// resume finds the first intact record of a later entry than one that is missing at a
// place. It returns index 0 if there is none or, unless all is synced, none of a later
// write.
func (g *segment) resume(data []byte, at int64, missing uint64, synced bool) (later int64, index uint64) {
	for here := at; here+recordHead <= int64(len(data)); here++ {
		i := recordIndex(data[here:])
		if i <= missing || i-missing > uint64(len(data)) {
			continue // as at most places: this spares them the CRC
		}
		if _, ok := g.intact(data[here:]); !ok {
			continue
		}
		if index == 0 {
			later, index = here, i
		}
		if began := here - int64(binary.LittleEndian.Uint32(data[here+8:])); synced || began > at {
			return later, index
		}
	}
	return 0, 0
}
