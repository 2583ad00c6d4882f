package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func testStore(t *testing.T, dir string) *logStore {
	t.Helper()
	s, err := openStore(dir, newReserve(dir, 0, quiet()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

func entryLog(index uint64, command string) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: envelope{commands: [][]byte{[]byte(command)}}.encode()}
}

func fill(t *testing.T, s *logStore, from, to uint64) {
	t.Helper()
	for from <= to {
		var logs []*raft.Log
		for ; from <= to && len(logs) < 5000; from++ {
			logs = append(logs, entryLog(from, fmt.Sprint("command ", from)))
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeleteRange(t *testing.T) {
	s := testStore(t, t.TempDir())
	s.entries.limit = 5000
	fill(t, s, 1, 100)
	for i := uint64(101); i <= 9000; i += 100 {
		fill(t, s, i, i+99)
	}
	for _, c := range []struct{ from, to, first, last uint64 }{
		{1, 2550, 2501, 9000},    // head: what shares a file with later ones stays
		{6555, 9000, 2501, 6554}, // tail
		{1, 99999, 0, 0},         // all
	} {
		if err := s.DeleteRange(c.from, c.to); err != nil {
			t.Fatal(err)
		}
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		if first != c.first || last != c.last {
			t.Errorf("delete %d to %d leaves %d to %d, want %d to %d", c.from, c.to, first, last, c.first, c.last)
		}
		for i := first; i <= last && i > 0; i += 7 {
			if err := s.readEntry(i, new(raft.Log)); err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
		}
	}
	fill(t, s, 20000, 20010) // behind a snapshot
	if err := s.DeleteRange(20003, 20005); !errors.Is(err, errOrder) {
		t.Errorf("a hole in the middle: %v", err)
	}
	if err := s.DeleteRange(20011, 30000); err != nil {
		t.Errorf("entries that are not there: %v", err)
	}
}

func TestLogStaysBackToTheOldestSnapshot(t *testing.T) {
	s := testStore(t, t.TempDir())
	s.entries.limit = 1
	for i := uint64(1); i <= 100; i++ {
		fill(t, s, i, i)
	}
	s.floor = func() uint64 { return 30 }
	if err := s.DeleteRange(1, 80); err != nil {
		t.Fatal(err)
	}
	if first, _ := s.FirstIndex(); first != 31 {
		t.Errorf("log begins at %d, the oldest snapshot is 30", first)
	}
	if err := s.DeleteRange(60, 100); err != nil { // a conflicting tail must go whatever the floor
		t.Fatal(err)
	}
	if last, _ := s.LastIndex(); last != 59 {
		t.Errorf("log ends at %d", last)
	}
}

// Entries that raft.db holds, where the log was kept once, are moved; also where a move
// was cut short.
func TestEntriesOfTheDatabaseAreMoved(t *testing.T) {
	dir := t.TempDir()
	db, err := openDatabase(dir)
	if err != nil {
		t.Fatal(err)
	}
	const count = 3*adoptEntries + 7
	for i := uint64(11); i < 11+count; i++ {
		log := entryLog(i, fmt.Sprint("command ", i))
		log.Extensions = binary.LittleEndian.AppendUint32(nil, adoptedCRC(log))
		if err := db.StoreLog(log); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	cut, err := openSegments(filepath.Join(dir, logDir), true)
	if err == nil {
		err = errors.Join(cut.append([]*raft.Log{entryLog(11, "command 11")}), cut.close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := testStore(t, dir)
		if first, last := s.entries.bounds(); first != 11 || last != 10+count {
			t.Fatalf("entries %d to %d", first, last)
		}
		for i := uint64(11); i < 11+count; i++ {
			var log raft.Log
			if err := s.GetLog(i, &log); err != nil || !bytes.Equal(log.Data, entryLog(i, fmt.Sprint("command ", i)).Data) || log.Term != 1 {
				t.Fatalf("entry %d: %+v, %v", i, log, err)
			}
		}
		if left, err := s.db.LastIndex(); left != 0 || err != nil {
			t.Errorf("entry %d is left in %s, %v", left, databaseFile, err)
		}
		s.close()
	}
}

// flipEntry flips a bit in the log below dir wherever text stands, and says how often that was.
func flipEntry(t *testing.T, dir, text string) (found int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, logDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		found += flip(t, file, text)
	}
	return found
}

// flip flips a bit in the file wherever text stands, and says how often that was.
func flip(t *testing.T, path, text string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := 0
	for at := 0; ; {
		i := bytes.Index(data[at:], []byte(text))
		if i < 0 {
			return found
		}
		at += i
		if _, err := f.WriteAt([]byte{data[at] ^ 4}, int64(at)); err != nil {
			t.Fatal(err)
		}
		found++
		at += len(text)
	}
}

func TestStoreFindsFlippedBits(t *testing.T) {
	dir := t.TempDir()
	s := testStore(t, dir)
	fill(t, s, 1, 10)
	if err := s.SetUint64([]byte("CurrentTerm"), 0x4142434445464748); err != nil {
		t.Fatal(err)
	}
	s.close()
	flipEntry(t, dir, "command 7")
	flip(t, filepath.Join(dir, databaseFile), "ABCDEFGH")
	s = testStore(t, dir)
	var reported []string
	s.damaged = func(reason string) { reported = append(reported, reason) }
	for i := uint64(1); i <= 10; i++ {
		if err := s.GetLog(i, new(raft.Log)); errors.Is(err, errRecord) != (i == 7) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if _, err := s.GetUint64([]byte("CurrentTerm")); !errors.Is(err, errRecord) {
		t.Errorf("term: %v", err)
	}
	if len(reported) != 2 {
		t.Errorf("reported %q", reported)
	}
}

// A last entry that cannot be read is damaged, unless the machine may have lost its
// power while it was written.
func TestLastEntryAfterAPowerCut(t *testing.T) {
	for _, cut := range []bool{false, true} {
		dir := t.TempDir()
		s := testStore(t, dir)
		fill(t, s, 1, 9)
		fill(t, s, 10, 10)
		if cut {
			if err := s.Set(bootKey, []byte("another")); err != nil {
				t.Fatal(err)
			}
		}
		s.close()
		flipEntry(t, dir, "command 10")
		s = testStore(t, dir)
		last, _ := s.LastIndex()
		if err := s.GetLog(10, new(raft.Log)); errors.Is(err, errRecord) == cut || cut != (last == 9) {
			t.Errorf("power cut %v: log ends at %d, %v", cut, last, err)
		}
	}
}

func TestStoreRefusesDamagedEntryFromPeer(t *testing.T) {
	s := testStore(t, t.TempDir())
	bad := entryLog(1, "x")
	bad.Data[5] ^= 1
	if err := s.StoreLog(bad); !errors.Is(err, errEnvelope) {
		t.Errorf("got %v", err)
	}
}

func TestCacheHoldsOnlyTheNewest(t *testing.T) {
	var c logCache
	for i := uint64(1); i <= 2*cacheEntries; i++ {
		c.put([]*raft.Log{{Index: i, Data: make([]byte, 32<<10)}})
	}
	held := 0
	for i := uint64(1); i <= 2*cacheEntries; i++ {
		if c.get(i, new(raft.Log)) {
			held += 32 << 10
		}
	}
	if held == 0 || held > cacheBytes+64<<10 {
		t.Errorf("%d bytes held", held)
	}
	c.put([]*raft.Log{{Index: 5, Term: 9}}) // the tail is replaced
	if c.get(2*cacheEntries, new(raft.Log)) || !c.get(5, new(raft.Log)) {
		t.Error("entries of the replaced tail are still there")
	}
}

func TestStallsAreCountedInTicks(t *testing.T) {
	s := newStalls()
	end := s.begin("store")
	s.begin("read")()
	time.Sleep(10 * time.Millisecond)
	if _, n := s.tick(); n != 1 {
		t.Errorf("%d ticks after one", n)
	}
	if what, n := s.tick(); what != "store" || n != 2 {
		t.Errorf("%s, %d ticks", what, n)
	}
	end()
	if what, n := s.tick(); n != 0 {
		t.Errorf("%s is still there", what)
	}
}
