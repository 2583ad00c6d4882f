package raftlog

import (
	"bytes"
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
	fill(t, s, 1, 9000)
	for _, c := range []struct{ min, max, first, last uint64 }{
		{1, 2500, 2501, 9000},    // head
		{6500, 9000, 2501, 6499}, // tail
		{1, 99999, 0, 0},         // all
	} {
		if err := s.DeleteRange(c.min, c.max); err != nil {
			t.Fatal(err)
		}
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		if first != c.first || last != c.last {
			t.Errorf("delete %d to %d leaves %d to %d, want %d to %d", c.min, c.max, first, last, c.first, c.last)
		}
		for i := first; i <= last && i > 0; i += 7 {
			if err := s.readEntry(i, new(raft.Log)); err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
		}
	}
}

// TestDeleteRangeGoesFromTheEnds checks that the log has no hole after each transaction of a
// deletion.
func TestDeleteRangeGoesFromTheEnds(t *testing.T) {
	s := testStore(t, t.TempDir())
	fill(t, s, 1, 9000)
	for _, c := range []span{{1, 7500}, {2500, 9000}, {1, 9000}} {
		plan, err := s.planDelete(c)
		if err != nil {
			t.Fatal(err)
		}
		left, count := span{1, 9000}, uint64(0)
		for part := range plan {
			size := part.max - part.min + 1
			switch {
			case size > deleteChunk:
				t.Errorf("delete %v: %d entries at once", c, size)
			case part.min == left.min:
				left.min = part.max + 1
			case part.max == left.max:
				left.max = part.min - 1
			default:
				t.Errorf("delete %v: %v makes a hole in %v", c, part, left)
			}
			count += size
		}
		if count != c.max-c.min+1 {
			t.Errorf("delete %v: %d entries", c, count)
		}
	}
}

func TestLogStaysBackToTheOldestSnapshot(t *testing.T) {
	s := testStore(t, t.TempDir())
	fill(t, s, 1, 100)
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

// flip flips a bit in the file at each occurrence of text, and returns their number.
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
	flip(t, filepath.Join(dir, databaseFile), "command 7")
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
