package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/greylag/greylag/internal/boltcheck"
)

// A member that lost its log, or a part of it, has lost votes and acknowledged
// entries: it must never vote or lead under its old identity. Three files prove that
// nothing is missing:
//
//   - identity.json notes that there is a log (identity.HasLog);
//   - raft.db names the directory it belongs to and holds term and vote from the
//     moment it is created (firstValues), and the newest snapshot;
//   - a snapshot names its index and term.
//
// The order on disk is: raft.db with its first values, then the record in
// identity.json, then the first vote or entry. A crash before the record leaves a
// raft.db without content, which the next start replaces; after the record raft.db is
// never created again.

// Keys of the stable part besides raft's own, with its names for those it requires.
var (
	keyTerm     = []byte("CurrentTerm")
	keyVoteTerm = []byte("LastVoteTerm")
	keyVote     = []byte("LastVoteCand")
	// keyOwner is the incarnation of the directory.
	keyOwner = []byte("Owner")
	// keySnapshotBegun and keySnapshotKept are the index of the newest snapshot, stored
	// before and after it is on disk.
	keySnapshotBegun = []byte("SnapshotBegun")
	keySnapshotKept  = []byte("SnapshotKept")
)

// bucketNames are the buckets of raft-boltdb.
var bucketNames = []string{"conf", "logs"}

// firstValues is what the stable part of a new raft.db holds. A key that is missing
// later was lost.
func firstValues(self identity) map[string][]byte {
	zero := binary.BigEndian.AppendUint64(nil, 0)
	return map[string][]byte{
		string(keyTerm): zero, string(keyVoteTerm): zero, string(keyVote): {},
		string(keyOwner):         binary.BigEndian.AppendUint64(nil, self.Incarnation),
		string(keySnapshotBegun): zero, string(keySnapshotKept): zero,
	}
}

// openLog opens raft.db of a member. It creates the file only for a member that
// never had one, and returns errRecord when the file does not match the identity
// and the snapshots.
func openLog(cfg Config, self identity, snap *snapshots, res *reserve) (*logStore, error) {
	if err := checkDatabase(cfg.Dir, self.HasLog, snap); err != nil {
		return nil, err
	}
	s, err := openStore(cfg.Dir, res)
	if err != nil {
		return nil, err
	}
	if self.HasLog {
		err = s.verify(self, snap)
	} else {
		err = s.begin(cfg.Dir, self)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	snap.store = s
	return s, nil
}

// checkDatabase checks the structure of raft.db before bbolt opens it. An incomplete
// file that was never used is removed: a crash interrupted its creation.
func checkDatabase(dir string, used bool, snap *snapshots) error {
	path := filepath.Join(dir, databaseFile)
	buckets, err := boltcheck.Tree(path)
	if err == nil && !slices.Equal(buckets, bucketNames) {
		err = fmt.Errorf("%w: it holds %q, not %q", boltcheck.ErrDamaged, buckets, bucketNames)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltcheck.ErrInUse):
		return fmt.Errorf("raftlog: %s is in use by another process", dir)
	case errors.Is(err, fs.ErrNotExist) && !used:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w: the file is missing, but %s records that it existed", databaseFile, errRecord, identityFile)
	case !errors.Is(err, boltcheck.ErrDamaged):
		return fmt.Errorf("raftlog: open %s: %w", databaseFile, err)
	case used || snap.newest().Index != 0:
		return fmt.Errorf("%s: %w: %w", databaseFile, errRecord, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("raftlog: remove unfinished %s: %w", databaseFile, err)
	}
	return nil
}

// begin initializes a new raft.db: its first values, then the record in identity.json.
func (s *logStore) begin(dir string, self identity) error {
	for key, value := range firstValues(self) {
		_, err := s.Get([]byte(key))
		if errors.Is(err, errNoKey) {
			err = s.Set([]byte(key), value)
		}
		if err != nil {
			return fmt.Errorf("raftlog: initialize log: %w", err)
		}
	}
	self.HasLog = true
	if err := errors.Join(syncDir(dir), writeJSON(filepath.Join(dir, identityFile), self)); err != nil {
		return fmt.Errorf("raftlog: initialize log: %w", err)
	}
	return nil
}

// verify compares raft.db with the identity and the snapshots.
func (s *logStore) verify(self identity, snap *snapshots) error {
	number := make(map[string]uint64)
	for key := range firstValues(self) {
		value, err := s.Get([]byte(key))
		if errors.Is(err, errNoKey) {
			return fmt.Errorf("%s: %w: %s is missing", databaseFile, errRecord, key)
		}
		if err != nil {
			return err
		}
		if len(value) == 8 {
			number[key] = binary.BigEndian.Uint64(value)
		}
	}
	if owner := number[string(keyOwner)]; owner != self.Incarnation {
		return fmt.Errorf("%s: %w: it belongs to another data directory", databaseFile, errRecord)
	}
	last, err := s.last()
	if err != nil {
		return err
	}
	newest := snap.newest()
	if term := number[string(keyTerm)]; term < max(last.Term, newest.Term) {
		return fmt.Errorf("%s: %w: term %d is older than an entry's or a snapshot's, %d", databaseFile, errRecord, term, max(last.Term, newest.Term))
	}
	if begun := number[string(keySnapshotBegun)]; last.Index < newest.Index && begun < newest.Index {
		return fmt.Errorf("%s: %w: it ends at entry %d, but snapshot %d is newer", databaseFile, errRecord, last.Index, newest.Index)
	}
	if kept := number[string(keySnapshotKept)]; last.Index < kept {
		if whole, _, _ := newestWhole(snap); whole < kept { // an error means none
			return fmt.Errorf("%s: %w: it ends at entry %d, and the snapshot of entry %d is lost", snapshotDir, errSnapshot, last.Index, kept)
		}
	}
	return nil
}

// last returns the newest entry, or an empty one.
func (s *logStore) last() (log raft.Log, err error) {
	index, err := s.LastIndex()
	if err == nil && index != 0 {
		err = s.GetLog(index, &log)
	}
	return log, err
}

// snapshotSink stores in raft.db which snapshot is newest, before and after the snapshot
// becomes durable.
type snapshotSink struct {
	raft.SnapshotSink
	store *logStore
	index uint64
	done  func() // called when the snapshot is durable
}

// Close makes the snapshot durable.
func (s *snapshotSink) Close() error {
	if err := s.store.storeMax(keySnapshotBegun, s.index); err != nil {
		return errors.Join(err, s.Cancel())
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	s.done()
	return s.store.storeMax(keySnapshotKept, s.index)
}

// storeMax stores a number in the stable store unless a larger one is stored.
func (s *logStore) storeMax(key []byte, n uint64) error {
	old, err := s.GetUint64(key)
	if err != nil && !errors.Is(err, errNoKey) || old >= n {
		return err
	}
	return s.SetUint64(key, n)
}
