package joblist

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/archive"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/cluster"
)

// pastYear is the start of the synthetic year of the benchmark.
var pastYear = cluster.InstantOf(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))

// pastJob returns job i of n, all in one year: 2,000 users in 200 accounts. One job in 20 runs on four
// nodes, one in 50 for two days and the others for an hour, and one in 16 fails.
func pastJob(i, n int) *cluster.Job {
	span := int64(365*24*time.Hour) / int64(n)
	user := i * 7919 % 2000
	ended := pastYear.Add(time.Duration(int64(i) * span))
	length := time.Hour
	if i%50 == 0 {
		length = 48 * time.Hour
	}
	j := &cluster.Job{
		ID: cluster.JobID(i + 1), Index: cluster.NoIndex, State: cluster.Completed, Attempt: 1, Ended: ended, Started: ended.Add(-length),
		Submitted: ended.Add(-length - 30*time.Minute), Partition: "gpu", Alloc: &cluster.Allocation{},
		Spec: &cluster.JobSpec{
			Name: "train-" + strconv.Itoa(i%100), Owner: cluster.Identity{User: fmt.Sprint("user", user), UID: uint32(1000 + user), GID: 100},
			Account: fmt.Sprint("account", user/10), Partition: "gpu", QOS: "standard", TimeLimit: 4 * time.Hour,
			Request: cluster.Request{Nodes: 1, GPUsPerNode: 4, TasksPerNode: 1, CPUsPerTask: 8, MemPerNode: 64 << 30},
			WorkDir: "/home/user/project", Output: "out-%j.txt",
		},
		TRES:    []cluster.Amount{{Resource: "cpu", Count: 8}, {Resource: "gpu", Count: 4}, {Resource: "gpu:h100", Count: 4}, {Resource: "mem", Count: 65536}, {Resource: "node", Count: 1}},
		Charged: 4_000_000,
	}
	if i%16 == 0 {
		j.State, j.Exit = cluster.Failed, cluster.Exit{Code: 1}
	}
	var tasks []cluster.Task
	nodes := 1
	if i%20 == 0 {
		nodes = 4
	}
	for k := range nodes {
		node := fmt.Sprintf("gpu%04d", (i+k)%1000)
		j.Alloc.Nodes = append(j.Alloc.Nodes, cluster.NodeAllocation{Node: node, GPUs: []int32{0, 1, 2, 3}, CPUs: 8, Memory: 64 << 30})
		tasks = append(tasks, cluster.Task{Node: node, Phase: cluster.TaskClean, Cause: cluster.Exited, Started: j.Started, Ended: j.Ended, Memory: 10 << 30, CPUTime: 2 * time.Hour})
	}
	j.Tasks = cluster.NewTasks(tasks...)
	return j
}

// fillPast creates an archive of a year.
func fillPast(b *testing.B, n int) *archive.Archive {
	b.Helper()
	dir := b.TempDir()
	a, err := archive.Open(dir, archive.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { a.Close() })
	begun := time.Now()
	for i := 0; i < n; {
		var list []archive.Record
		for ; i < n && len(list) < 20_000; i++ {
			j := pastJob(i, n)
			list = append(list, archive.Record{
				Seq: uint64(i + 1), ID: j.ID, User: j.Spec.Owner.User, Account: j.Spec.Account, State: j.State,
				Submitted: j.Submitted, Ended: j.Ended, Data: command.EncodeJob(j),
			})
		}
		if err := a.Append(uint64(i), list, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := a.Sync(); err != nil {
		b.Fatal(err)
	}
	if info, err := os.Stat(dir + "/archive.db"); err == nil {
		b.Logf("%d records written in %s, %d bytes each", n, time.Since(begun).Round(time.Second), info.Size()/int64(n))
	}
	return a
}

// BenchmarkHistory answers gctl acct from an archive of a year with 1,000,000 jobs, or
// GREYLAG_BENCH_JOBS: from the request to encoded messages.
func BenchmarkHistory(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("GREYLAG_BENCH_JOBS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	a := fillPast(b, n)
	day := func(d int) cluster.Instant { return pastYear.Add(time.Duration(d) * 24 * time.Hour) }
	one := func(name string) map[string]bool { return map[string]bool{name: true} }
	for _, c := range []struct {
		name         string
		since, until cluster.Instant
		q            selection
	}{
		{"user's last day", day(364), 0, selection{users: one("user17"), anyState: true}},
		{"user's day in spring", day(90), day(91), selection{users: one("user17"), anyState: true}},
		{"account's month", day(90), day(120), selection{accounts: one("account17"), anyState: true}},
		{"a day of all users", day(90), day(91), selection{anyState: true}},
		{"failed in a month", day(90), day(120), selection{states: map[cluster.JobState]bool{cluster.Failed: true}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			jobs, size := 0, 0
			for b.Loop() {
				jobs, size = 0, 0
				h := &pastJobs{
					archive: a, view: state.New().View(), q: &c.q, finished: uint64(n), since: c.since, until: c.until,
					visibility: &Visibility{caller: auth.Caller{Machine: pki.Peer{Role: pki.RoleController}}, policy: &cluster.Policy{}},
				}
				h.send = func(m *greylagv1.StreamHistoryResponse) error {
					text, err := proto.Marshal(m)
					jobs, size = jobs+len(m.Jobs), size+len(text)
					return err
				}
				h.message = &greylagv1.StreamHistoryResponse{}
				if err := h.all(context.Background()); err != nil {
					b.Fatal(err)
				}
				if err := h.flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(jobs), "jobs")
			b.ReportMetric(float64(size)/float64(max(jobs, 1)), "B/job")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(max(jobs, 1)), "us/job")
		})
	}
}
