package archive

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/greylag/greylag/internal/report/tally"
	"github.com/greylag/greylag/pkg/cluster"
)

// BenchmarkMonth has a month with 1,000,000 finished jobs of 300 users in 30 accounts, or as many
// as GREYLAG_BENCH_JOBS says, two hours long on average. fold is the cost of the roll-up per job,
// month the time to read the month's sums, day that of one day's. The others query records page by
// page, as gctl acct does.
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
	must(b, a.rollUp(0))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Logf("%d jobs archived and rolled up in %s, %d bytes of file a job (record: %d); %d MiB of heap at most",
		jobs, time.Since(begin).Round(time.Second), size(b, a)/int64(jobs), len(finished(7, every).Data), m.HeapSys>>20)
	benchmarkSums(b, a)
	benchmarkQuestions(b, a, jobs)
	b.Run("fold", func(b *testing.B) { benchmarkFold(b, every) })
}

// benchmarkSums reads the sums of jobs.
func benchmarkSums(b *testing.B, a *Archive) {
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
}

// benchmarkQuestions queries the records of jobs.
func benchmarkQuestions(b *testing.B, a *Archive, jobs int) {
	at := func(d int, of time.Duration) cluster.Instant {
		return firstDay.Add(time.Duration(d) * 24 * time.Hour).Add(of)
	}
	for _, c := range []struct {
		name string
		q    Question
	}{
		{"acct user's day", Question{Users: []string{"user017"}, Since: at(10, 0), Until: at(11, 0)}},
		{"acct user's month", Question{Users: []string{"user017"}, Since: at(0, 0), Until: at(31, 0)}},
		{"acct account's day", Question{Accounts: []string{"account17"}, Since: at(10, 0), Until: at(11, 0)}},
		{"acct all users' minute", Question{Since: at(10, 0), EndedBy: at(10, time.Minute)}},
		{"all that were there in a half hour", Question{Since: at(10, 0), Until: at(10, 30*time.Minute)}},
		{"acct failed in a day", Question{States: []cluster.JobState{cluster.Failed}, Since: at(10, 0), EndedBy: at(11, 0)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			found := 0
			for b.Loop() {
				q, more := c.q, true
				found = 0
				for q.Limit = 1000; more; {
					var list []Record
					var err error
					list, q.After, more, err = a.Answer(q)
					must(b, err)
					found += len(list)
				}
			}
			b.ReportMetric(float64(found), "jobs")
		})
	}
	b.Run("acct one job", func(b *testing.B) {
		for b.Loop() {
			if _, found, err := a.Job(cluster.JobID(jobs / 2)); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
}

func benchmarkFold(b *testing.B, every time.Duration) {
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
