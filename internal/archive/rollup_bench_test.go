package archive

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// BenchmarkMonth: a month with 1,000,000 finished jobs of 300 users, or as many as
// GREYLAG_BENCH_JOBS says. fold is what keeping the roll-up costs a job, month what
// reading the month's sums takes, day what reading one day's does.
func BenchmarkMonth(b *testing.B) {
	jobs := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("GREYLAG_BENCH_JOBS")); err == nil && n > 0 {
		jobs = n
	}
	every := 30 * 24 * time.Hour / time.Duration(jobs)
	a, err := Open(b.TempDir(), Options{})
	must(b, err)
	defer a.Close()
	begin := time.Now()
	const batch = 10_000
	for seq := uint64(1); seq <= uint64(jobs); {
		var list []Record
		for range batch {
			list = append(list, finished(seq, every))
			seq++
		}
		must(b, a.Append(seq, list, nil))
	}
	must(b, a.Sync())
	b.Logf("%d jobs archived and rolled up in %s, file %d MB", jobs, time.Since(begin).Round(time.Second), size(b, a)>>20)
	must(b, a.rollUp(0))
	month := firstDay.Add(31 * 24 * time.Hour)
	for _, c := range []struct {
		name     string
		from, to cluster.Instant
	}{{"month", firstDay, month}, {"day", firstDay.Add(10 * 24 * time.Hour), firstDay.Add(11 * 24 * time.Hour)}, {"day of another zone", firstDay.Add(10*24*time.Hour - 2*time.Hour), firstDay.Add(11*24*time.Hour - 2*time.Hour)}} {
		b.Run(c.name, func(b *testing.B) {
			cells := 0
			for b.Loop() {
				sums := make(map[tally.Key]*tally.Tally)
				cells = 0
				_, err := a.Tallies([]cluster.Instant{c.from, c.to}, func(_ int, k tally.Key, t *tally.Tally) {
					cells++
					sum(sums, k, t)
				})
				must(b, err)
			}
			b.ReportMetric(float64(cells), "cells")
		})
	}
	b.Run("fold", func(b *testing.B) {
		records := make([]*cluster.Job, 1000)
		for i := range records {
			records[i] = jobOf(b, finished(uint64(i+1), every))
		}
		cells := make(map[cell]*tally.Tally)
		for b.Loop() {
			for _, j := range records {
				tally.Job(j, 0, tally.Slots, func(slot cluster.Instant, k tally.Key) *tally.Tally {
					t := cells[cell{slot, k}]
					if t == nil {
						t = &tally.Tally{}
						cells[cell{slot, k}] = t
					}
					return t
				})
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/job")
	})
}

func size(b *testing.B, a *Archive) int64 {
	info, err := os.Stat(a.path)
	must(b, err)
	return info.Size()
}

func jobOf(b *testing.B, r Record) *cluster.Job {
	j := jobIn(r.Seq, r.encode())
	if j == nil {
		b.Fatal("a record cannot be read")
	}
	return j
}
