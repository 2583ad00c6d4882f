package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/test/audit"
	"github.com/greylag/greylag/test/cluster"
)

func onDisks() cluster.Options {
	options := three()
	options.DiskMiB = 192
	return options
}

// TestLeaderDiskHangs freezes the leader's file system: it must end itself; raft alone would keep
// it as leader.
func TestLeaderDiskHangs(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a file system of its own")
	ctx := limited(t, 4*hang)
	s := newSite(t, onDisks())
	stop := s.load(16)
	leader := s.leader(ctx)
	begun := time.Now()
	s.must(leader.Freeze())
	_, err := s.LeaderAmong(ctx, s.others(leader)...)
	if err == nil {
		s.probe(ctx)
	}
	took := time.Since(begun)
	s.must(leader.Thaw()) // until then the kernel does not end it
	s.must(err)
	t.Log("disk hung; submission acknowledged after", took.Round(time.Millisecond))
	s.must(leader.WaitEnd(hang))
	if code := leader.ExitCode(); code != 75 {
		t.Errorf("the leader with the hung disk ended with %d, want 75", code)
	}
	s.must(leader.Start())
	s.must(audit.AwaitFollower(ctx, s.Cluster, leader))
	stop()
	s.idle(ctx)
	s.audit(ctx)
}

// TestKeptControllerStartsAgain checks that a controller of a cluster that was left running (make
// up) and whose disk hung is restarted automatically.
func TestKeptControllerStartsAgain(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a file system of its own")
	ctx := limited(t, 4*hang)
	s := newSite(t, cluster.Options{Controllers: 1, DiskMiB: 192, Keep: true})
	only := s.leader(ctx)
	logged := func(what string, times int) error {
		return cluster.Until(ctx, what, func() (bool, error) { return strings.Count(only.LogTail(1<<20), what) == times, nil })
	}
	s.must(only.Freeze())
	err := logged("disk hang: ", 1)
	s.must(only.Thaw())
	s.must(err)
	s.must(logged("msg=serving", 2))
	s.leader(ctx)
}

// TestLeaderDiskFull uses the leader's last free byte: the others continue, and it comes back when
// there is space.
func TestLeaderDiskFull(t *testing.T) {
	t.Parallel()
	needsRoot(t, "a file system of its own")
	ctx := limited(t, 4*hang)
	s := newSite(t, onDisks())
	stop := s.load(32)
	leader := s.leader(ctx)
	s.must(leader.Fill())
	for range 5 {
		s.wait(ctx, time.Second)
		t.Log("disk full; submission acknowledged after", s.probe(ctx).Round(time.Millisecond))
	}
	s.must(leader.Drain())
	if !leader.Running() {
		t.Logf("%s ended with status %d", leader.Name, leader.ExitCode())
		s.must(leader.Start())
	}
	s.must(audit.AwaitFollower(ctx, s.Cluster, leader))
	stop()
	s.idle(ctx)
	s.audit(ctx)
}

// TestBitFlip changes one bit of an entry in a stopped controller's log: it must
// refuse its data and can only come back as a new member.
func TestBitFlip(t *testing.T) {
	t.Parallel()
	ctx := limited(t, 4*hang)
	s := newSite(t, three())
	const name = "the-job-whose-name-is-in-the-log"
	s.submit(ctx, audit.Waiting(name))
	victim := s.others(s.leader(ctx))[0]
	s.must(audit.AwaitFollower(ctx, s.Cluster, victim))
	status, err := victim.Status(ctx)
	s.must(err)
	s.must(victim.Kill())
	s.must(flip(filepath.Join(victim.Data, "raft", "raft.db"), name))
	s.must(victim.Start())
	s.must(victim.WaitEnd(hang))
	if code := victim.ExitCode(); code != 76 {
		t.Fatalf("the controller with the damaged log ended with %d, want 76", code)
	}
	s.probe(ctx)

	s.must(s.Rejoin(ctx, victim, status.Id))
	s.must(audit.AwaitFollower(ctx, s.Cluster, victim))
	again, err := victim.Status(ctx)
	s.must(err)
	if again.Id == status.Id {
		t.Errorf("it came back under its old id %s, although it has forgotten for whom it voted", again.Id)
	}
	s.audit(ctx)
}

// flip changes a bit at each occurrence of the text in a file.
func flip(path, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Contains(data, []byte(text)) {
		return fmt.Errorf("%s does not hold %q", path, text)
	}
	damaged := []byte(text)
	damaged[len(damaged)/2] ^= 1
	return os.WriteFile(path, bytes.ReplaceAll(data, []byte(text), damaged), 0o600)
}
