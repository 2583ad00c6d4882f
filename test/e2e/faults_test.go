package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

// everyFault reports whether the long tests of faults run too.
func everyFault() bool { return os.Getenv("GREYLAG_FAULTS") == "all" }

// needsTime skips a test that takes minutes, except in make test-faults.
func needsTime(t testing.TB) {
	t.Helper()
	if !everyFault() {
		t.Skip("takes minutes: run make test-faults")
	}
}

// TestSilentNodeReturns checks a node that is silent for longer than node_timeout while its job
// runs, so that two attempts run at once. The old one gets SIGTERM when the node is back, and is
// killed 10 s later, although kill_wait is longer.
func TestSilentNodeReturns(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	options := three()
	options.Controllers, options.Nodes = 1, 2
	options.Policy = strings.NewReplacer(`"30s"`, `"15s"`, `"10s"`, `"300s"`).Replace(quickKill())
	s := newSite(t, options)
	s.needsContainers("tasks that outlive their node's silence")
	word, out := fmt.Sprintf("silent-%d-", os.Getpid()), filepath.Join(s.Work, "attempts")
	gate := s.gate("second")
	id := s.submit(ctx, s.job("two attempts", fmt.Sprintf(
		`trap : TERM; bash -c 'trap "echo asked $0 >>%[1]s" TERM; until [ -e %[3]s ]; do echo $0 >>%[1]s; sleep 0.2; done' %[2]s$GREYLAG_ATTEMPT; exit 8`,
		out, word, gate.path)))
	job := s.await(ctx, id, "RUNNING")
	lost := s.Node(0)
	if job.Nodes[0].Node != lost.Name {
		lost = s.Node(1)
	}
	s.until("the first attempt writes", func() (bool, error) { return s.holds("attempts", word+"1"), nil })
	s.must(lost.Pause())
	s.until("the second attempt writes", func() (bool, error) { return s.holds("attempts", word+"2"), nil })
	all := s.output("attempts")
	s.until("the first attempt writes on", func() (bool, error) {
		return strings.Contains(s.output("attempts")[len(all):], word+"1"), nil
	})
	s.must(lost.Resume())
	s.until("the first attempt is asked to end", func() (bool, error) { return s.holds("attempts", "asked "+word+"1"), nil })
	asked := time.Now()
	s.until("the first attempt ends", func() (bool, error) { return processWith(s, word+"1") == 0, nil })
	if took := time.Since(asked); took > time.Minute {
		t.Errorf("the superseded attempt ended %s after it was asked to", took)
	}
	gate.open()
	if job := s.await(ctx, id, "FAILED"); job.ExitCode != 8 || job.Attempt != 2 {
		t.Errorf("the job ended with %d in attempt %d, want 8 in the second", job.ExitCode, job.Attempt)
	}
	s.must(s.AwaitNode(ctx, lost.Name, "IDLE"))
	s.audit(ctx)
}

// TestGangWithASilentNode checks that the exit of one task is no verdict on its job while the node of another
// is silent: the job runs again on other nodes long before node_timeout.
func TestGangWithASilentNode(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 2*hang)
	s := newSite(t, cluster.Options{Nodes: 3, GPUs: 1, CPUs: 4, Memory: "2GiB", Policy: strings.Replace(quickKill(), `"30s"`, `"10m"`, 1)})
	gate := s.gate("peer lost")
	id := s.gsubmit(tester, "--nodes=2", s.script(`[ $GREYLAG_ATTEMPT = 1 ] || exit 9; `+gate.then("exit 1")))
	job := s.await(ctx, id, "RUNNING")
	lost := s.Node(slices.IndexFunc(s.Nodes(), func(n *cluster.Node) bool { return n.Name == job.Nodes[1].Node }))
	s.must(lost.Pause())
	gate.open()
	job = s.await(ctx, id, "FAILED")
	if job.ExitCode != 9 || job.Attempt != 2 || job.RestartCauses.GetNodeFailed() != 1 || job.Nodes[0].Node == lost.Name || job.Nodes[1].Node == lost.Name {
		t.Errorf("the job ended with %d in attempt %d on %v, restarted for %v", job.ExitCode, job.Attempt, job.Nodes, job.RestartCauses)
	}
	s.must(lost.Resume())
	s.must(s.AwaitNode(ctx, lost.Name, "IDLE"))
	s.audit(ctx)
}

// holds reports whether a file in the working directory contains a text.
func (s *site) holds(name, text string) bool {
	data, err := os.ReadFile(filepath.Join(s.Work, name))
	return err == nil && strings.Contains(string(data), text)
}

// TestRollingRestart ends each controller and the node with SIGTERM under load and restarts it, the
// leader last. No job is affected.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	gate := s.gate("restarted")
	runs := s.submit(ctx, s.job("runs on", gate.then("exit 7")))
	s.await(ctx, runs, "RUNNING")
	stop := s.load(32)
	leader := s.leader(ctx)
	for _, ctl := range append(s.others(leader), leader) {
		s.must(ctl.Stop())
		if code := ctl.ExitCode(); code != 0 {
			t.Errorf("%s ended with %d", ctl.Name, code)
		}
		s.probe(ctx)
		s.must(ctl.Start())
		s.must(audit.AwaitFollower(ctx, s.Cluster, ctl))
	}
	s.must(s.Node(0).Stop())
	s.must(s.Node(0).Start())
	stop()
	gate.open()
	if job := s.await(ctx, runs, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
		t.Errorf("the job ended with %d in attempt %d, want 7 in the first", job.ExitCode, job.Attempt)
	}
	s.idle(ctx)
	s.audit(ctx)
}

// TestPacketLoss drops 20 % of the packets between the controllers under load.
func TestPacketLoss(t *testing.T) {
	t.Parallel()
	needsTime(t)
	needsRoot(t, "network namespaces")
	ctx := limited(t, 4*hang)
	options := three()
	options.Namespaces = true
	s := newSite(t, options)
	stop := s.load(32)
	s.must(s.Lose(20))
	for range 30 {
		s.wait(ctx, time.Second)
		s.probe(ctx)
	}
	s.must(s.Heal())
	stop()
	s.idle(ctx)
	s.audit(ctx)
}

// TestLargeArrayCancelled cancels an array of 100,000 elements while its first ones start.
func TestLargeArrayCancelled(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	s := oneNode(t)
	before, err := audit.CountLeaks(s.Cluster)
	s.must(err)
	id := s.gsubmit(tester, "--array=1-100000", "--output=/dev/null", s.script("sleep 300"))
	s.await(ctx, id, "RUNNING")
	s.ok(tester, "gcancel", ref(id))
	s.idle(ctx)
	s.must(audit.AwaitNoLeaks(ctx, s.Cluster, before))
	s.ends(s.gsubmit(tester, s.script("true")), "COMPLETED")
}

// TestManyJobsEndAtOnce checks that 200 jobs that wait for one lock end when it is released, each
// once.
func TestManyJobsEndAtOnce(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Nodes: 1, CPUs: 256, Memory: "8GiB", Tmpfs: true, Policy: quickKill()})
	before, err := audit.CountLeaks(s.Cluster)
	s.must(err)
	lock, err := os.Create(filepath.Join(s.Work, "lock"))
	s.must(err)
	defer lock.Close()
	s.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	var jobs []uint64
	for i := range 200 {
		jobs = append(jobs, s.submit(ctx, s.job(fmt.Sprint("at once ", i), "flock -s "+lock.Name()+" true; exit 7")))
	}
	for _, id := range jobs {
		s.await(ctx, id, "RUNNING")
	}
	begun := time.Now()
	s.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
	for _, id := range jobs {
		if job := s.await(ctx, id, "FAILED"); job.ExitCode != 7 || job.Attempt != 1 {
			t.Errorf("job %d ended with %d in attempt %d, want 7 in the first", id, job.ExitCode, job.Attempt)
		}
	}
	t.Log("all had ended after", time.Since(begun).Round(time.Millisecond))
	s.idle(ctx)
	s.audit(ctx)
	s.must(audit.AwaitNoLeaks(ctx, s.Cluster, before))
}

// TestBackupUnderLoad takes backups while jobs are submitted. Each of 12 flipped bits is found,
// and a cluster restored from the last backup has every acknowledged job.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Raft: "snapshot_threshold = 100"})
	backup := filepath.Join(s.Work, "backup")
	stop := s.load(16)
	for i := range 3 {
		s.wait(ctx, time.Second)
		s.ok(tester, "gctl", "cluster", "snapshot", "-o", fmt.Sprint(backup, i))
	}
	stop()
	s.ok(tester, "gctl", "cluster", "snapshot", "-o", backup)
	ctl := s.leader(ctx)
	s.must(ctl.Stop())
	s.must(os.Rename(ctl.Data, ctl.Data+"-before"))
	s.must(os.Mkdir(ctl.Data, 0o700))
	config := filepath.Join(filepath.Dir(ctl.Data), "gctld.toml")
	for i, name := range []string{"0", "1", "2", ""} {
		data, err := os.ReadFile(backup + name)
		s.must(err)
		for part := range 3 {
			flipped := slices.Clone(data)
			flipped[(4*part+i+1)*len(data)/14] ^= 1 << (i + part)
			s.must(os.WriteFile(backup+"-flipped", flipped, 0o600))
			result, err := s.Run(ctx, "gctld", "restore", "--config", config, "-i", backup+"-flipped")
			if s.must(err); result.Exit != 1 || !strings.Contains(result.Stderr, "backup") {
				t.Errorf("backup %q with a flipped bit: exit status %d, %s", name, result.Exit, result.Stderr)
			}
		}
	}
	s.ok(tester, "gctld", "restore", "--config", config, "-i", backup)
	s.must(ctl.Start())
	s.probe(ctx)
	s.audit(ctx)
}

// TestBitFlippedInEverySnapshot checks that a controller without a whole snapshot refuses its data,
// and comes back as a new member.
func TestBitFlippedInEverySnapshot(t *testing.T) {
	t.Parallel()
	needsTime(t)
	ctx := limited(t, 4*hang)
	options := three()
	options.Nodes, options.Raft = 0, options.Raft+`
snapshot_threshold = 64
snapshot_interval = "1s"
snapshots_kept = 2
trailing_logs = 64`
	s := newSite(t, options)
	stop := s.load(8)
	victim := s.others(s.leader(ctx))[0]
	folder := filepath.Join(victim.Data, "raft", "snapshots")
	var first string
	s.until("the first snapshot is replaced, so that the log lacks its beginning", func() (bool, error) {
		list, err := os.ReadDir(folder)
		if len(list) > 0 && first == "" {
			first = list[0].Name()
		}
		return first != "" && !slices.ContainsFunc(list, func(entry fs.DirEntry) bool { return entry.Name() == first }), err
	})
	stop()
	s.must(audit.AwaitFollower(ctx, s.Cluster, victim))
	status, err := victim.Status(ctx)
	s.must(err)
	s.must(victim.Kill())
	s.must(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return flipMiddle(path)
	}))
	s.must(victim.Start())
	s.must(victim.WaitEnd(hang))
	if code := victim.ExitCode(); code != 76 {
		t.Fatalf("the controller with damaged snapshots ended with %d, want 76", code)
	}
	s.must(s.Rejoin(ctx, victim, status.Id))
	s.must(audit.AwaitFollower(ctx, s.Cluster, victim))
	s.audit(ctx)
}

// flipMiddle changes one bit in the middle of a file.
func flipMiddle(path string) error {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return err
	}
	data[len(data)/2] ^= 4
	return os.WriteFile(path, data, 0o600)
}
