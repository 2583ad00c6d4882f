package archive

import (
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestJournalsFillTheirPages checks that rows appended in ascending order fill the pages of both
// journals.
func TestJournalsFillTheirPages(t *testing.T) {
	a := open(t, t.TempDir())
	seq := uint64(0)
	for batch := range uint64(20) {
		var rows []Row
		for range 200 {
			seq++
			rows = append(rows, Row{Seq: seq, Data: make([]byte, 180)})
		}
		for j := range Journal(journals) {
			must(t, a.AppendRows(batch+1, j, rows))
		}
		must(t, a.Sync())
	}
	for j := range Journal(journals) {
		must(t, a.db.View(func(tx *bolt.Tx) error {
			s := tx.Bucket(rowsBucket(j)).Stats()
			if full := 100 * s.LeafInuse / s.LeafAlloc; s.KeyN != int(seq) || full < 80 {
				t.Errorf("journal %d: %d rows, pages %d %% full", j, s.KeyN, full)
			}
			return nil
		}))
	}
}
