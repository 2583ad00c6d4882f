package archive

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/greylag/greylag/pkg/cluster"
)

// yearOf fills an archive with n records that end throughout a year: 2,000 users in 200 accounts,
// most jobs an hour long and one in 50 two days, one in 16 failed, each of 330 bytes, as of a job
// on one node. It leaves out the roll-up, which reports use.
func yearOf(b *testing.B, n int) *Archive {
	b.Helper()
	a := open(b, b.TempDir())
	a.db.NoSync = true
	data := make([]byte, 330)
	span := int64(365*24*time.Hour) / int64(n)
	begun := time.Now()
	for i := 0; i < n; {
		must(b, a.db.Update(func(tx *bolt.Tx) error {
			pack(tx)
			for end := min(i+20_000, n); i < end; i++ {
				user := i * 7919 % 2000
				ended := cluster.Instant(int64(i) * span)
				length, state := time.Hour, cluster.Completed
				if i%50 == 0 {
					length = 48 * time.Hour
				}
				if i%16 == 0 {
					state = cluster.Failed
				}
				if err := insert(tx, &Record{
					Seq: uint64(i + 1), ID: cluster.JobID(i + 1), User: fmt.Sprint("user", user), Account: fmt.Sprint("account", user/10),
					State: state, Submitted: ended.Add(-length), Ended: ended, Data: data,
				}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	info, err := os.Stat(a.path)
	must(b, err)
	b.Logf("%d records put in %s, %d bytes each", n, time.Since(begun).Round(time.Second), info.Size()/int64(n))
	return a
}

// BenchmarkAnswer queries an archive of a year, 1,000,000 jobs or as many as GREYLAG_BENCH_JOBS
// says, page by page.
func BenchmarkAnswer(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("GREYLAG_BENCH_JOBS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(b, err)
	}
	a := yearOf(b, n)
	day := func(d int) cluster.Instant { return cluster.Instant(d) * cluster.Instant(24*time.Hour) }
	for _, c := range []struct {
		name string
		q    Question
	}{
		{"user's last day", Question{Users: []string{"user17"}, Since: day(364)}},
		{"user's day in spring", Question{Users: []string{"user17"}, Since: day(90), Until: day(91)}},
		{"account's month", Question{Accounts: []string{"account17"}, Since: day(90), Until: day(120)}},
		{"all users' day", Question{Since: day(90), Until: day(91)}},
		{"failed in a month", Question{States: []cluster.JobState{cluster.Failed}, Since: day(90), Until: day(120), EndedBy: day(120)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			jobs := 0
			for b.Loop() {
				q, more := c.q, true
				jobs = 0
				for q.Limit = 1000; more; {
					var list []Record
					var err error
					list, q.After, more, err = a.Answer(q)
					must(b, err)
					jobs += len(list)
				}
			}
			b.ReportMetric(float64(jobs), "jobs")
		})
	}
}
