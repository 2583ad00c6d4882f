package raftlog

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeaderThatAgreesNothingStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		n := f.leader()
		n.sent.Add(1) // an entry that never comes back
		if r := reason(f, n); !strings.HasPrefix(r, "75 this member leads but") {
			t.Errorf("stopped with %q", r)
		}
	})
}

func TestLeaderMayExecuteAnEntryForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, func(c *Config) { c.CheckInterval = time.Hour })
		defer f.close()
		f.grow(1)
		n := f.leader()
		n.machine.applying.Store(true)
		n.sent.Add(1)
		start := time.Now()
		time.Sleep(applyLimit - 10*time.Second)
		if r := reason(f, n); !strings.HasPrefix(r, "75 this member leads but") || time.Since(start) < applyLimit {
			t.Errorf("stopped with %q after %v", r, time.Since(start))
		}
	})
}

func TestHandoverThatNeverEndsStopsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, func(c *Config) { c.CheckInterval = time.Hour })
		defer f.close()
		f.grow(1)
		n := f.leader()
		n.refused.Store(true)
		start := time.Now()
		if r := reason(f, n); !strings.HasPrefix(r, "75 a leadership transfer") || time.Since(start) < handoverLimit {
			t.Errorf("stopped with %q after %v", r, time.Since(start))
		}
	})
}

// TestFailingDiskStopsTheMember fails a write for another reason than a full disk: the content of
// the disk is then unknown.
func TestFailingDiskStopsTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		defer f.close()
		f.grow(1)
		n := f.leader()
		f.must(n.store.db.Close())
		if _, _, err := n.Propose(f.ctx(), []byte("x")); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the caller hears %v", err)
		}
		if r := reason(f, n); !strings.HasPrefix(r, "75 the disk fails: store entries") {
			t.Errorf("stopped with %q", r)
		}
	})
}

// TestPauseIsNoStall checks that a process that was paused has not had a hanging disk.
func TestPauseIsNoStall(t *testing.T) {
	s := newStalls()
	s.begin("store entries")
	for range ticks(3 * time.Second) {
		if _, n := s.tick(); n > ticks(3*time.Second) {
			t.Fatal("too early")
		}
	}
	if _, n := s.tick(); n <= ticks(3*time.Second) {
		t.Fatal("never noticed")
	}
}

// disk mounts a file system of its own for one test, hidden from processes that clone the host's
// mounts meanwhile: it could not be unmounted then.
func disk(t *testing.T, script string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	dir = t.TempDir()
	cmd := exec.Command("sh", "-ec", script+`; mount --make-unbindable "$DIR"`)
	cmd.Env = append(os.Environ(), "DIR="+dir, "IMAGE="+filepath.Join(t.TempDir(), "image"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs to mount a file system here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// TestHangingDiskStopsTheLeader checks that a leader whose disk hangs stops itself although its
// network is fine.
func TestHangingDiskStopsTheLeader(t *testing.T) {
	t.Parallel()
	dir := disk(t, `truncate -s 64M "$IMAGE"; mkfs.ext4 -q "$IMAGE"; mount -o loop "$IMAGE" "$DIR"`)
	f := newFleet(t, func(c *Config) { c.StallLimit = 5 * time.Second })
	cfg := f.config("frozen")
	cfg.Dir = filepath.Join(dir, "raft")
	n := f.start(cfg)
	defer f.close()
	f.must(n.Bootstrap())
	f.propose("before")
	thaw := func() { exec.Command("fsfreeze", "-u", dir).Run() }
	defer thaw()
	if out, err := exec.Command("fsfreeze", "-f", dir).CombinedOutput(); err != nil {
		t.Skipf("needs fsfreeze: %v: %s", err, out)
	}
	start := time.Now()
	go n.Propose(context.Background(), []byte("never"))
	select {
	case r := <-n.fatal:
		if !strings.HasPrefix(r, "75 disk hang: store entries") {
			t.Errorf("stopped with %q", r)
		}
		t.Logf("stopped after %v", time.Since(start))
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
	thaw()
}
