package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// segmentBytes is the size from which on a segment gets no more entries.
	segmentBytes = 16 << 20
	// writeBytes of memory are kept from one write for the next.
	writeBytes = 1 << 20
)

// errOrder: an entry that does not follow the last one. It is never stored.
var errOrder = errors.New("entry does not follow the last one")

// segments are the entries of the log on disk, in files that follow each other
// without a gap. Safe for concurrent use.
type segments struct {
	dir   string
	limit int64

	writing sync.Mutex // held by whoever changes a file, or which files there are
	write   []byte
	// mu guards list and what the segments in it hold, and is never held while the
	// disk writes. list is oldest first; the last one has been read.
	mu   sync.RWMutex
	list []*segment
}

// openSegments opens the log in dir, or begins one. synced says that the machine has
// not lost power since the log was last written: then nothing but damage is an
// explanation for a last entry that cannot be read.
func openSegments(dir string, synced bool) (_ *segments, err error) {
	s := &segments{dir: dir, limit: segmentBytes}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("raftlog: open the log: %w", err), s.close())
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir) // in the order of names: of the log
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		g := &segment{}
		if _, err := fmt.Sscanf(file.Name(), "%020d-%08x.v1", &g.first, &g.seed); err != nil || g.name() != file.Name() {
			return nil, fmt.Errorf("%s does not belong there", filepath.Join(dir, file.Name()))
		}
		if g.file, err = os.OpenFile(filepath.Join(dir, file.Name()), os.O_RDWR, 0); err != nil {
			return nil, err
		}
		s.list = append(s.list, g)
	}
	for i, g := range s.list[:max(0, len(s.list)-1)] {
		count := s.list[i+1].first - g.first
		g.index = sync.OnceValue(func() error { return g.readFull(count) })
	}
	if len(s.list) == 0 {
		return s, nil
	}
	return s, s.list[len(s.list)-1].readLast(synced)
}

// bounds are the oldest and the newest index, both 0 if there is no entry.
func (s *segments) bounds() (first, last uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.list) == 0 {
		return 0, 0
	}
	newest := s.list[len(s.list)-1]
	first, last = s.list[0].first, newest.first+newest.count()-1
	if last < first {
		return 0, 0
	}
	return first, last
}

// get reads one entry: raft.ErrLogNotFound or errRecord.
func (s *segments) get(index uint64, log *raft.Log) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	at := sort.Search(len(s.list), func(i int) bool { return s.list[i].first > index }) - 1
	if at < 0 {
		return raft.ErrLogNotFound
	}
	g := s.list[at]
	if err := g.index(); err != nil {
		return fmt.Errorf("entry %d: %w: %w", index, errRecord, err)
	}
	if index-g.first >= g.count() {
		return raft.ErrLogNotFound
	}
	return g.read(index, log)
}

// append stores entries durably, with one fdatasync for all of them. When it fails,
// none of them is stored, or the process has to end (logStore.write).
func (s *segments) append(logs []*raft.Log) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	g, err := s.open(logs[0].Index)
	if err != nil {
		return err
	}
	start, next, write := g.end(), g.first+g.count(), s.write[:0]
	ends := make([]int64, len(logs))
	for i, l := range logs {
		if l.Index != next+uint64(i) {
			return fmt.Errorf("%w: %d, not %d", errOrder, l.Index, next+uint64(i))
		}
		write = g.encode(write, l)
		ends[i] = start + int64(len(write))
	}
	if cap(write) <= writeBytes {
		s.write = write
	}
	if err := g.store(write, start); err != nil {
		if cut := g.file.Truncate(start); cut != nil {
			return cut
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.offsets = append(g.offsets, ends...)
	return nil
}

// open returns the segment that the entry of an index goes to.
func (s *segments) open(index uint64) (*segment, error) {
	if _, last := s.bounds(); last == 0 { // the log may begin anywhere
		if err := s.forget(len(s.list), 0); err != nil {
			return nil, err
		}
	}
	if len(s.list) > 0 {
		if g := s.list[len(s.list)-1]; g.end() < s.limit {
			return g, nil
		}
	}
	g := &segment{first: index, seed: rand.Uint32(), offsets: []int64{0}, index: func() error { return nil }}
	var err error
	if g.file, err = os.OpenFile(filepath.Join(s.dir, g.name()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err := syncDir(s.dir); err != nil {
		return nil, errors.Join(err, g.file.Close(), os.Remove(g.file.Name()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, g)
	return g, nil
}

// forgetHead forgets the oldest entries up to an index; some of them stay, as many
// as share a segment with later ones.
func (s *segments) forgetHead(through uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, last := s.bounds(); through >= last {
		return s.forget(len(s.list), 0)
	}
	whole := 0
	for whole+1 < len(s.list) && s.list[whole+1].first <= through+1 {
		whole++
	}
	return s.forget(whole, 0)
}

// forgetTail forgets the newest entries from an index on.
func (s *segments) forgetTail(from uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	whole := 0
	for whole < len(s.list) && s.list[len(s.list)-1-whole].first >= from {
		whole++
	}
	if whole == len(s.list) {
		return s.forget(0, whole)
	}
	g := s.list[len(s.list)-1-whole]
	if err := g.index(); err != nil {
		return err
	}
	if err := s.forget(0, whole); err != nil || from >= g.first+g.count() {
		return err
	}
	s.mu.Lock()
	g.offsets = g.offsets[:from-g.first+1]
	s.mu.Unlock()
	return g.cut(g.end())
}

// forget deletes the oldest and the newest segments, from the ends on: whenever the
// machine loses power, those that are left follow each other.
func (s *segments) forget(oldest, newest int) error {
	for range oldest {
		if err := s.drop(0); err != nil {
			return err
		}
	}
	for range newest {
		if err := s.drop(len(s.list) - 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *segments) drop(at int) error {
	s.mu.Lock()
	g := s.list[at]
	s.list = slices.Delete(s.list, at, at+1)
	s.mu.Unlock()
	return errors.Join(os.Remove(g.file.Name()), syncDir(s.dir), g.file.Close())
}

func (s *segments) close() (err error) {
	for _, g := range s.list {
		err = errors.Join(err, g.file.Close())
	}
	return err
}

// bootID names the time since the machine was last started, "" where it does not tell.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
