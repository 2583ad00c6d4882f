package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// deleteChunk is the number of entries that one transaction deletes. One transaction for a
	// million of them blocks every writer for 1 to 7 s; 2,000 for 29 ms.
	deleteChunk = 2000
	// cacheEntries and cacheBytes bound the newest entries in memory, for followers that lag a
	// little.
	cacheEntries = 4096
	cacheBytes   = 64 << 20
)

var (
	errRecord = errors.New("stored record is damaged")
	// errNoKey is what raft-boltdb returns for a key that is not in the stable part.
	errNoKey = raftboltdb.ErrKeyNotFound
)

// logStore keeps raft's log and its term and vote in raft.db, and checks everything that it reads
// back: bbolt has no checksum on data pages, and a flipped bit would reach the state machine, or
// change a term, unnoticed.
//
// Stored with each entry, in raft's Extensions field: CRC-32C of index, term, type and data. Stored
// after each value of the stable part: CRC-32C of key and value.
type logStore struct {
	db      *raftboltdb.BoltStore
	stalls  *stalls
	reserve *reserve
	// damaged is called when a record cannot be trusted, failed when a write failed
	// for another reason than a full disk; both before the error returns.
	damaged, failed func(reason string)
	// floor is the index of the oldest snapshot kept; entries after it are kept. Nil: no floor.
	floor  func() uint64
	synced func(took time.Duration) // called after each write of entries
	cache  logCache
	behind *writeBehind
	spent  atomic.Bool // a write failed because the disk is full
}

// openStore opens raft.db in dir, or creates it; openLog decides whether it may. It uses
// NoFreelistSync with the map freelist: otherwise each commit after a large truncation writes the
// whole freelist (2.7 ms, not 0.4).
func openStore(dir string, res *reserve) (_ *logStore, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
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
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrIncompatibleValue):
		return nil, fmt.Errorf("open %s: %w: %w", databaseFile, errRecord, err)
	case err != nil:
		return nil, fmt.Errorf("raftlog: open %s: %w", databaseFile, err)
	}
	s := &logStore{db: db, stalls: newStalls(), reserve: res, damaged: func(string) {}, failed: func(string) {}, synced: func(time.Duration) {}, behind: newBehind()}
	go s.behind.run(s.writeBehind) // until close
	return s, nil
}

// guard runs one operation on the database under the stall watchdog and turns a
// panic of bbolt on damaged pages, or a page that the disk cannot read, into an error.
func (s *logStore) guard(what string, op func() error) (err error) {
	defer s.stalls.begin(what)()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
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

// write is guard for a write. When the disk is full, it releases the space reserved for this kind
// of write and tries once more; if that fails, the error is temporary. After any other failure the
// content of the disk is unknown until it is read again: the kernel may report a failed fsync only
// once.
func (s *logStore) write(what string, part reservePart, op func() error) error {
	err := s.guard(what, func() error {
		err := op()
		if full(err) && s.reserve.release(part) {
			err = op()
		}
		return err
	})
	if full(err) {
		s.spent.Store(true)
	}
	if err != nil && !full(err) && !errors.Is(err, errRecord) {
		s.failed(fmt.Sprintf("%s: %v", what, err))
	}
	return err
}

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// FirstIndex returns the oldest index in the log, 0 if it is empty.
func (s *logStore) FirstIndex() (i uint64, err error) {
	if err := s.behind.wait(everything, nil); err != nil {
		return 0, err
	}
	err = s.guard("read first index", func() error { i, err = s.db.FirstIndex(); return err })
	return i, err
}

// LastIndex returns the newest index in the log, 0 if it is empty.
func (s *logStore) LastIndex() (i uint64, err error) {
	if err := s.behind.wait(everything, nil); err != nil {
		return 0, err
	}
	err = s.guard("read last index", func() error { i, err = s.db.LastIndex(); return err })
	return i, err
}

// GetLog reads one entry, from memory if it is new enough.
func (s *logStore) GetLog(index uint64, log *raft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
	if err := s.behind.wait(index, nil); err != nil {
		return err
	}
	return s.guard("read entry", func() error { return s.readEntry(index, log) })
}

// readEntry reads one entry from disk and checks it: raft.ErrLogNotFound or errRecord.
func (s *logStore) readEntry(index uint64, log *raft.Log) error {
	err := s.db.GetLog(index, log)
	if err != nil {
		if errors.Is(err, raft.ErrLogNotFound) {
			return raft.ErrLogNotFound
		}
		return fmt.Errorf("entry %d: %w: %w", index, errRecord, err)
	}
	if log.Index != index || len(log.Extensions) != 4 ||
		binary.LittleEndian.Uint32(log.Extensions) != recordCRC(log) {
		return fmt.Errorf("entry %d: %w: CRC is wrong", index, errRecord)
	}
	log.Extensions = nil
	return nil
}

func recordCRC(log *raft.Log) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], log.Index)
	binary.LittleEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}

// StoreLog stores one entry durably.
func (s *logStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries durably: two fdatasyncs for all of them. It passes a leader's entries to
// behind, if that takes them. An entry that arrives damaged is refused and the sender tries again.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	stored := make([]*raft.Log, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand && !sealed(l.Data) {
			return fmt.Errorf("entry %d: %w in transit", l.Index, errEnvelope)
		}
		c := *l
		c.Extensions = binary.LittleEndian.AppendUint32(nil, recordCRC(l))
		stored[i] = &c
	}
	if s.reserve.roomy.Load() && s.behind.takes(logs) {
		s.cache.put(logs)
		s.behind.hand(stored)
		return nil
	}
	err := s.behind.wait(everything, nil)
	if err == nil {
		err = s.writeEntries(stored)
	}
	if err == nil {
		s.cache.put(logs)
	}
	return err
}

func (s *logStore) writeEntries(logs []*raft.Log) error {
	began := time.Now()
	err := s.write("store entries", reserveLog, func() error { return s.db.StoreLogs(logs) })
	if err == nil {
		s.synced(time.Since(began))
	}
	return err
}

// writeBehind writes entries that can no longer be refused: a disk that fills up suddenly, reserve
// included, counts as failed.
func (s *logStore) writeBehind(logs []*raft.Log) error {
	err := s.writeEntries(logs)
	if full(err) {
		s.failed(fmt.Sprintf("store entries: %v", err))
	}
	return err
}

// DeleteRange deletes entries min to max in small transactions.
func (s *logStore) DeleteRange(min, max uint64) error {
	plan, err := s.planDelete(span{min, max})
	if err != nil {
		return err
	}
	s.cache.clear()
	for part := range plan {
		err := s.write("delete entries", reserveLog, func() error { return s.db.DeleteRange(part.min, part.max) })
		if err != nil {
			return err
		}
	}
	return nil
}

// span is the entries min to max, both included.
type span struct{ min, max uint64 }

// planDelete divides a deletion into transactions: the oldest first at the head of the log, the
// newest first at its tail, so that the log has no hole if the process ends in between. The head
// stays back to the floor.
func (s *logStore) planDelete(r span) (iter.Seq[span], error) {
	first, err := s.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := s.LastIndex()
	if err != nil {
		return nil, err
	}
	head := r.min <= first
	if head && r.max < last && s.floor != nil {
		r.max = min(r.max, s.floor())
	}
	r = span{max(r.min, first), min(r.max, last)}
	return func(yield func(span) bool) {
		for r.min != 0 && r.min <= r.max {
			part := r
			if head { // after a restore the hole is too wide to be passed in steps
				if first, err := s.FirstIndex(); err == nil && first > r.min {
					r.min, part.min = min(first, r.max), min(first, r.max)
				}
				part.max = min(r.max, r.min+deleteChunk-1)
				r.min = part.max + 1
			} else {
				part.min = max(r.min, r.max-min(r.max, deleteChunk-1))
				r.max = part.min - 1
			}
			if !yield(part) {
				return
			}
		}
	}, nil
}

// Set stores a value of raft's stable part (term, vote) durably.
func (s *logStore) Set(key, value []byte) error {
	buf := append([]byte{}, value...)
	buf = binary.LittleEndian.AppendUint32(buf, stableCRC(key, value))
	if err := s.behind.wait(everything, nil); err != nil {
		return err
	}
	return s.write("store term or vote", reserveVote, func() error { return s.db.Set(key, buf) })
}

// Get reads a value of the stable part; if none exists, its error says "not found", the words
// raft looks for.
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
	s.behind.close()
	return s.db.Close()
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
