package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// The newest entries stay in memory, for followers that are a little behind.
	cacheEntries = 4096
	cacheBytes   = 64 << 20
	// logDir holds the log, in the member's directory.
	logDir = "log"
)

var (
	errRecord = errors.New("stored record is damaged")
	// bootKey is where the stable part holds when the machine was last started
	// before the log was last opened.
	bootKey = []byte("Boot")
)

// logStore keeps raft's log in segments, and its term and vote in raft.db, and
// trusts nothing that it reads back: bbolt has no checksum on data pages, and a
// flipped bit would reach the state machine, or change a term, unnoticed.
//
// Stored after each value of the stable part: CRC-32C of key and value.
type logStore struct {
	db      *raftboltdb.BoltStore
	entries *segments
	stalls  *stalls
	reserve *reserve
	// damaged is called when a record cannot be trusted, failed when a write failed
	// for another reason than a full disk; both before the error returns.
	damaged, failed func(reason string)
	// floor is the index of the oldest snapshot kept; entries after it are not
	// forgotten. Nil: no floor.
	floor func() uint64
	cache logCache
}

// openStore opens raft.db and the log in dir.
func openStore(dir string, res *reserve) (*logStore, error) {
	db, err := openDatabase(dir)
	if err != nil {
		return nil, err
	}
	s := &logStore{db: db, stalls: newStalls(), reserve: res, damaged: func(string) {}, failed: func(string) {}}
	boot := []byte(bootID())
	last, err := s.Get(bootKey) // not there, or damaged: as if power had been lost
	synced := err == nil && len(boot) > 0 && bytes.Equal(boot, last)
	s.entries, err = openSegments(filepath.Join(dir, logDir), synced)
	if err == nil && !synced {
		err = s.Set(bootKey, boot)
	}
	if err == nil {
		err = s.adopt()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// openDatabase opens raft.db. NoFreelistSync with the map freelist: what there is of
// it fits into a few pages.
func openDatabase(dir string) (_ *raftboltdb.BoltStore, err error) {
	defer func() { // bbolt panics on damaged pages
		if p := recover(); p != nil {
			err = fmt.Errorf("open %s: %w: %v", databaseFile, errRecord, p)
		}
	}()
	db, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, databaseFile),
		BoltOptions: &bbolt.Options{
			Timeout:        time.Second,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("raftlog: %s is in use by another process", dir)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("open %s: %w: %w", databaseFile, errRecord, err)
	case err != nil:
		return nil, fmt.Errorf("raftlog: open %s: %w", databaseFile, err)
	}
	return db, nil
}

// guard runs one operation on the database under the stall watchdog and turns a
// panic of bbolt on damaged pages into an error.
func (s *logStore) guard(what string, op func() error) (err error) {
	defer s.stalls.begin(what)()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w: %v", what, errRecord, p)
		}
		if errors.Is(err, errRecord) {
			s.damaged(err.Error())
		}
	}()
	return op()
}

// write is guard for a write. When the disk is full, the space held back for this
// kind of write is released and the write tried once more; if it fails again, that
// passes when there is room. After any other failure what is on disk is unknown
// until it is read anew: the kernel may report a failed fsync only once.
func (s *logStore) write(what string, part reservePart, op func() error) error {
	err := s.guard(what, func() error {
		err := op()
		if full(err) && s.reserve.release(part) {
			err = op()
		}
		return err
	})
	if err != nil && !full(err) && !errors.Is(err, errRecord) {
		s.failed(fmt.Sprintf("%s: %v", what, err))
	}
	return err
}

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsMonotonic tells raft that entries are stored without a gap: it forgets the log
// before it goes on behind a snapshot that it was sent.
func (s *logStore) IsMonotonic() bool { return true }

// FirstIndex returns the oldest index in the log, 0 if it is empty.
func (s *logStore) FirstIndex() (uint64, error) {
	first, _ := s.entries.bounds()
	return first, nil
}

// LastIndex returns the newest index in the log, 0 if it is empty.
func (s *logStore) LastIndex() (uint64, error) {
	_, last := s.entries.bounds()
	return last, nil
}

// GetLog reads one entry, from memory if it is new enough.
func (s *logStore) GetLog(index uint64, log *raft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
	return s.guard("read entry", func() error { return s.readEntry(index, log) })
}

// readEntry reads one entry from disk: raft.ErrLogNotFound or errRecord.
func (s *logStore) readEntry(index uint64, log *raft.Log) error { return s.entries.get(index, log) }

// StoreLog stores one entry durably.
func (s *logStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably: one fdatasync for all of them. An entry that
// arrives damaged is refused and the sender tries again.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if l.Type == raft.LogCommand && !sealed(l.Data) {
			return fmt.Errorf("entry %d: %w on its way here", l.Index, errEnvelope)
		}
	}
	err := s.write("store entries", reserveLog, func() error { return s.entries.append(logs) })
	if err == nil {
		s.cache.put(logs)
	}
	return err
}

// DeleteRange forgets entries from one to another, which are at one of the log's ends.
// Of the oldest some stay: those after the floor, and those that share a file with
// later ones.
func (s *logStore) DeleteRange(from, to uint64) error {
	first, last := s.entries.bounds()
	if last == 0 || to < first || from > last {
		return nil
	}
	s.cache.clear()
	return s.write("delete entries", reserveLog, func() error {
		switch {
		case from > first && to < last:
			return fmt.Errorf("%w: %d to %d are within %d to %d", errOrder, from, to, first, last)
		case from > first:
			return s.entries.forgetTail(from)
		case to < last && s.floor != nil:
			return s.entries.forgetHead(min(to, s.floor()))
		}
		return s.entries.forgetHead(to)
	})
}

// Set stores a value of raft's stable part (term, vote) durably.
func (s *logStore) Set(key, value []byte) error {
	buf := append([]byte{}, value...)
	buf = binary.LittleEndian.AppendUint32(buf, stableCRC(key, value))
	return s.write("store term or vote", reserveVote, func() error { return s.db.Set(key, buf) })
}

// Get reads a value of the stable part; its error says "not found", the words
// raft looks for, if there is none.
func (s *logStore) Get(key []byte) (value []byte, err error) {
	err = s.guard("read term or vote", func() error {
		buf, err := s.db.Get(key)
		if err != nil {
			return err
		}
		n := len(buf) - 4
		if n < 0 || binary.LittleEndian.Uint32(buf[n:]) != stableCRC(key, buf[:n]) {
			return fmt.Errorf("%s: %w: CRC is wrong", key, errRecord)
		}
		value = buf[:n]
		return nil
	})
	return value, err
}

func stableCRC(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// SetUint64 stores a number of the stable part durably.
func (s *logStore) SetUint64(key []byte, n uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, n))
}

// GetUint64 reads a number of the stable part.
func (s *logStore) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%s: %w: %d bytes", key, errRecord, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func (s *logStore) close() error {
	if s.entries == nil {
		return s.db.Close()
	}
	return errors.Join(s.entries.close(), s.db.Close())
}

// logCache holds the newest entries: at most cacheEntries and about cacheBytes.
// Invariant: it holds only indexes in [low, high], and bytes is their sum.
type logCache struct {
	mu        sync.RWMutex
	ring      []*raft.Log // index modulo its length
	low, high uint64
	bytes     int
}

func (c *logCache) get(index uint64, log *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.ring == nil {
		return false
	}
	e := c.ring[index%cacheEntries]
	if e == nil || e.Index != index {
		return false
	}
	*log = *e
	return true
}

func (c *logCache) put(logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		c.ring = make([]*raft.Log, cacheEntries)
	}
	for _, l := range logs {
		if c.high != 0 && l.Index != c.high+1 { // raft jumped: a snapshot was installed, or a tail replaced
			c.drop()
		}
		if c.low == 0 {
			c.low = l.Index
		}
		c.high = l.Index
		for c.high-c.low >= cacheEntries || (c.bytes > cacheBytes && c.low < c.high) {
			c.evict()
		}
		c.ring[l.Index%cacheEntries] = l
		c.bytes += len(l.Data)
	}
}

func (c *logCache) evict() {
	if e := c.ring[c.low%cacheEntries]; e != nil {
		c.bytes -= len(e.Data)
		c.ring[c.low%cacheEntries] = nil
	}
	c.low++
}

func (c *logCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *logCache) drop() {
	clear(c.ring)
	c.low, c.high, c.bytes = 0, 0, 0
}
