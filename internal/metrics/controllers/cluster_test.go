package controllers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/internal/metrics"
	"github.com/greylag/greylag/internal/metrics/controllers"
	"github.com/greylag/greylag/internal/procedure"
	"github.com/greylag/greylag/internal/raftlog"
	"github.com/greylag/greylag/internal/schedule"
	"github.com/greylag/greylag/internal/state"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

var root = command.Actor{Identity: cluster.Identity{User: "root"}, Role: command.RoleAdmin}

// world is a cluster's state under construction.
type world struct {
	testing.TB
	*state.State
	index uint64
	now   cluster.Instant
}

func (w *world) do(c command.Command) command.Result {
	w.Helper()
	w.index++
	r := w.Apply(w.index, w.now, c)
	if refusal, refused := r.(*command.Refusal); refused {
		w.Fatalf("%T: %s", c, refusal.Message)
	}
	w.Effects()
	return r
}

// newWorld returns a cluster with partitions, accounts with credits, and nodes with 8 GPUs each.
func newWorld(tb testing.TB, partitions, accounts, nodes int) *world {
	w := &world{TB: tb, State: state.New(), now: cluster.InstantOf(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))}
	policy := cluster.DefaultPolicy()
	policy.Partitions = nil
	for i := range partitions {
		policy.Partitions = append(policy.Partitions, cluster.Partition{
			Name: fmt.Sprintf("part%02d", i), Nodes: []string{fmt.Sprintf("gpu[%04d-%04d]", i*nodes/partitions, (i+1)*nodes/partitions-1)}, Default: i == 0,
		})
	}
	policy.Scheduling.Licences = []cluster.Licence{{Name: "matlab", Count: 4}}
	w.do(&command.Init{ClusterID: "test", Policy: policy})
	for i := range nodes {
		n := cluster.Node{Name: fmt.Sprintf("gpu%04d", i), BootID: "b", CPUs: 128, Memory: 1024 * cluster.GiB}
		for g := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPU{Index: int32(g), Type: []string{"h100", "a100"}[i%2], UUID: fmt.Sprint(i, g), NUMA: -1})
		}
		w.do(&command.RegisterNode{Node: n})
	}
	for i := range accounts {
		account := fmt.Sprintf("project%02d", i)
		w.do(&command.EditAccounts{Actor: root, Edits: []command.AccountEdit{
			{Action: command.AddAccount, Account: account}, {Action: command.PutAccount, Account: account, User: fmt.Sprintf("user%02d", i)},
		}})
		w.do(&command.ChangeCredits{Actor: root, Action: command.GrantCredits, Account: account, Amount: 1000 * accounting.One, Class: accounting.Purchase})
	}
	return w
}

// submit submits jobs of each account to partitions and QOS in turn.
func (w *world) submit(jobs, partitions, accounts int) {
	qos := []string{"production", "premium", "standard", "batch", "interactive"}
	for first := 0; first < jobs; first += 100 {
		user := first / 100 % accounts
		c := &command.SubmitJobs{Actor: command.Actor{Identity: cluster.Identity{User: fmt.Sprintf("user%02d", user), UID: uint32(1000 + user)}, Role: command.RoleAdmin}}
		for i := range min(100, jobs-first) {
			c.Jobs = append(c.Jobs, command.Submission{Spec: cluster.JobSpec{
				Name: "j", Owner: c.Actor.Identity, Account: fmt.Sprintf("project%02d", user), WorkDir: "/", TimeLimit: time.Hour,
				Partition: fmt.Sprintf("part%02d", (first+i)%partitions), QOS: qos[(first+i)/partitions%len(qos)],
				Request: cluster.Request{Nodes: 1, GPUsPerNode: 1, Licences: nil},
			}})
		}
		w.do(c)
	}
}

// pass starts what can start.
func (w *world) pass() {
	snap := w.View().Snapshot()
	snap.Now = w.now
	d := schedule.Decide(snap)
	w.do(&command.CommitPlan{Plan: d.Plan})
}

// finish ends every running job of a node.
func (w *world) finish(node string, exit cluster.Exit) {
	n, _ := w.View().Node(node)
	report := &command.ReportTasks{Node: node, Epoch: n.Epoch, Seen: w.index}
	for j := range w.View().OnNode(node) {
		report.Tasks = append(report.Tasks, command.TaskReport{
			Job: j.ID, Attempt: j.Attempt, Task: cluster.Task{Node: node, Phase: cluster.TaskClean, Cause: cluster.Exited, Exit: exit},
		})
	}
	w.do(report)
}

// registry has all metrics of a leader.
func (w *world) registry() (metrics.Registry, *controllers.Process) {
	r := metrics.NewRegistry()
	p := controllers.NewProcess(r)
	r.MustRegister(
		controllers.NewMember(func() raftlog.Status {
			return raftlog.Status{State: "leader", LeaderID: "a", Members: make([]raftlog.Member, 3), SnapshotAt: time.Unix(1e9, 0)}
		}, func() bool { return true }, func() time.Time { return time.Unix(2e9, 0) }),
		controllers.NewCluster(w.View, true),
	)
	return r, p
}

// text returns the values of metrics, in the text format.
func text(t *testing.T, r metrics.Registry, names ...string) string {
	t.Helper()
	path := t.TempDir() + "/metrics"
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(read(t, path)) {
		for _, name := range names {
			if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "")
}

func TestValues(t *testing.T) {
	w := newWorld(t, 1, 2, 2)
	w.submit(20, 1, 1)
	w.now = w.now.Add(30 * time.Second)
	w.pass()
	w.now = w.now.Add(2 * time.Minute)
	w.finish("gpu0000", cluster.Exit{})
	w.finish("gpu0001", cluster.Exit{Code: 3})
	w.do(&command.UpdateNodes{Actor: root, Names: []string{"gpu0001"}, Action: command.DrainNodes, Reason: "test"})
	w.pass()
	r, _ := w.registry()
	got := text(t, r, "greylag_jobs", "greylag_jobs_submitted_total", "greylag_jobs_started_total", "greylag_jobs_finished_total", "greylag_gpus",
		"greylag_nodes", "greylag_partition_nodes", "greylag_gpus_stranded", "greylag_account_level_fs", "greylag_account_fairshare_factor", "greylag_licences", "greylag_credits_balance", "greylag_account_gpus", "greylag_job_wait_seconds_sum", "greylag_job_run_seconds_sum")
	for _, want := range []string{
		`greylag_jobs{partition="part00",state="CONFIGURING"} 4`, `greylag_jobs{partition="part00",state="PENDING"} 0`,
		`greylag_jobs_submitted_total{partition="part00"} 20`, `greylag_jobs_started_total{partition="part00"} 20`,
		`greylag_jobs_finished_total{outcome="COMPLETED",partition="part00"} 8`, `greylag_jobs_finished_total{outcome="FAILED",partition="part00"} 8`,
		`greylag_gpus{type="h100",use="allocated"} 4`, `greylag_gpus{type="h100",use="idle"} 4`, `greylag_gpus{type="a100",use="drained"} 8`,
		`greylag_nodes{drain="false",state="MIXED"} 1`, `greylag_nodes{drain="true",state="DRAINED"} 1`, `greylag_nodes{drain="false",state="DRAINED"} 0`,
		`greylag_partition_nodes{partition="part00",state="MIXED"} 1`, `greylag_account_level_fs{account="project00"} 0.5`,
		`greylag_gpus_stranded{type="h100"} 4`, `greylag_gpus_stranded{type="a100"} 0`,
		`greylag_licences{licence="matlab",use="idle"} 4`, `greylag_account_gpus{account="project00"} 4`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "greylag_account_fairshare_factor") { // accounts have none in fair-tree
		t.Error(got)
	}
}

// TestSlurm: the metrics under Slurm's names report the same jobs and nodes, and the passes.
func TestSlurm(t *testing.T) {
	w := newWorld(t, 2, 2, 4)
	w.submit(20, 1, 1)
	w.pass()
	w.do(&command.UpdateNodes{Actor: root, Names: []string{"gpu0003"}, Action: command.DrainNodes, Reason: "test"})
	r := metrics.NewRegistry()
	p := controllers.NewProcess(r)
	p.Passed(true, 2*time.Millisecond, false)
	p.Passed(false, time.Millisecond, false)
	c := controllers.NewCluster(w.View, true)
	c.EnableSlurmCompat(p)
	r.MustRegister(c)
	path := t.TempDir() + "/metrics"
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got := read(t, path)
	for _, want := range []string{
		"slurm_jobs 20", "slurm_jobs_configuring 16", "slurm_jobs_pending 4", "slurm_jobs_hold 0", `slurm_partition_jobs_pending{partition="part00"} 4`,
		`slurm_account_jobs_configuring{account="project00"} 16`, "slurm_nodes 4", "slurm_nodes_idle 1", "slurm_nodes_drained 1",
		`slurm_partition_nodes{partition="part01"} 2`, `slurm_partition_nodes_drained{partition="part01"} 1`, `slurm_partition_cpus{partition="part01"} 256`,
		"slurm_bf_cycle_cnt 2", "slurm_bf_cycle_last 1000", "slurm_bf_cycle_max 2000", "slurm_bf_cycle_tot 3000", "slurm_bf_queue_len 4",
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestOldestReady: a job that is held does not starve.
func TestOldestReady(t *testing.T) {
	w := newWorld(t, 1, 1, 1)
	w.submit(10, 1, 1)
	w.pass() // eight start
	r, _ := w.registry()
	const oldest = "greylag_jobs_pending_oldest_timestamp_seconds"
	if text(t, r, oldest) == "" {
		t.Error("no job waits")
	}
	for j := range w.View().Active() {
		if !j.State.HasAllocation() {
			w.do(&command.UpdateJobs{Actor: root, Action: command.HoldJobs, Jobs: []cluster.JobRef{{ID: j.ID, Index: cluster.NoIndex}}})
		}
	}
	if got := text(t, r, oldest); got != "" {
		t.Error(got)
	}
}

// TestUnfenced: a job that lost its node counts until the node is proven to be off.
func TestUnfenced(t *testing.T) {
	w := newWorld(t, 1, 1, 1)
	policy := *w.View().Policy()
	policy.Fencing = true
	w.do(&command.ApplyPolicy{Actor: root, Policy: policy})
	owner := cluster.Identity{User: "user00", UID: 1000}
	w.do(&command.SubmitJobs{Actor: command.Actor{Identity: owner}, Jobs: []command.Submission{{Spec: cluster.JobSpec{
		Name: "j", Owner: owner, Account: "project00", WorkDir: "/", TimeLimit: time.Hour, Requeue: true, Request: cluster.Request{Nodes: 1, GPUsPerNode: 1},
	}}}})
	w.pass()
	r, _ := w.registry()
	count := func(want int) {
		t.Helper()
		if got := text(t, r, "greylag_jobs_unfenced"); got != fmt.Sprintf("greylag_jobs_unfenced{partition=\"part00\"} %d\n", want) {
			t.Errorf("%s, want %d", got, want)
		}
	}
	count(0)
	n, _ := w.View().Node("gpu0000")
	w.do(&command.SetLiveness{Nodes: []command.NodeLiveness{{Node: n.Name, Epoch: n.Epoch, Liveness: cluster.Dead}}})
	count(1)
	w.do(&command.UpdateNodes{Actor: root, Names: []string{n.Name}, Action: command.ConfirmFenced, Reason: "unplugged"})
	count(0)
}

// TestLastPassAndBackup: neither failed passes nor failed backups count.
func TestLastPassAndBackup(t *testing.T) {
	r, p := newWorld(t, 1, 1, 1).registry()
	const pass, backup = "greylag_scheduler_last_pass_timestamp_seconds", "greylag_backup_last_success_timestamp_seconds"
	p.Passed(true, time.Second, true)
	p.Begin("ClusterService/StreamSnapshot")
	p.End("ClusterService/StreamSnapshot", "unavailable", time.Second)
	if got := text(t, r, pass, backup); got != "" {
		t.Error(got)
	}
	p.Passed(true, time.Second, false)
	p.End("ClusterService/StreamSnapshot", "ok", time.Second)
	if got := text(t, r, pass, backup); !strings.Contains(got, pass+" ") || !strings.Contains(got, backup+" ") {
		t.Error(got)
	}
}

// TestLint checks names and help, that every metric has a value in a cluster in use, and the
// number of series of a cluster with 20 partitions and 40 accounts in which each QOS is in use.
func TestLint(t *testing.T) {
	w := newWorld(t, 20, 40, 40)
	w.submit(4000, 20, 40)
	for range 5 {
		w.pass()
		w.now = w.now.Add(time.Minute)
		for i := range 40 {
			w.finish(fmt.Sprintf("gpu%04d", i), cluster.Exit{})
		}
	}
	r, p := w.registry()
	for _, rpc := range procedure.All() {
		p.Begin(rpc.Name)
		p.End(rpc.Name, "ok", time.Millisecond)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if n := series(families); n >= 5000 {
		t.Errorf("%d series, fewer than 5000 wanted", n)
	} else {
		t.Logf("%d series", n)
	}
}

// TestOnlyLeaderReportsState: else the sum over controllers would be wrong.
func TestOnlyLeaderReportsState(t *testing.T) {
	r := metrics.NewRegistry()
	r.MustRegister(controllers.NewCluster(func() *state.View { return nil }, true))
	if got := text(t, r, "greylag_jobs", "greylag_nodes"); got != "" {
		t.Error(got)
	}
}

// series counts the lines of a scrape.
func series(families []*dto.MetricFamily) (n int) {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 3
				continue
			}
			n++
		}
	}
	return n
}

// BenchmarkScrape gathers the metrics of a leader with 100,000 pending jobs, 5,000 nodes with 8 GPUs
// each, 20 partitions and 40 accounts.
func BenchmarkScrape(b *testing.B) {
	w := newWorld(b, 20, 40, 5000)
	w.submit(20_000, 20, 40)
	w.pass()
	w.submit(100_000, 20, 40)
	r, _ := w.registry()
	w.View()
	began := cpu(b)
	for b.Loop() {
		handler := r.Handler() // a former one would answer from its last result
		answer := httptest.NewRecorder()
		if handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil)); answer.Code != http.StatusOK {
			b.Fatal(answer.Code, answer.Body)
		}
	}
	families, err := r.Gather()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpu(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(series(families)), "series")
}
