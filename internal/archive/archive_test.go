package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

func open(t testing.TB, dir string) *Archive {
	t.Helper()
	a, err := Open(dir, Options{Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// record returns record number seq: user "u0" to "u2" in turn, of an account of two, ending one
// second after the one before.
func record(seq uint64) Record {
	return Record{
		Seq: seq, ID: cluster.JobID(1000 + seq), User: fmt.Sprintf("u%d", seq%3), Account: fmt.Sprintf("a%d", seq%2),
		State: cluster.Completed + cluster.JobState(seq%3), Submitted: cluster.Instant(seq * 1e9 / 2),
		Ended: cluster.Instant(seq * 1e9), Data: fmt.Appendf(nil, "data of %d", seq),
	}
}

func records(from, to uint64) []Record {
	var list []Record
	for seq := from; seq <= to; seq++ {
		list = append(list, record(seq))
	}
	return list
}

func blob(text string) Blob { return Blob{sha256.Sum256([]byte(text)), []byte(text)} }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func between(t testing.TB, a *Archive, from uint64, limit int) []uint64 {
	t.Helper()
	list, err := a.Between(from, limit)
	must(t, err)
	seqs := []uint64{}
	for _, r := range list {
		if want := record(r.Seq); !reflect.DeepEqual(r, want) {
			t.Fatalf("record %d is %+v, want %+v", r.Seq, r, want)
		}
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

func TestWhatWasTakenCanBeReadAtOnceAndAfterReopening(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, Options{Pause: time.Hour}) // nothing is written until requested
	must(t, err)
	script := blob("#!/bin/sh\n")
	must(t, a.Append(7, records(1, 5), []Blob{script}))
	must(t, a.Append(9, records(6, 9), nil))
	check := func(a *Archive) {
		t.Helper()
		r, ok, err := a.Job(1003)
		if err != nil || !ok || !reflect.DeepEqual(r, record(3)) {
			t.Fatalf("job 1003: %+v %v %v", r, ok, err)
		}
		if _, ok, err := a.Job(1); ok || err != nil {
			t.Fatalf("job 1: %v %v", ok, err)
		}
		content, ok, err := a.Blob(script.Digest)
		if err != nil || !ok || !bytes.Equal(content, script.Content) {
			t.Fatalf("blob: %q %v %v", content, ok, err)
		}
		missing, err := a.Missing([]cluster.Digest{script.Digest, blob("no").Digest, {}})
		if err != nil || !slices.Equal(missing, []cluster.Digest{blob("no").Digest}) {
			t.Fatalf("missing: %v %v", missing, err)
		}
	}
	check(a)
	must(t, a.Sync())
	if index, seq := a.Watermark(); index != 9 || seq != 9 {
		t.Fatalf("watermark %d %d", index, seq)
	}
	check(a)
	must(t, a.Append(10, records(10, 10), nil))
	must(t, a.Close()) // writes the last one
	if err := a.Append(11, records(11, 11), nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	a = open(t, dir)
	check(a)
	if got := between(t, a, 3, 4); !slices.Equal(got, []uint64{3, 4, 5, 6}) {
		t.Fatal(got)
	}
	if got := between(t, a, 9, 10); !slices.Equal(got, []uint64{9, 10}) {
		t.Fatal(got)
	}
}

func TestReplayChangesNothing(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, records(1, 20), []Blob{blob("a")}))
	must(t, a.Append(1, records(1, 20), []Blob{blob("a")}))
	must(t, a.Append(2, records(15, 25), nil))
	if got := between(t, a, 0, 100); len(got) != 25 {
		t.Fatal(got)
	}
	gaps, err := a.Gaps()
	if err != nil || len(gaps) != 0 {
		t.Fatal(gaps, err)
	}
}

func TestGapsAreFilled(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, records(1, 3), nil))
	must(t, a.Append(9, records(10, 12), nil))
	must(t, a.Expect(15))
	want := func(text string) {
		t.Helper()
		gaps, err := a.Gaps()
		if err != nil || fmt.Sprint(gaps) != text {
			t.Fatalf("gaps %v, want %s (%v)", gaps, text, err)
		}
	}
	want("[{4 9} {13 15}]")
	must(t, a.Fill(records(6, 7), []Blob{blob("b")}))
	want("[{4 5} {8 9} {13 15}]")
	must(t, a.Append(9, records(4, 5), nil)) // the log can fill one as well
	must(t, a.Fill(records(1, 9), nil))      // existing records are skipped
	want("[{13 15}]")
	must(t, a.Fill(records(13, 15), nil))
	must(t, a.Fill(records(99, 99), nil)) // beyond the end is no gap
	want("[]")
	if got := between(t, a, 0, 100); len(got) != 15 {
		t.Fatal(got)
	}
}

func TestAnotherHistoryReplacesThisOne(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, records(1, 10), nil))
	must(t, a.Sync())
	other := record(6)
	other.ID = 5000
	must(t, a.Append(1, append(records(4, 5), other), nil))
	list, err := a.Between(5, 10)
	if err != nil || len(list) != 2 || list[1].ID != 5000 {
		t.Fatalf("%+v %v", list, err)
	}
	for id, want := range map[cluster.JobID]bool{1005: true, 1006: false, 1009: false, 5000: true} {
		if _, ok, err := a.Job(id); ok != want || err != nil {
			t.Errorf("job %d: %v %v", id, ok, err)
		}
	}
	all, _, _, err := a.List(Query{Limit: 100})
	if err != nil || len(all) != 6 {
		t.Fatalf("%d listed, %v", len(all), err)
	}
}

func TestListsPageByPageNewestFirst(t *testing.T) {
	a := open(t, t.TempDir())
	must(t, a.Append(1, records(1, 100), nil))
	list := func(q Query) []uint64 {
		t.Helper()
		var seqs []uint64
		for {
			page, next, more, err := a.List(q)
			must(t, err)
			for _, r := range page {
				seqs = append(seqs, r.Seq)
			}
			if !more {
				return seqs
			}
			q.After = next
		}
	}
	all := list(Query{Limit: 7})
	if len(all) != 100 || all[0] != 100 || all[99] != 1 {
		t.Fatal(all)
	}
	if got := list(Query{User: "u1", Limit: 2, From: 10e9, Before: 22e9}); fmt.Sprint(got) != "[19 16 13 10]" {
		t.Fatal(got)
	}
	if got := list(Query{From: 98e9, Limit: 1}); fmt.Sprint(got) != "[100 99 98]" {
		t.Fatal(got)
	}
	if got := list(Query{User: "u", Limit: 10}); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestAppendWaitsWhenTheDiskIsBehind(t *testing.T) {
	a, err := Open(t.TempDir(), Options{Pause: time.Hour, MaxPending: 4096})
	must(t, err)
	for seq := uint64(1); seq <= 500; seq++ {
		must(t, a.Append(seq, records(seq, seq), nil))
		a.mu.Lock()
		waiting := a.pending.bytes
		a.mu.Unlock()
		if waiting > 4096+200 {
			t.Fatalf("%d bytes wait", waiting)
		}
	}
	must(t, a.Close())
}

func TestDamageIsNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, fileName)
	must(t, os.WriteFile(path, bytes.Repeat([]byte("not a database "), 1000), 0o600))
	_, err := Open(dir, Options{})
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the file away") {
		t.Fatal(err)
	}
	must(t, os.Remove(path))
	a := open(t, dir)
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatal(err)
	}
	must(t, a.Close())
	must(t, os.Truncate(path, 8192))
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
}

// damageable returns the content of an archive with some hundred pages.
func damageable(t *testing.T) []byte {
	dir := t.TempDir()
	a := open(t, dir)
	for seq := uint64(1); seq < 3000; seq += 500 {
		must(t, a.Append(seq, records(seq, seq+499), nil))
		must(t, a.Sync())
	}
	must(t, a.Close())
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	must(t, err)
	return data
}

// TestArchiveCutShort checks that a truncated archive is refused, or was truncated behind all that
// it holds.
func TestArchiveCutShort(t *testing.T) {
	data := damageable(t)
	for percent := 5; percent < 100; percent += 5 {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, fileName), data[:len(data)*percent/100], 0o600))
		a, err := Open(dir, Options{})
		if errors.Is(err, ErrDamaged) && strings.Contains(err.Error(), "move the file away") {
			continue
		}
		must(t, err)
		if _, known, err := a.Job(records(2999, 2999)[0].ID); err != nil || !known {
			t.Errorf("cut to %d %%: opened without its last record: %v", percent, err)
		}
		must(t, a.Close())
	}
}

// TestArchiveWithFlippedBits checks that flipped bits are an error of a read or a write, never the
// end of the process.
func TestArchiveWithFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("sequential, and too long for -short")
	}
	data := damageable(t)
	errs := 0
	for seed := range 40 {
		random := rand.New(rand.NewPCG(uint64(seed), 3))
		dir, bad := t.TempDir(), bytes.Clone(data)
		for page := 2 * 4096; page+4096 <= len(bad); page += 4096 {
			if random.IntN(10) == 0 {
				bad[page+random.IntN(64)] ^= 1 << random.IntN(8)
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, fileName), bad, 0o600))
		a, err := Open(dir, Options{Pause: time.Millisecond})
		if err == nil {
			for seq := uint64(1); seq < 3000; seq += 37 {
				_, _, fault := a.Job(records(seq, seq)[0].ID)
				err = errors.Join(err, fault)
			}
			err = errors.Join(err, a.Append(9999, records(3000, 3400), nil), a.Sync())
			_ = a.Close() // what could not be written is its error
		}
		if err != nil {
			errs++
		}
	}
	if errs == 0 {
		t.Error("no bit did harm: the test proves nothing")
	}
}

func BenchmarkAppend(b *testing.B) {
	a := open(b, b.TempDir())
	data := bytes.Repeat([]byte("x"), 300)
	seq := uint64(0)
	for b.Loop() {
		list := make([]Record, 100)
		for i := range list {
			seq++
			list[i] = record(seq)
			list[i].Data = data
		}
		must(b, a.Append(seq, list, nil))
	}
	must(b, a.Sync())
	b.ReportMetric(float64(seq)/b.Elapsed().Seconds(), "records/s")
}

// TestAmend checks that amended data of a job is read at once and after reopening, and that neither the
// replay of the log nor a job of another history undoes it.
func TestAmend(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	must(t, a.Append(1, records(1, 4), nil))
	must(t, a.Sync())
	must(t, a.Append(2, records(5, 6), nil))
	var amended []Record
	for _, seq := range []uint64{2, 5} {
		r := record(seq)
		r.Data = []byte("amended")
		amended = append(amended, r)
	}
	other := record(3)
	other.ID, other.Data = 99, []byte("of another history")
	must(t, a.Amend(3, append(amended, other)))
	must(t, a.Sync())
	must(t, a.Append(1, records(1, 4), nil)) // a replay
	must(t, a.Append(2, records(5, 6), nil))
	must(t, a.Amend(3, amended))
	must(t, a.Close())
	a = open(t, dir)
	agree(t, a)
	for seq := uint64(1); seq <= 6; seq++ {
		want := string(record(seq).Data)
		if seq == 2 || seq == 5 {
			want = "amended"
		}
		if r, found, err := a.Job(record(seq).ID); err != nil || !found || string(r.Data) != want {
			t.Errorf("record %d: %q, %t, %v, want %q", seq, r.Data, found, err, want)
		}
	}
}
