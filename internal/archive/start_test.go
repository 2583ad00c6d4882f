package archive

import (
	"slices"
	"testing"
)

// TestHistoryBeginsLater checks that records and rows before a number are no gap and not in the
// sums, that missing ones after it are a gap, and that the archive continues after them.
func TestHistoryBeginsLater(t *testing.T) {
	for _, have := range [][]Record{nil, {finished(20, 1)}, {finished(15, 1), finished(20, 1)}} {
		dir := t.TempDir()
		a := open(t, dir)
		must(t, a.Append(1, have, nil))
		must(t, a.Expect(20))
		must(t, a.ExpectRows(AuditJournal, 9))
		must(t, a.StartAt(18))
		must(t, a.StartRowsAt(AuditJournal, 8))
		must(t, a.StartAt(0)) // nothing earlier is missing
		want := []Gap{{18, 20}}
		if len(have) > 0 {
			want[0].Last = 19
		}
		if gaps, err := a.Gaps(); err != nil || !slices.Equal(gaps, want) {
			t.Errorf("gaps %v, want %v, %v", gaps, want, err)
		}
		if gaps, err := a.RowGaps(AuditJournal); err != nil || !slices.Equal(gaps, []Gap{{8, 9}}) {
			t.Errorf("gaps of the journal %v, %v", gaps, err)
		}
		must(t, a.Fill([]Record{finished(3, 1), finished(18, 1), finished(19, 1), finished(20, 1)}, nil))
		must(t, a.FillRows(AuditJournal, []Row{{8, []byte("8")}, {9, []byte("9")}}))
		must(t, a.Append(2, []Record{finished(21, 1)}, nil))
		if gaps, err := a.Gaps(); err != nil || len(gaps) > 0 {
			t.Errorf("gaps %v, %v", gaps, err)
		}
		if rolled, err := a.Tallies(nil, nil); err != nil || rolled.Missing || rolled.Seq != 21 {
			t.Errorf("sums up to %+v, %v", rolled, err)
		}
	}
	empty := open(t, t.TempDir())
	must(t, empty.StartAt(1000))
	if rolled, err := empty.Tallies(nil, nil); err != nil || rolled.Missing || rolled.Seq != 999 {
		t.Errorf("sums of none up to %+v, %v", rolled, err)
	}
}

// TestBlobsInPages checks that all contents are returned once, in pages of about that many bytes.
func TestBlobsInPages(t *testing.T) {
	a := open(t, t.TempDir())
	var put []Blob
	for _, text := range []string{"one", "two", "three", "four", "five"} {
		put = append(put, blob(text))
	}
	must(t, a.Append(1, nil, put))
	seen := map[string]int{}
	var after []byte
	for {
		page, err := a.Blobs(after, 6)
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, b := range page {
			seen[string(b.Content)]++
			after = b.Digest[:]
		}
	}
	if len(seen) != 5 {
		t.Errorf("contents %v", seen)
	}
}
