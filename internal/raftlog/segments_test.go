package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

func testSegments(t *testing.T, dir string, synced bool) *segments {
	t.Helper()
	s, err := openSegments(dir, synced)
	if err != nil {
		t.Fatal(err)
	}
	s.limit = 1000
	t.Cleanup(func() { s.close() })
	return s
}

// held is what the log holds, oldest first; nil for a damaged entry.
func held(t *testing.T, s *segments) (first uint64, data [][]byte) {
	t.Helper()
	first, last := s.bounds()
	for i := first; i <= last && i > 0; i++ {
		var log raft.Log
		switch err := s.get(i, &log); {
		case errors.Is(err, errRecord):
			data = append(data, nil)
		case err != nil || log.Index != i:
			t.Fatalf("entry %d of %d to %d: %+v, %v", i, first, last, log, err)
		default:
			data = append(data, log.Data)
		}
	}
	return first, data
}

// TestSegmentsAreALog has the log do at random what raft does, and compares it with a list.
func TestSegmentsAreALog(t *testing.T) {
	dir := t.TempDir()
	s := testSegments(t, dir, true)
	r := rand.New(rand.NewPCG(1, 2))
	var want [][]byte
	next := uint64(5) // of the next entry
	for step := range 800 {
		oldest := next - uint64(len(want))
		switch r.IntN(10) {
		case 0:
			s.close()
			s = testSegments(t, dir, r.IntN(2) == 0)
		case 1: // a tail that another leader replaces
			n := r.IntN(min(30, len(want)+1))
			if err := s.forgetTail(next - uint64(n)); err != nil {
				t.Fatal(err)
			}
			want, next = want[:len(want)-n], next-uint64(n)
		case 2: // what a snapshot holds
			if err := s.forgetHead(oldest + uint64(r.IntN(20))); err != nil {
				t.Fatal(err)
			}
			if first, last := s.bounds(); last != 0 {
				want = want[first-oldest:]
			} else {
				want = nil
			}
		default:
			var logs []*raft.Log
			for range 1 + r.IntN(5) {
				data := bytes.Repeat([]byte{byte(step)}, r.IntN(200))
				logs = append(logs, &raft.Log{Index: next, Term: 3, Data: data})
				want, next = append(want, data), next+1
			}
			if err := s.append(logs); err != nil {
				t.Fatal(err)
			}
		}
		first, got := held(t, s)
		if len(got) > 0 && first != next-uint64(len(got)) || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("step %d: %d entries from %d, want %d up to %d", step, len(got), first, len(want), next-1)
		}
	}
	if files, _ := os.ReadDir(dir); len(want) > 60 && len(files) < 3 {
		t.Errorf("%d files for %d entries", len(files), len(want))
	}
}

func TestSegmentsHaveNoGap(t *testing.T) {
	s := testSegments(t, t.TempDir(), true)
	for _, c := range []struct {
		index uint64
		want  error
	}{{7, nil}, {9, errOrder}, {7, errOrder}, {8, nil}} {
		if err := s.append([]*raft.Log{{Index: c.index}}); !errors.Is(err, c.want) {
			t.Errorf("entry %d: %v, want %v", c.index, err, c.want)
		}
	}
	if err := s.get(6, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 6: %v", err)
	}
	if err := s.get(9, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 9: %v", err)
	}
}

// written is the content of a segment that was written in three writes of three entries.
func written(t *testing.T) (name string, content []byte, lastWrite int64, want [][]byte) {
	t.Helper()
	dir := t.TempDir()
	s := testSegments(t, dir, true)
	s.limit = segmentBytes
	for write := range uint64(3) {
		var logs []*raft.Log
		for i := range uint64(3) {
			want = append(want, fmt.Appendf(nil, "command %d of write %d", i, write))
			logs = append(logs, &raft.Log{Index: 1 + 3*write + i, Term: 2, Type: raft.LogNoop, Data: want[len(want)-1]})
		}
		if len(s.list) > 0 {
			lastWrite = s.list[0].end()
		}
		if err := s.append(logs); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(s.list[0].file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(s.list[0].file.Name()), content, lastWrite, want
}

// reopened opens a log that is one file.
func reopened(t *testing.T, path string, content []byte, synced bool) *segments {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return testSegments(t, filepath.Dir(path), synced)
}

// Wherever the last write was cut short, by the end of the process or of the power,
// what was written before it is there, and the log goes on.
func TestSegmentCutShort(t *testing.T) {
	name, content, lastWrite, want := written(t)
	path := filepath.Join(t.TempDir(), name)
	r := rand.New(rand.NewPCG(3, 4))
	for cut := lastWrite; cut < int64(len(content)); cut++ {
		for _, synced := range []bool{true, false} {
			torn := content[:cut]
			if !synced { // any part of the write may be missing
				torn = slices.Clone(content)
				clear(torn[cut:])
				if from := lastWrite + r.Int64N(cut-lastWrite+1); r.IntN(2) == 0 {
					torn = slices.Clone(content)
					clear(torn[from:cut])
				}
			}
			s := reopened(t, path, torn, synced)
			if _, got := held(t, s); len(got) < 6 || len(got) > 9 || !slices.EqualFunc(got, want[:len(got)], bytes.Equal) {
				t.Fatalf("cut at %d of %d: %q", cut, len(content), got)
			}
			_, last := s.bounds()
			next := bytes.ToUpper(want[min(last, 8)]) // as long as what was cut off
			if err := s.append([]*raft.Log{{Index: last + 1, Data: next}}); err != nil {
				t.Fatal(err)
			}
			s.close()
			again := testSegments(t, s.dir, false)
			if _, got := held(t, again); len(got) != int(last)+1 || !bytes.Equal(got[last], next) {
				t.Fatalf("cut at %d of %d: after entry %d it goes on with %q", cut, len(content), last, got)
			}
			again.close()
		}
	}
}

// Whichever byte of the file changes, no entry reads as another, none before the last
// write is missing, and where power was not lost none at all.
func TestSegmentFlipped(t *testing.T) {
	name, content, lastWrite, want := written(t)
	path := filepath.Join(t.TempDir(), name)
	lastRecord := len(content) - recordHead - len(want[8])
	for at := range content {
		for _, synced := range []bool{true, false} {
			flipped := slices.Clone(content)
			flipped[at] ^= 4
			s := reopened(t, path, flipped, synced)
			_, got := held(t, s)
			s.close()
			least, damaged := 9, 0
			switch {
			case int64(at) >= lastWrite && !synced:
				least = 6
			case at-lastRecord >= 4 && at-lastRecord < 8: // its length may say that its end is missing
				least = 8
			}
			for i, data := range got {
				if data == nil {
					damaged++
				} else if !bytes.Equal(data, want[i]) {
					t.Errorf("byte %d: entry %d reads %q", at, i+1, data)
				}
			}
			if len(got) < least || len(got) > 9 || damaged > 1 || least == 9 && damaged != 1 {
				t.Errorf("byte %d, synced %v: %d entries, %d damaged", at, synced, len(got), damaged)
			}
		}
	}
}

// A file in the middle that has lost its end has damaged entries, not fewer.
func TestSegmentLostItsEnd(t *testing.T) {
	dir := t.TempDir()
	s := testSegments(t, dir, true)
	for i := uint64(1); i <= 40; i++ {
		if err := s.append([]*raft.Log{{Index: i, Data: make([]byte, 100)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(s.list[1].file.Name(), 300); err != nil {
		t.Fatal(err)
	}
	first, count := s.list[1].first, s.list[1].count()
	s = testSegments(t, dir, true)
	for i := uint64(1); i <= 40; i++ {
		lost := i >= first+2 && i < first+count
		if err := s.get(i, new(raft.Log)); errors.Is(err, errRecord) != lost || !lost && err != nil {
			t.Errorf("entry %d: %v, lost %v", i, err, lost)
		}
	}
}

func TestStrangeFileInTheLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSegments(dir, true); err == nil {
		t.Error("opened")
	}
}

// A file that a released version has written must be read for ever.
func TestSegmentGolden(t *testing.T) {
	const golden = "testdata/segment-v1.bin"
	g := &segment{first: 7, seed: 0x1234abcd}
	logs := []*raft.Log{
		{Index: 7, Term: 3, Type: raft.LogNoop}, {Index: 8, Term: 3, Type: raft.LogCommand, Data: []byte("a command")},
		{Index: 9, Term: 4, Type: raft.LogConfiguration, Data: []byte("members")},
	}
	want := g.encode(g.encode(nil, logs[0]), logs[1])
	want = append(want, g.encode(nil, logs[2])...)
	data, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(data, want) {
		t.Errorf("%s: %v; written now: %x", golden, err, want)
	}
	s := reopened(t, filepath.Join(t.TempDir(), "00000000000000000007-1234abcd.v1"), data, false)
	for _, l := range logs {
		var got raft.Log
		if err := s.get(l.Index, &got); err != nil || got.Term != l.Term || got.Type != l.Type || !bytes.Equal(got.Data, l.Data) {
			t.Errorf("entry %d: %+v, %v", l.Index, got, err)
		}
	}
}

// Whatever a file holds, records are found where they are, and none is passed over.
func FuzzSegment(f *testing.F) {
	g := &segment{first: 7, seed: 0x1234abcd}
	write := g.encode(g.encode(nil, &raft.Log{Index: 7}), &raft.Log{Index: 8, Data: []byte("a command")})
	f.Add(append(write, g.encode(nil, &raft.Log{Index: 9})...), true)
	f.Fuzz(func(t *testing.T, content []byte, synced bool) {
		offsets := g.scan(content, synced)
		if end := offsets[len(offsets)-1]; offsets[0] != 0 || end > int64(len(content)) || !slices.IsSorted(offsets) {
			t.Fatalf("%d of %d bytes", offsets, len(content))
		}
		for i, end := range offsets[1:] {
			record := content[offsets[i]:end]
			size, ok := g.intact(record)
			if ok && size == int64(len(record)) && synced && recordIndex(record) > g.first+uint64(i) {
				t.Errorf("entry %d is %d", g.first+uint64(i), recordIndex(record))
			}
		}
	})
}
