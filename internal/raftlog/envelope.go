package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/greylag/greylag/internal/codec"
)

// Limits of one log entry.
const (
	// MaxEntryBytes bounds an encoded entry, so that a full AppendEntries of 256 of them can still
	// cross a slow link.
	MaxEntryBytes = 1 << 20
	// batchCommands and batchBytes bound an entry that callers share; one ProposeMany may exceed
	// them alone.
	batchCommands = 256
	batchBytes    = 256 << 10
)

// Kinds of entry.
const (
	kindCommands   byte = 0 // commands for the state machine
	kindCheckpoint byte = 1 // a digest agreed by a majority (checkpoint.go)
	kindMark       byte = 2 // nothing: a new leader's proof of leadership (leadership.go)
)

const (
	envelopeForm  = 1
	envelopeFixed = 4 + 8 + 4 // magic, version, kind; time; CRC
)

var (
	errEnvelope    = errors.New("entry is damaged")
	errUnsupported = errors.New("entry was written by a newer version of greylag")
)

// castagnoli is the polynomial with hardware support (SSE 4.2, ARMv8).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// envelope is the content of one log entry:
//
//	'G' 'L' form byte, kind | unix ns, 8 bytes LE | body | CRC-32C of all before, 4 bytes LE
//
// body of commands: uvarint count, then count × (uvarint length, bytes). body of a checkpoint:
// index, digest, 8 bytes LE each, digest version, 2 bytes LE. A mark has none.
//
// The CRC is computed by the proposing leader before the entry reaches raft and checked right
// before the state machine sees it, so it covers every disk, cache and wire between.
type envelope struct {
	kind       byte
	at         int64 // unix ns on the leader's clock
	commands   [][]byte
	checkpoint checkpoint
}

// encode returns the entry. O(bytes).
func (e envelope) encode() []byte {
	buf := make([]byte, 0, envelopeFixed+binary.MaxVarintLen64+commandsSize(e.commands)+20)
	buf = append(buf, 'G', 'L', codec.FormByte(envelopeForm), e.kind)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(e.at))
	switch e.kind {
	case kindCommands:
		buf = binary.AppendUvarint(buf, uint64(len(e.commands)))
		for _, c := range e.commands {
			buf = binary.AppendUvarint(buf, uint64(len(c)))
			buf = append(buf, c...)
		}
	case kindCheckpoint:
		buf = binary.LittleEndian.AppendUint64(buf, e.checkpoint.index)
		buf = binary.LittleEndian.AppendUint64(buf, e.checkpoint.digest)
		buf = binary.LittleEndian.AppendUint16(buf, e.checkpoint.version)
	}
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf, castagnoli))
}

// commandsSize is an upper bound of the size of the commands in an entry.
func commandsSize(commands [][]byte) int {
	n := 0
	for _, c := range commands {
		n += len(c) + binary.MaxVarintLen32
	}
	return n
}

// sealed reports whether the entry is whole: its magic and its CRC are right.
func sealed(entry []byte) bool {
	if len(entry) < envelopeFixed || entry[0] != 'G' || entry[1] != 'L' {
		return false
	}
	end := len(entry) - 4
	return crc32.Checksum(entry[:end], castagnoli) == binary.LittleEndian.Uint32(entry[end:])
}

// decodeEnvelope returns the entry's content; the commands point into entry. It returns errEnvelope
// for an entry that no leader encoded and errUnsupported for a whole one of a later version.
func decodeEnvelope(entry []byte) (envelope, error) {
	if !sealed(entry) {
		return envelope{}, fmt.Errorf("%w: CRC or marker is wrong (%d bytes)", errEnvelope, len(entry))
	}
	switch form, err := codec.FormOf(entry[2]); {
	case errors.Is(err, codec.ErrEarlier):
		return envelope{}, fmt.Errorf("the entry was %w", err)
	case err != nil:
		return envelope{}, fmt.Errorf("%w: %w", errEnvelope, err)
	case form > envelopeForm:
		return envelope{}, fmt.Errorf("%w: envelope format %d", errUnsupported, form)
	}
	e := envelope{kind: entry[3], at: int64(binary.LittleEndian.Uint64(entry[4:]))}
	body := entry[12 : len(entry)-4]
	switch e.kind {
	case kindCommands:
		var err error
		e.commands, err = decodeCommands(body)
		return e, err
	case kindCheckpoint:
		if len(body) != 18 {
			return envelope{}, fmt.Errorf("%w: checkpoint of %d bytes", errEnvelope, len(body))
		}
		e.checkpoint.index = binary.LittleEndian.Uint64(body)
		e.checkpoint.digest = binary.LittleEndian.Uint64(body[8:])
		e.checkpoint.version = binary.LittleEndian.Uint16(body[16:])
		return e, nil
	case kindMark:
		if len(body) != 0 {
			return envelope{}, fmt.Errorf("%w: mark with a body", errEnvelope)
		}
		return e, nil
	}
	return envelope{}, fmt.Errorf("%w: entry kind %d", errUnsupported, e.kind)
}

func decodeCommands(body []byte) ([][]byte, error) {
	count, n := binary.Uvarint(body)
	if n <= 0 || count > uint64(len(body)) { // a command takes at least its length byte
		return nil, fmt.Errorf("%w: command count", errEnvelope)
	}
	body = body[n:]
	commands := make([][]byte, 0, count)
	for range count {
		size, n := binary.Uvarint(body)
		if n <= 0 || size > uint64(len(body)-n) {
			return nil, fmt.Errorf("%w: command length", errEnvelope)
		}
		end := n + int(size)
		commands = append(commands, body[n:end:end])
		body = body[end:]
	}
	if len(body) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last command", errEnvelope, len(body))
	}
	return commands, nil
}
