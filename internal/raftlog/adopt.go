package raftlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/hashicorp/raft"
)

// adoptEntries are moved at once.
const adoptEntries = 256

// adopt moves the entries of a log that is still in raft.db, where it once was kept
// whole, to the segments. Until all of them are there, those in raft.db are the log.
func (s *logStore) adopt() error {
	return s.guard("move entries out of raft.db", func() error {
		first, err := s.db.FirstIndex()
		if err != nil || first == 0 {
			return err
		}
		last, err := s.db.LastIndex()
		if err != nil {
			return err
		}
		if err := s.entries.forgetHead(math.MaxUint64); err != nil { // of a move that was cut short
			return err
		}
		for at := first; at <= last; {
			var logs []*raft.Log
			for ; at <= last && len(logs) < adoptEntries; at++ {
				log := new(raft.Log)
				if err := s.readAdopted(at, log); err != nil {
					return err
				}
				logs = append(logs, log)
			}
			if err := s.entries.append(logs); err != nil {
				return err
			}
		}
		return s.db.DeleteRange(first, last)
	})
}

// readAdopted reads one entry of raft.db. Stored with each, in raft's Extensions field:
// CRC-32C of index, term, type and data.
func (s *logStore) readAdopted(index uint64, log *raft.Log) error {
	err := s.db.GetLog(index, log)
	if err != nil {
		return fmt.Errorf("entry %d: %w: %w", index, errRecord, err)
	}
	if log.Index != index || len(log.Extensions) != 4 || binary.LittleEndian.Uint32(log.Extensions) != adoptedCRC(log) {
		return fmt.Errorf("entry %d: %w: CRC is wrong", index, errRecord)
	}
	return nil
}

func adoptedCRC(log *raft.Log) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], log.Index)
	binary.LittleEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}
